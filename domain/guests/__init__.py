"""Guests."""
