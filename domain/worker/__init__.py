"""The background worker: its jobs, its heartbeat, and the status of the installation."""
