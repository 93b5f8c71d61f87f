"""Acme as a payment service provider of cardonfile."""
