"""Card-addition sessions: start, read and list sessions, and apply the limits on them."""
