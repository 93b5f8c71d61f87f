"""A small shop that shows the public API at work: it is one of its clients, and nothing more."""
