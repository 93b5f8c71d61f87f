"""Requests of a guest's browser: open the link, use the hosted page, and return to the shop."""
