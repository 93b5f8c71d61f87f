"""The fake PSP: a payment service provider with which to try out the whole flow on one machine.

The fake PSP accepts only the published test card numbers. `psp` stores pages, cards and tokens in a
separate database file. `pages` shows the pages to guests, `webhooks` sends webhooks over HTTP, and
`provider` implements the domain's port.
"""
