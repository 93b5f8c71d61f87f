"""Import CSV files. The whole file is checked before centers, guests or products are stored."""

from __future__ import annotations

import csv
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any, BinaryIO, Final, Generic, NoReturn, TypeAlias, TypeVar

import msgspec

from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.cards.import_card import CardToImport
from domain.centers.center import Center
from domain.errors import InvalidCenterId, InvalidField, InvalidProductId
from domain.guests.guest import Guest
from domain.guests.put_guest import put_unless_erased
from domain.products.own_center import require_own_center
from domain.products.product import MAX_AMOUNT_DIGITS, Product
from domain.storage import AlreadyStored, Storage, UnitOfWork, WriteUnit

MAX_RECORD_BYTES: Final = 64 * 1024
"""The maximum number of bytes in a row, which limits the memory. No valid row is that long."""

ROWS_PER_UNIT: Final = 500
"""The number of rows in a unit of work. Other writers wait some milliseconds for such a unit."""
PAUSE_SECONDS: Final = 0.005
"""The pause after each unit of work, in which other writers get their turn."""

# This finds the line of the first row that repeats the id of an earlier row.
_REPEATED: Final = """
    SELECT line FROM (SELECT line, lag(id) OVER (ORDER BY id, line) = id AS is_repeated FROM rows)
    WHERE is_repeated ORDER BY line LIMIT 1
"""
# If rows come in the order of their key, a database writes each of its pages only once.
_IN_ORDER: Final = "SELECT line, record FROM rows ORDER BY CASE WHEN ? THEN line ELSE id END"

MAX_SHOWN: Final = 40
"""The maximum number of characters of a column's name that a message shows."""
MAX_FAULTS_SHOWN: Final = 10

_WORD: Final = re.compile("[a-z_]+")
_NOT_UTF8: Final = "expected text in UTF-8: save the file as CSV UTF-8"
_BOM: Final = "\ufeff"

Record = TypeVar("Record")
Row: TypeAlias = tuple[int, Any]  # Any, because the kind of the record is known at run time only
"""The line on which a row begins, and its record."""
Check: TypeAlias = Callable[[UnitOfWork, Any], None]  # Any, for the same reason


class CsvRefused(Exception):
    """A CSV file cannot be imported. The text contains the line, the column and the expected value.

    `line` is the number of the line in the file, counted from 1 as in an editor.
    """

    def __init__(self, problem: str, line: int, column: str | None = None) -> None:
        where = f"line {line}" if column is None else f"line {line}, column {column}"
        super().__init__(f"{where}: {problem}")


class CsvImport:
    """Imports one file. `check` reads the file and checks its rows, and then `store` stores them.

    `skipped` counts rows that were not stored because their guest was erased or merged. `refused`
    counts rows that were not stored for a reason that `store` has reported.

    Between `check` and `store`, the rows are in a temporary database, which SQLite moves to disk if
    it becomes large.
    """

    def __init__(
        self, storage: Storage, what: str, note_act: NoteAct, check: Check | None = None
    ) -> None:
        """Prepare an import of records of the kind `what`, one of KINDS.

        If `check` is given, it replaces the kind's own check of a record.
        """
        self._storage, self._what, self._note_act = storage, what, note_act
        self._kind = KINDS[what] if check is None else replace(KINDS[what], check=check)
        self._count = 0
        self.skipped = self.refused = 0
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=OFF")
        self._db.execute("CREATE TABLE rows (line INTEGER PRIMARY KEY, id TEXT, record BLOB)")

    def check(self, file: BinaryIO, *, on_read: Callable[[int], None]) -> int:
        """Check every row of a file, and return the number of rows. Does not store anything.

        `on_read` is called with the number of bytes of each line. Raises CsvRefused if a row is
        wrong, if two rows have the same id, or if two cards have the same token. May be called only
        once.
        """
        for rows in _in_units(_Table(file, self._kind, on_read)):
            with self._storage.read() as unit:
                for line, record in rows:
                    _check_center(unit, self._kind, record, line)
            self._db.executemany(
                "INSERT INTO rows VALUES (?, ?, ?)",
                ((line, each.id, msgspec.msgpack.encode(each)) for line, each in rows),
            )
            self._count += len(rows)
        for (line,) in self._db.execute(_REPEATED):
            column = self._kind.unique.split()[-1]
            raise CsvRefused(f"expected {self._kind.unique} that no earlier line has", line, column)
        return self._count

    def rows(self) -> Iterator[Row]:
        """Yield the rows that `check` has read."""
        decode = msgspec.msgpack.Decoder(self._kind.record).decode
        for line, record in self._db.execute(_IN_ORDER, (self._kind.keeps_order,)):
            yield line, decode(record)

    def store(self) -> Iterator[int]:
        """Store the rows that `check` has read, in short units of work.

        After the commit of each unit, yield the number of its rows. There is a pause between units,
        so that a running service can write. An import that was interrupted can be completed by
        importing the same file again. The first unit also records the import in the audit trail.
        Raises CsvRefused if a product was created at another center since the check.
        """
        is_first = True
        for rows in _in_units(self.rows()):
            records = [record for _, record in rows]
            store = partial(self._store, records, is_first)
            try:
                self.skipped += self._storage.transact(store)
            except AlreadyStored as error:
                # One of the products was stored at another center after the file was checked.
                raise CsvRefused(
                    "after the file was checked, a product in this line or in a later line was "
                    "created at another center",
                    rows[0][0],
                ) from error
            is_first = False
            yield len(records)
            time.sleep(PAUSE_SECONDS)

    def _store(self, records: Sequence[Any], is_first: bool, unit: WriteUnit) -> int:
        skipped = self._kind.put_many(unit, records) or 0
        if is_first:
            self._note_act(unit, Action.IMPORT_BEGUN, self._what, {"rows": self._count})
        unit.commit()
        return skipped

    def close(self) -> None:
        """Delete the temporary database."""
        self._db.close()


