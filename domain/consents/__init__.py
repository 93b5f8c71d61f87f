"""Consents: the texts for guests, the choice of a text, and the record of each agreement."""
