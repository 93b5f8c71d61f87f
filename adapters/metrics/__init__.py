"""Prometheus metrics: the counts of processes, and gauges read from the storage."""
