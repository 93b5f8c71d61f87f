"""The repositories, by capability, each over the transaction of its unit of work.

Both databases understand the SQL; where it differs, the `Dialect` has the fragment. In a write
unit, what is read in order to be changed is locked until the unit ends: a row by FOR UPDATE, what
may not exist yet by a lock on a key. On SQLite neither does anything, because a write unit locks
the whole database.
"""
