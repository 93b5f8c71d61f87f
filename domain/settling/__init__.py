"""From the PSP's answer to a stored card: ask, judge and store."""
