"""The PSP adapter for Stripe, which uses Stripe's official SDK.

Only `provider.py` imports the SDK, through `calls.py` and `transport.py`. The settings and webhooks
work without the SDK.
"""
