"""The parts that both storages share, such as the repositories, whose SQL works in both databases."""
