"""What the guest's browser meets: the link, the way to the hosted page, and the way back."""
