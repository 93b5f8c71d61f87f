"""What is on file about a guest: exporting it, and erasing it (GDPR, articles 15 and 17)."""
