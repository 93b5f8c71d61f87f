"""Products for sale at centers."""
