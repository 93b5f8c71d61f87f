"""Everything that the guest's browser meets: the link, the hosted page, and the way back."""
