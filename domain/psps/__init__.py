"""The interface for authors of PSP adapters: the port, and the values that it takes and returns."""
