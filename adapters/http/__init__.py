"""The HTTP API and the hosted payment links, on Falcon."""
