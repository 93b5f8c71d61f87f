"""Storage in one SQLite file, for a service on one machine."""
