"""The guest's own page, where a guest sees, changes and replaces the cards on file at a center."""
