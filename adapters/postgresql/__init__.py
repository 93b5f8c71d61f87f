"""The storage in PostgreSQL, for a service with processes on several machines."""
