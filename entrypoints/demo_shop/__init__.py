"""A small shop that uses the HTTP API like any other client: an example to copy from."""
