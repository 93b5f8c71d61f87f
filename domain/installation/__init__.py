"""For which public origin the records work, and copies of them."""
