"""Cards on file: list cards, choose the default, remove cards, and discard tokens at the PSP."""
