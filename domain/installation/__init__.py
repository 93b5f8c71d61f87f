"""The public origin at which an installation works, and copies of its records."""
