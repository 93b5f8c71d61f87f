"""The system clock and the random source of the operating system."""
