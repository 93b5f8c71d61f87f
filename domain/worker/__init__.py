"""What the background worker does in each round, and its heartbeat."""
