"""The adapter for Stripe, on its official SDK.

Only `provider.py` leads to an import of the SDK, through `calls.py` and `transport.py`. Settings
and webhooks work without it.
"""
