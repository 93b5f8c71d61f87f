"""Access tokens: issue, list and revoke tokens, and find the caller of a token."""
