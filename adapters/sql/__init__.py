"""The shared parts of the storages: the repositories, whose SQL both databases understand."""
