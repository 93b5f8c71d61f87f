"""Errors of the storages. Their messages are sentences for an operator."""

from __future__ import annotations


class DatabaseUnusable(Exception):
    """This release cannot use the database. The message contains the reason and advice."""


class DatabaseUnavailable(Exception):
    """The cause of a ServiceUnavailable that a storage raises.

    Waiting does not help in two cases: if the database can only be read (`is_read_only`), and if it
    is damaged (`is_damaged`).
    """

    def __init__(self, message: str, *, is_read_only: bool, is_damaged: bool = False) -> None:
        super().__init__(message)
        self.is_read_only = is_read_only
        self.is_damaged = is_damaged
