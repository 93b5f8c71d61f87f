"""Settle sessions: ask the PSP for the outcome of a page, decide, and store the card."""
