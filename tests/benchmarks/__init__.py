"""Benchmarks of the service and comparable programs: `make bench` and `make bench-growth`."""
