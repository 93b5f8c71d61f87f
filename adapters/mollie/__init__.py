"""The PSP adapter for Mollie, which uses Mollie's REST API (v2)."""
