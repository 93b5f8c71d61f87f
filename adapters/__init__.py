"""One package for each technology; none of them imports another."""
