"""A fake Mollie over HTTP, which can be validated against Mollie's OpenAPI description."""
