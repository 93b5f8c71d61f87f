"""Programs that implement add-card like the service, to be measured beside it."""
