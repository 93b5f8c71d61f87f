"""The interface for authors of PSP adapters: the port, the hosted page, the card."""
