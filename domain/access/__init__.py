"""Access tokens: issue, list and revoke tokens, and identify the caller that owns a token."""
