"""The adapter for Mollie, on its REST API (v2)."""
