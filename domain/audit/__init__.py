"""The audit trail: who did what, when, and to what."""
