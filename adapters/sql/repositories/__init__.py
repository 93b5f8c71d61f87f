"""The repositories, by capability, each using the transaction of its unit of work.

Both databases understand the SQL; where they differ, the `Dialect` has the fragment. In a write
unit, rows that are read to be changed are locked until the unit ends: an existing row by FOR
UPDATE, a row that may not exist yet by a lock on a key. On SQLite neither has an effect, because a
write unit locks the whole database.
"""
