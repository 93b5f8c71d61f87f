"""Authentication of access tokens."""
