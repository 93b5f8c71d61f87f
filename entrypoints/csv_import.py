"""CSV files of centers, guests and products: read row by row, and stored as they are read."""

from __future__ import annotations

import csv
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import BinaryIO, Final, TypeVar

from domain.centers import Center
from domain.fields import InvalidField
from domain.guests import Guest
from domain.ports import (
    CenterChangedInImport,
    DuplicateInImport,
    ImportRefused,
    UnknownCenterInImport,
    WriteUnit,
)
from domain.products import MAX_AMOUNT_DIGITS, Product

MAX_RECORD_BYTES: Final = 64 * 1024
"""More than any valid row has, so that no longer one needs to be held in memory."""

MAX_SHOWN: Final = 40
"""How many characters of a column's name a message shows."""
MAX_FAULTS_SHOWN: Final = 10

_NOT_UTF8: Final = "expected text in UTF-8"
_BOM: Final = "\ufeff"

Record = TypeVar("Record")


class CsvRefused(Exception):
    """A CSV file is not imported; the text names the line, the column and what is expected.

    `line` counts the lines of the file from 1, as an editor does.
    """

    def __init__(self, problem: str, *, line: int, column: str | None = None) -> None:
        where = f"line {line}" if column is None else f"line {line}, column {column}"
        super().__init__(f"{where}: {problem}")


def import_csv(
    unit: WriteUnit, kind: Kind, file: BinaryIO, *, on_read: Callable[[int], None]
) -> int:
    """Store every row of a file, without committing, and return their number.

    `on_read` is called with the number of bytes of each line that is read. Raises CsvRefused.
    """
    table = _Table(file, kind.columns, on_read)
    try:
        kind.store(unit, table)
    except ImportRefused as refused:
        column, expected = _NOT_STORED[type(refused)]
        line = table.lines.of(refused.index)
        raise CsvRefused(f"expected {expected}", line=line, column=column) from refused
    return table.lines.count


_NOT_STORED: Final[Mapping[type[ImportRefused], tuple[str, str]]] = {
    DuplicateInImport: ("id", "an id that no earlier line has"),
    UnknownCenterInImport: ("center_id", "the id of a center that has been imported"),
    CenterChangedInImport: ("center_id", "the center that this product belongs to already"),
}


