"""Agreements: what a card may be charged for, how much, and until when."""
