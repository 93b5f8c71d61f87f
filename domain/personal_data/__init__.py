"""The personal data of guests: export and erase it (GDPR, articles 15 and 17), and merge guests."""
