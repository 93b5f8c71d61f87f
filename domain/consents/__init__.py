"""Consents: the texts that guests agree to, which is shown, and what was agreed to."""
