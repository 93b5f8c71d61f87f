"""A fake Mollie over HTTP. It can be validated against Mollie's OpenAPI description."""
