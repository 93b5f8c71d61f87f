"""The demo: the service with sample records, and a small shop that uses it."""
