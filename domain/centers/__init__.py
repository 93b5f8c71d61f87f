"""Centers and how each takes payments."""