class _Table:
    """A CSV file as records. Only the line numbers of its rows are kept in memory."""

    def __init__(
        self, file: BinaryIO, columns: Sequence[str], on_read: Callable[[int], None]
    ) -> None:
        self.lines = _LineNumbers()
        self._file = file
        self._on_read = on_read
        self._bytes_of_row = bytearray()
        self._header: Sequence[str] = ()
        self.delimiter = ","
        self._rows = self._read_rows()
        line, header = next(self._rows, (1, []))
        _check_header(header, columns, line)
        self._header = header

    def records(self, parse: Callable[..., Record]) -> Iterator[Record]:
        """Parse each row, with its columns as keyword arguments. Raises CsvRefused."""
        for line, cells in self._rows:
            if len(cells) != len(self._header):
                raise CsvRefused(
                    f"expected {len(self._header)} cells, found {len(cells)}",
                    line=line,
                    column=self._column(min(len(cells), len(self._header))),
                )
            row = dict(zip(self._header, cells, strict=True))
            try:
                record = parse(**row)
            except InvalidField as error:
                # No field may hold what is not UTF-8.
                is_utf8 = _is_utf8(row[error.field])
                problem = f"expected {error.expected}" if is_utf8 else _NOT_UTF8
                raise CsvRefused(problem, line=line, column=error.field) from error
            self.lines.add(line)
            yield record

    def _read_rows(self) -> Iterator[tuple[int, list[str]]]:
        """Return the line and the cells of each row that is not blank."""
        lines = self._read_lines()
        try:
            first = next(lines, "").removeprefix(_BOM)
        except _RowTooLong:
            raise self._too_long(1) from None
        self.delimiter = _delimiter_of(first)
        reader = csv.reader(chain([first], lines), delimiter=self.delimiter, strict=True)
        while True:
            line = reader.line_num + 1
            try:
                cells = next(reader, None)
            except _RowTooLong:
                raise self._too_long(line) from None
            except csv.Error as error:
                raise CsvRefused(
                    "expected CSV: lines that end in LF or CRLF, quotes that are closed, and "
                    "doubled where they stand for themselves",
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
        # A parser that is not strict reads an incomplete row, whatever it contains.
        begun = _decoded(self._bytes_of_row).replace("\r", " ")
        cells = next(csv.reader([begun], delimiter=self.delimiter))
        return CsvRefused(
            f"expected at most {MAX_RECORD_BYTES} bytes in a row",
            line=line,
            column=self._column(len(cells) - 1),
        )

    def _column(self, index: int) -> str:
        return self._header[index] if index < len(self._header) else str(index + 1)


class _LineNumbers:
    """The line that each row begins on, kept as the rows where the distance changes."""

    def __init__(self) -> None:
        self.count = 0
        self._changes = array("Q")
        self._distances = array("Q")

    def add(self, line: int) -> None:
        """Add the line of the next row."""
        distance = line - self.count
        if not self._distances or distance != self._distances[-1]:
            self._changes.append(self.count)
            self._distances.append(distance)
        self.count += 1

    def of(self, row: int) -> int:
        """Return the line of a row; rows count from 0."""
        return row + self._distances[bisect_right(self._changes, row) - 1]


class _RowTooLong(Exception):
    """The row that is being read is longer than any valid one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What can be imported: its columns, and how the rows of a table are stored."""

    columns: Sequence[str]
    store: Callable[[WriteUnit, _Table], None]


def _store_products(unit: WriteUnit, table: _Table) -> None:
    parse = _parse_product_beside_semicolons if table.delimiter == ";" else Product.parse
    unit.products.put_many(table.records(parse))


KINDS: Final[Mapping[str, Kind]] = {
    "centers": Kind(
        columns=("id", "name"),
        store=lambda unit, table: unit.centers.put_many(table.records(Center.parse)),
    ),
    "guests": Kind(
        columns=("id", "first_name", "last_name", "email"),
        store=lambda unit, table: unit.guests.put_many(table.records(Guest.parse)),
    ),
    "products": Kind(
        columns=("center_id", "id", "code", "name", "description", "amount", "currency"),
        store=_store_products,
    ),
}

# 1.234 and 1,234 are thousands to some and decimals to others.
_AMOUNT_BESIDE_SEMICOLONS = re.compile(r"[0-9]+(?:[.,](?:[0-9]{1,2}|[0-9]{4}))?")


def _parse_product_beside_semicolons(*, amount: str, **cells: str) -> Product:
    """Read a product whose amount may have a decimal comma, as spreadsheets write it."""
    if not _AMOUNT_BESIDE_SEMICOLONS.fullmatch(amount):
        raise InvalidField(
            "amount",
            "an amount such as 120,50 or 120.50, with 1, 2 or 4 decimals (3 may be thousands) and "
            f"at most {MAX_AMOUNT_DIGITS} digits",
        )
    return Product.parse(amount=amount.replace(",", "."), **cells)


def _check_header(header: Sequence[str], columns: Sequence[str], line: int) -> None:
    if not _is_utf8("".join(header)):
        raise CsvRefused(_NOT_UTF8, line=line)
    faults = [
        *(f"{column} is missing" for column in columns if column not in header),
        *(f"{_shown(name)} is not known" for name in header if name not in columns),
        *(f"{name} is repeated" for name in columns if header.count(name) > 1),
    ]
    if faults:
        raise CsvRefused(
            f"expected the columns {','.join(columns)}; " + ", ".join(faults[:MAX_FAULTS_SHOWN]),
            line=line,
        )


def _delimiter_of(header: str) -> str:
    """Return the delimiter of a file, by its first line. Raises CsvRefused for tabs.

    No column has a comma or a semicolon in its name.
    """
    if "," in header:
        return ","
    if ";" in header:
        return ";"
    if "\t" in header:
        raise CsvRefused("expected commas or semicolons between the columns, found tabs", line=1)
    return ","


def _decoded(text: bytes | bytearray) -> str:
    # Bytes that are not UTF-8 become lone surrogates, so that their cell can be named.
    return text.decode(errors="surrogateescape")


def _is_utf8(decoded: str) -> bool:
    return not any("\udc80" <= each <= "\udcff" for each in decoded)


def _shown(text: str) -> str:
    return ascii(text[:MAX_SHOWN]) + ("…" if len(text) > MAX_SHOWN else "")
