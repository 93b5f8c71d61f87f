"""The storage port over PostgreSQL, for several processes on several machines."""
