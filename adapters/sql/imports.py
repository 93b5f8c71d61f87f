"""Bulk imports, which each database does in its own way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from adapters.sql.rows import Record, Rows


class Imports(Protocol):
    """Storing many records at constant memory."""

    def put_records(self, rows: Rows[Record], records: Iterable[Record]) -> None:
        """Insert records, or update those whose `id` exists. Raises DuplicateInImport."""
        ...

    def put_products(self, rows: Rows[Record], products: Iterable[Record]) -> None:
        """Insert or update products; a new one gets the next position in its center.

        Raises DuplicateInImport, UnknownCenterInImport and CenterChangedInImport.
        """
        ...
