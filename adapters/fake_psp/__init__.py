"""The fake PSP: a payment service provider for trying out the whole flow on one machine.

`psp` keeps pages, cards and tokens in a database file of its own, `pages` shows the pages to
guests, `webhooks` sends events over HTTP, and `provider` implements the domain's port. It takes
only the published test card numbers.
"""
