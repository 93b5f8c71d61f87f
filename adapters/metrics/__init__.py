"""Prometheus metrics: what processes count, and what is read from the storage."""
