"""The clock and the random source of the machine."""
