"""A fake Stripe for tests, written from Stripe's public API reference.

It keeps state and speaks Stripe's wire format for what the adapter uses, and refuses everything
else: where it is wrong about Stripe, it is meant to be wrong by refusing too much. The official SDK
talks to it over a socket.
"""
