"""Programs that answer add-card as the service does, to be measured beside it."""
