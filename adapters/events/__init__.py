"""Sends events to the endpoints of clients, as Standard Webhooks describes."""
