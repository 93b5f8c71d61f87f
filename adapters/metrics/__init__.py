"""Prometheus metrics: counts of each process, and gauges that are read from the storage."""
