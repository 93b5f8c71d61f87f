"""What the guest's browser requests: the link, the hosted page, and the way back."""
