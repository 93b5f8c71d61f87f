"""Consents: the texts that guests read, the choice of a text, and the proof that a guest agreed."""
