"""The storage in one SQLite file, for a service on one machine."""
