"""Simulates the whole service from one seed, and checks what must always hold."""
