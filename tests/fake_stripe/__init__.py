"""A fake Stripe for tests, written from Stripe's public API reference.

It keeps state and speaks Stripe's wire format. It supports only what the adapter uses, and refuses
everything else, so if it differs from Stripe, it probably refuses too much. The official SDK talks
to it over a socket.
"""
