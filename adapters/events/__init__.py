"""Send events to the endpoints of clients, according to Standard Webhooks."""
