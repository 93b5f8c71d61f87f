"""The whole service under control of one seed, and what must hold whatever happens to it."""
