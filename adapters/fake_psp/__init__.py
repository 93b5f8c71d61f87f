"""The fake PSP: a payment service provider for trying out the whole flow on one machine.

`psp` keeps pages, cards and tokens in its own database file. `pages` shows the pages to guests,
`webhooks` sends events over HTTP, and `provider` implements the domain's port. The fake PSP accepts
only the published test card numbers.
"""
