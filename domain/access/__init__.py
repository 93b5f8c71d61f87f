"""Access tokens: issue, list and revoke tokens, and find the caller to whom a token belongs."""
