"""What the author of a PSP adapter reads: the port, the hosted page, the card."""
