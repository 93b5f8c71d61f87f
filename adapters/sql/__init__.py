"""What the storages share: the repositories, whose SQL both databases understand."""
