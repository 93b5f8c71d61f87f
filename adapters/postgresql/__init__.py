"""Storage in PostgreSQL, for several processes on several machines."""
