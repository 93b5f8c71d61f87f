"""Centers, their settings, and how each center takes cards."""
