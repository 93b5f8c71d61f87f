"""The audit trail: who did what when, about what."""
