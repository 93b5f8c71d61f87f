"""Programs that implement add-card like the service. The benchmarks compare them with it."""
