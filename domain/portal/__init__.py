"""The guest's own page: open it for a guest, enter it, show the cards, and change them there."""
