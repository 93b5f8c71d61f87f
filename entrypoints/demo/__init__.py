"""The demo: the service with sample records, and a shop beside it."""
