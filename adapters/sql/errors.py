"""Errors of the storages, whose messages are sentences for an operator."""

from __future__ import annotations


class DatabaseUnusable(Exception):
    """A database that this release cannot use; the message says why, and what to do."""


class DatabaseUnavailable(Exception):
    """The cause of a ServiceUnavailable.

    `is_read_only` means that the database can be read, but not written, now or later; `is_damaged`
    that waiting does not help either.
    """

    def __init__(self, message: str, *, is_read_only: bool, is_damaged: bool = False) -> None:
        super().__init__(message)
        self.is_read_only = is_read_only
        self.is_damaged = is_damaged
