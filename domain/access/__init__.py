"""Access tokens: issue, list and revoke them, and find the caller behind one."""
