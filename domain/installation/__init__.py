"""The public origin of an installation, and the separation of copied records from the original."""
