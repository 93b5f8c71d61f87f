"""The public origin of an installation, and the separation of a copy of its records."""
