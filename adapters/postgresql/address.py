"""The addresses of databases. They may contain passwords, which must not be shown."""

from __future__ import annotations

import re
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from adapters.sql.errors import DatabaseUnusable

_UNAMBIGUOUS: Final = re.compile(r"[a-z]+://(?:[^@/]*@)?[^@]*")
"""An address that libpq parses as intended. In any other address, libpq may read part of the
password as the host, and show it in errors.
"""

_SHOWN: Final = ("service", "host", "hostaddr", "port", "dbname", "user")
"""The parts that may be shown. Other parts, such as `options`, may contain passwords."""


class AddressInvalid(DatabaseUnusable):
    """The address of the database cannot be parsed."""

    def __init__(self) -> None:
        # The client's error may contain part of the password.
        super().__init__(
            "the address of the PostgreSQL database cannot be parsed; write special characters in a "
            "password in percent-encoding, such as %40 for @"
        )


def require_readable(url: str) -> None:
    """Raise AddressInvalid if an address cannot be parsed, or if libpq would misinterpret it."""
    try:
        conninfo_to_dict(url)
    except (psycopg.ProgrammingError, UnicodeEncodeError):
        raise AddressInvalid from None
    if not _UNAMBIGUOUS.fullmatch(url):
        raise AddressInvalid


def name_of(url: str) -> str:
    """Return the host, port, name and user of a database, without passwords, for the log.

    Parts that the address lacks come from libpq's environment variables, as they do when
    connecting. Raises AddressInvalid.
    """
    require_readable(url)
    given = conninfo_to_dict(url)
    if "service" not in given:
        for option in Conninfo.get_defaults():
            if option.val:
                given.setdefault(option.keyword.decode(), option.val.decode())
    return make_conninfo(**{each: str(given[each]) for each in _SHOWN if each in given})
