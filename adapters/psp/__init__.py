"""What adapters of payment service providers (PSPs) share, ours and those of other packages."""
