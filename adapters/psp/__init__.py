"""Code shared by the adapters of payment service providers (PSPs), in this package and others."""
