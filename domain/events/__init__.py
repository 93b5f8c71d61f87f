"""Events: which endpoints receive them, and their delivery with retries."""
