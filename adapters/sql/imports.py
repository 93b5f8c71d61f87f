"""Storing many records at once, which each database does in its own way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from adapters.sql.rows import Record, Rows


class Imports(Protocol):
    """How a database stores many records at once, at constant memory."""

    def put_records(self, rows: Rows[Record], records: Iterable[Record]) -> None:
        """Store records by their `id`, updating those that are there. Raises DuplicateInImport."""
        ...

    def put_products(self, rows: Rows[Record], products: Iterable[Record]) -> None:
        """Store products; a new one gets the next position in its center, the others keep theirs.

        Raises DuplicateInImport, UnknownCenterInImport and CenterChangedInImport.
        """
        ...
