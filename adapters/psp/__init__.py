"""What adapters of payment service providers (PSPs) share, and how each offers itself.

It knows no PSP. Adapters of other distributions may import it as ours do.
"""
