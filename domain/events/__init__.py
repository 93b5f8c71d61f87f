"""Events: the list of events, the endpoints that receive events, and delivery with retries."""
