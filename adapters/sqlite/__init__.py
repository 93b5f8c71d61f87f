"""Records in one SQLite file, for a service that runs on one machine."""
