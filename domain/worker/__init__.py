"""The background worker's rounds, and its heartbeat."""
