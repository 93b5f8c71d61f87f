"""What the storages share: the SQL of the repositories, which both databases understand."""
