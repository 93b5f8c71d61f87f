"""Guests: create, update, read and find them."""
