"""Erasing guests: the right to erasure (GDPR, article 17)."""
