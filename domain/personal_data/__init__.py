"""A guest's personal data: exporting and erasing it (GDPR, articles 15 and 17)."""