def _in_units(rows: Iterable[Row]) -> Iterator[list[Row]]:
    rest = iter(rows)
    while unit := list(islice(rest, ROWS_PER_UNIT)):
        yield unit


def _check_center(unit: UnitOfWork, kind: Kind[Any], record: Any, line: int) -> None:
    try:
        kind.check(unit, record)
    except InvalidCenterId as refusal:
        expected = "the id of a center that has been imported"
        raise CsvRefused(f"expected {expected}", line, "center_id") from refusal
    except InvalidProductId as refusal:
        expected = "the center that already has this product"
        raise CsvRefused(f"expected {expected}", line, "center_id") from refusal
    except InvalidField as refusal:
        raise CsvRefused(f"expected {refusal.expected}", line, refusal.field) from refusal


class _Table:
    """Reads a CSV file as records, each with the number of the line on which its row begins.

    Raises CsvRefused if the header or a row is wrong.
    """

    def __init__(self, file: BinaryIO, kind: Kind[Any], on_read: Callable[[int], None]) -> None:
        self._file = file
        self._on_read = on_read
        self._bytes_of_row = bytearray()
        self._header: Sequence[str] = ()
        self._delimiter = ","
        self._rows = self._read_rows()
        line, header = next(self._rows, (1, []))
        _check_header(header, kind, line)
        self._header = header
        beside = kind.parse_beside_semicolons if self._delimiter == ";" else None
        self._parse = beside or kind.parse

    def __iter__(self) -> Iterator[Row]:
        for line, cells in self._rows:
            if len(cells) != len(self._header):
                raise CsvRefused(
                    f"expected {len(self._header)} cells, found {len(cells)}",
                    line,
                    self._column(min(len(cells), len(self._header))),
                )
            row = dict(zip(self._header, cells, strict=True))
            try:
                record = self._parse(**row)
            except InvalidField as error:
                # Every field refuses text that is not UTF-8.
                is_utf8 = _is_utf8(row.get(error.field, ""))
                problem = f"expected {error.expected}" if is_utf8 else _NOT_UTF8
                raise CsvRefused(problem, line, error.field) from error
            yield line, record

    def _read_rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of the line and the cells of each row that is not blank."""
        lines = self._read_lines()
        try:
            first = next(lines, "").removeprefix(_BOM)
        except _RowTooLong:
            raise self._too_long(1) from None
        self._delimiter = _delimiter_of(first)
        reader = csv.reader(chain([first], lines), delimiter=self._delimiter, strict=True)
        while True:
            line = reader.line_num + 1
            try:
                cells = next(reader, None)
            except _RowTooLong:
                raise self._too_long(line) from None
            except csv.Error as error:
                raise CsvRefused(
                    "expected CSV: lines that end in LF or CRLF, and quotes that are closed, or doubled "
                    "inside a quoted cell",
                    line=line,
                ) from error
            if cells is None:
                return
            self._bytes_of_row.clear()
            if cells:
                yield line, cells

    def _read_lines(self) -> Iterator[str]:
        row = self._bytes_of_row
        while line := self._file.readline(MAX_RECORD_BYTES - len(row) + 1):
            self._on_read(len(line))
            row += line
            if len(row) > MAX_RECORD_BYTES:
                raise _RowTooLong
            yield _decoded(line)

    def _too_long(self, line: int) -> CsvRefused:
        # The row is incomplete. A parser that is not strict accepts it nevertheless.
        begun = _decoded(self._bytes_of_row).replace("\r", " ")
        cells = next(csv.reader([begun], delimiter=self._delimiter))
        return CsvRefused(
            f"expected at most {MAX_RECORD_BYTES} bytes in a row",
            line=line,
            column=self._column(len(cells) - 1),
        )

    def _column(self, index: int) -> str:
        return self._header[index] if index < len(self._header) else str(index + 1)


class _RowTooLong(Exception):
    """The row that is being read is longer than any valid row."""


# 1.234 and 1,234 mean thousands to some people, and decimals to others.
_AMOUNT_BESIDE_SEMICOLONS = re.compile(r"[0-9]+(?:[.,](?:[0-9]{1,2}|[0-9]{4}))?")


def _parse_product_beside_semicolons(*, amount: str, **cells: str) -> Product:
    """Parse a product in a file with semicolons, in which the amount may have a decimal comma.

    Some spreadsheets write such files.
    """
    if not _AMOUNT_BESIDE_SEMICOLONS.fullmatch(amount):
        raise InvalidField(
            "amount",
            "an amount such as 120,50 or 120.50, with 1, 2 or 4 decimals (3 could mean thousands) "
            f"and at most {MAX_AMOUNT_DIGITS} digits",
        )
    return Product.parse(amount=amount.replace(",", "."), **cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[Record]):
    """A kind of record that can be imported.

    - `columns`: the columns that a file must have.
    - `optional`: the columns that a file may have.
    - `parse`: returns a record for the cells of a row.
    - `parse_beside_semicolons`: replaces `parse` for files whose delimiter is a semicolon. If it is
      None, `parse` is used for these files too.
    - `check`: raises an error if a record does not fit the stored records.
    - `put_many`: stores records, and returns the number of skipped records, or None if it never
      skips records.
    - `keeps_order`: whether records are stored in the order of the file instead of by id.
    - `unique`: the value that must differ between all rows, in words, such as "an id".
    """

    record: type[Record]
    columns: Sequence[str]
    optional: Sequence[str] = ()
    parse: Callable[..., Record]
    put_many: Callable[[WriteUnit, Sequence[Record]], int | None]
    parse_beside_semicolons: Callable[..., Record] | None = None
    check: Callable[[UnitOfWork, Record], None] = lambda _, __: None
    keeps_order: bool = False
    unique: str = "an id"


def _one_by_one(*_: object) -> NoReturn:
    raise NotImplementedError("each card is read at its PSP first")


KINDS: Final[Mapping[str, Kind[Any]]] = {
    "centers": Kind(
        record=Center,
        columns=("id", "name"),
        parse=Center.parse,
        put_many=lambda unit, centers: unit.centers.put_many(centers),
    ),
    "guests": Kind(
        record=Guest,
        columns=("id", "first_name", "last_name", "email"),
        optional=("language",),
        parse=Guest.parse,
        put_many=put_unless_erased,
    ),
    "products": Kind(
        record=Product,
        columns=("center_id", "id", "code", "name", "description", "amount", "currency"),
        parse=Product.parse,
        parse_beside_semicolons=_parse_product_beside_semicolons,
        put_many=lambda unit, products: unit.products.put_many(products),
        check=require_own_center,
        keeps_order=True,
    ),
    "cards": Kind(
        record=CardToImport,
        columns=(
            *("guest_id", "center_id", "provider", "merchant_account", "guest_reference", "token"),
            *("consented_at", "consent_version"),
        ),
        optional=("consent_language", "consent_text"),
        parse=CardToImport.parse,
        put_many=_one_by_one,
        keeps_order=True,
        unique="a token",
    ),
}


def _check_header(header: Sequence[str], kind: Kind[Any], line: int) -> None:
    if not _is_utf8("".join(header)):
        raise CsvRefused(_NOT_UTF8, line=line)
    if header[:1] and header[0].lower().startswith("sep="):
        raise CsvRefused("remove this line, which only spreadsheets understand", line=line)
    columns = (*kind.columns, *kind.optional)
    # If the header is missing, the first line is a row. Its names, addresses or tokens must not be
    # shown.
    is_header = any(word in columns for name in header for word in _WORD.findall(name.lower()))
    faults = [
        *(f"{column} is missing" for column in kind.columns if column not in header),
        *(f"{_shown(name)} is unknown" for name in header if is_header and name not in columns),
        *(f"{name} is repeated" for name in columns if header.count(name) > 1),
    ]
    if faults:
        optional = "".join(f"[,{column}]" for column in kind.optional)
        raise CsvRefused(
            f"expected the columns {','.join(kind.columns)}{optional}; "
            + ", ".join(faults[:MAX_FAULTS_SHOWN]),
            line=line,
        )


def _delimiter_of(header: str) -> str:
    """Find the delimiter of a file in its first line. Raises CsvRefused for tabs.

    The first line contains the names of the columns. These do not contain commas or semicolons.
    """
    if "," in header:
        return ","
    if ";" in header:
        return ";"
    if "\t" in header:
        raise CsvRefused("expected commas or semicolons between the columns, found tabs", line=1)
    return ","


def _decoded(text: bytes | bytearray) -> str:
    # Bytes that are not UTF-8 become lone surrogates, so that the message can name their cell.
    return text.decode(errors="surrogateescape")


def _is_utf8(decoded: str) -> bool:
    return not any("\udc80" <= each <= "\udcff" for each in decoded)


def _shown(text: str) -> str:
    return ascii(text[:MAX_SHOWN]) + ("…" if len(text) > MAX_SHOWN else "")
