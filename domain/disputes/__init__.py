"""Disputes about charges: the evidence that a shop sends to a bank."""
