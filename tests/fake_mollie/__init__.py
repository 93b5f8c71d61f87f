"""A fake Mollie over HTTP, which answers as Mollie's OpenAPI description says."""
