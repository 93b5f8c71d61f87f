"""What the service costs, beside others that do the same work: `make bench`, `make bench-growth`."""
