"""Ways to tell who is behind an access token."""
