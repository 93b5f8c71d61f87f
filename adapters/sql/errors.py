"""Errors of the storages, whose messages are sentences for an operator."""

from __future__ import annotations


class DatabaseUnusable(Exception):
    """This release cannot use the database. The message says why, and what to do."""


class DatabaseUnavailable(Exception):
    """The cause of a ServiceUnavailable.

    Waiting does not help in two cases: `is_read_only` means that the database can only be read, and
    `is_damaged` that it is damaged.
    """

    def __init__(self, message: str, *, is_read_only: bool, is_damaged: bool = False) -> None:
        super().__init__(message)
        self.is_read_only = is_read_only
        self.is_damaged = is_damaged
