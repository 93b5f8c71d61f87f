"""Cards on file: list them, choose the default, remove them, and discard tokens at the PSP."""
