"""The repositories, with one module for each capability.

Each repository uses the transaction of its unit of work.

The SQL works in both databases. Fragments that differ come from the `Dialect`.

In a write unit, rows that are read to be changed are locked until the unit ends. An existing row is
locked with FOR UPDATE, and a row that may not exist yet is locked with a lock on a key. On SQLite,
neither has an effect, because a write unit locks the whole database.
"""
