"""Stripe: an adapter of the port for PSPs, on Stripe's official SDK.

The SDK is imported by `calls.py` and `transport.py`, and so by `provider.py` alone; the
settings and the webhooks do without it.
"""
