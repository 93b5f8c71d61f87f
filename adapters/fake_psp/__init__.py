"""The fake PSP: a payment service provider of our own, so that the whole flow runs anywhere.

It behaves like a PSP across a wire: `psp` keeps its pages, cards and tokens in a database file of
its own, `pages` shows them to guests, `webhooks` tells of them over HTTP, and `provider` is the
port of the domain. It takes only the published test card numbers.
"""
