"""CSV files of centers, guests and products: read row by row, and held against what is expected."""

from __future__ import annotations

import csv
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from typing import BinaryIO, Final, TypeAlias

from domain.billing import MAX_LENGTHS, is_email_address
from domain.card_numbers import holds_card_number
from domain.centers import Center
from domain.guests import Guest
from domain.identifiers import CenterId, GuestId, ProductId, plain_uuid
from domain.ports import (
    CenterChangedInImport,
    DuplicateInImport,
    ImportRefused,
    UnknownCenterInImport,
    WriteUnit,
)
from domain.products import Product
from domain.text import is_clean

MAX_NAME_LENGTH: Final = 200
MAX_CODE_LENGTH: Final = 100
MAX_DESCRIPTION_LENGTH: Final = 5_000
MAX_AMOUNT_DIGITS: Final = 12
MAX_RECORD_BYTES: Final = 64 * 1024
"""More than any record that is valid has, so that nothing longer needs to be held in memory."""

MAX_SHOWN: Final = 40
"""How many characters of a file's text a message shows."""
MAX_FAULTS_SHOWN: Final = 10

_NOT_UTF8: Final = "expected text in UTF-8"
_AMOUNT = re.compile(r"[0-9]+(?:\.[0-9]{1,4})?")
# 1.234 and 1,234 are thousands to some and decimals to others, so neither is taken for either.
_AMOUNT_BESIDE_SEMICOLONS = re.compile(r"[0-9]+(?:[.,](?:[0-9]{1,2}|[0-9]{4}))?")
_CURRENCY = re.compile(r"[A-Z]{3}")


class CsvRefused(Exception):
    """A CSV file that is not imported; the text names the line, the column and what is expected.

    `line` counts the lines of the file from 1, as an editor does.
    """

    def __init__(self, problem: str, *, line: int, column: str | None = None) -> None:
        where = f"line {line}" if column is None else f"line {line}, column {column}"
        super().__init__(f"{where}: {problem}")


@dataclass(frozen=True, slots=True)
class Form:
    """What a cell has to look like, in words and as a test."""

    expected: str
    fits: Callable[[str], bool]


def _text(at_most: int) -> Form:
    return Form(
        f"1 to {at_most} characters, not blank, without control characters and line breaks",
        lambda text: len(text) <= at_most and bool(text.strip()) and is_clean(text),
    )


def _of_a_guest(form: Form) -> Form:
    # A reception may have kept a card there.
    return Form(
        f"{form.expected}, and no card number",
        lambda text: form.fits(text) and not holds_card_number(text),
    )


def _is_description(text: str) -> bool:
    one_line = text.replace("\r\n", " ").replace("\n", " ")
    return len(text) <= MAX_DESCRIPTION_LENGTH and is_clean(one_line)


def _is_email_or_nothing(text: str) -> bool:
    return not text or (len(text) <= MAX_LENGTHS["email"] and is_email_address(text))


def _is_amount(text: str) -> bool:
    return _AMOUNT.fullmatch(text) is not None and len(text.replace(".", "")) <= MAX_AMOUNT_DIGITS


def _is_amount_beside_semicolons(text: str) -> bool:
    return _AMOUNT_BESIDE_SEMICOLONS.fullmatch(text) is not None and _is_amount(_with_point(text))


def _with_point(amount: str) -> str:
    return amount.replace(",", ".")


_UUID = Form(
    "a UUID such as 7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3", lambda text: plain_uuid(text) is not None
)
_NAME = _text(MAX_NAME_LENGTH)

Cells: TypeAlias = Mapping[str, str]
"""What a row holds, by column; each cell has the form of its column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What can be imported: its columns, and how rows of them are stored."""

    columns: Mapping[str, Form]
    put_many: Callable[[WriteUnit, Iterator[Cells]], None]


def _put_centers(unit: WriteUnit, rows: Iterator[Cells]) -> None:
    unit.centers.put_many(Center(id=CenterId(row["id"].lower()), name=row["name"]) for row in rows)


def _put_guests(unit: WriteUnit, rows: Iterator[Cells]) -> None:
    unit.guests.put_many(
        Guest(
            id=GuestId(row["id"].lower()),
            first_name=row["first_name"],
            last_name=row["last_name"],
            email=row["email"] or None,
        )
        for row in rows
    )


def _put_products(unit: WriteUnit, rows: Iterator[Cells]) -> None:
    unit.products.put_many(
        Product(
            id=ProductId(row["id"].lower()),
            center_id=CenterId(row["center_id"].lower()),
            code=row["code"],
            name=row["name"],
            description=row["description"],
            amount=Decimal(_with_point(row["amount"])),
            currency=row["currency"],
        )
        for row in rows
    )


KINDS: Final[Mapping[str, Kind]] = {
    "centers": Kind(columns={"id": _UUID, "name": _NAME}, put_many=_put_centers),
    "guests": Kind(
        columns={
            "id": _UUID,
            "first_name": _of_a_guest(_NAME),
            "last_name": _of_a_guest(_NAME),
            "email": _of_a_guest(Form("an e-mail address, or nothing", _is_email_or_nothing)),
        },
        put_many=_put_guests,
    ),
    "products": Kind(
        columns={
            "center_id": _UUID,
            "id": _UUID,
            "code": _text(MAX_CODE_LENGTH),
            "name": _NAME,
            "description": Form(
                f"at most {MAX_DESCRIPTION_LENGTH} characters, without control characters",
                _is_description,
            ),
            "amount": Form(
                f"an amount such as 120.50, with at most 4 decimals and {MAX_AMOUNT_DIGITS} digits",
                _is_amount,
            ),
            "currency": Form(
                "a currency of three capital letters, such as EUR",
                lambda text: _CURRENCY.fullmatch(text) is not None,
            ),
        },
        put_many=_put_products,
    ),
}

_BESIDE_SEMICOLONS: Final[Mapping[str, Form]] = {
    "amount": Form(
        "an amount such as 120,50 or 120.50, with 1, 2 or 4 decimals (3 may be thousands) and at "
        f"most {MAX_AMOUNT_DIGITS} digits",
        _is_amount_beside_semicolons,
    ),
}
"""What is expected in a file with semicolons, where spreadsheets write decimal commas."""

_NOT_STORED: Final[Mapping[type[ImportRefused], tuple[str, str]]] = {
    DuplicateInImport: ("id", "an id that no earlier line has"),
    UnknownCenterInImport: ("center_id", "the id of a center that has been imported"),
    CenterChangedInImport: ("center_id", "the center that this product belongs to already"),
}


def import_csv(
    unit: WriteUnit, kind: Kind, file: BinaryIO, *, on_read: Callable[[int], None]
) -> int:
    """Store every row of a file, without committing, and give their number.

    `on_read` is told the number of bytes read, as they are read. Raises CsvRefused.
    """
    table = _Table(file, kind.columns, on_read)
    try:
        kind.put_many(unit, table.rows())
    except ImportRefused as refused:
        column, expected = _NOT_STORED[type(refused)]
        line = table.lines.of(refused.index)
        raise CsvRefused(f"expected {expected}", line=line, column=column) from refused
    return table.lines.count


class _Table:
    """A file as rows. Nothing of it is kept but which line each row begins on."""

    def __init__(
        self, file: BinaryIO, columns: Mapping[str, Form], on_read: Callable[[int], None]
    ) -> None:
        self.lines = _LineNumbers()
        self._file = file
        self._columns = columns
        self._on_read = on_read
        self._delimiter = ","
        self._header: Sequence[str] = ()
        self._record = bytearray()

    def rows(self) -> Iterator[Cells]:
        """Give the rows, each with the form that is expected."""
        records = self._records()
        line, header = next(records, (1, []))
        self._check_header(line, header)
        self._header = header
        columns = (
            {**self._columns, **_BESIDE_SEMICOLONS} if self._delimiter == ";" else self._columns
        )
        forms = [(column, columns[column]) for column in header]
        for line, cells in records:
            if len(cells) != len(header):
                raise CsvRefused(
                    f"expected {len(header)} cells, found {len(cells)}",
                    line=line,
                    column=self._column(min(len(cells), len(header))),
                )
            for (column, form), cell in zip(forms, cells, strict=True):
                if not form.fits(cell):
                    problem = f"expected {form.expected}" if _is_utf8(cell) else _NOT_UTF8
                    raise CsvRefused(problem, line=line, column=column)
            self.lines.add(line)
            yield dict(zip(header, cells, strict=True))

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        lines = self._lines()
        try:
            first = next(lines, "")
        except _RecordTooLong:
            raise self._too_long(1) from None
        self._delimiter = _delimiter_of(first)
        reader = csv.reader(chain([first], lines), delimiter=self._delimiter, strict=True)
        while True:
            line = reader.line_num + 1
            try:
                cells = next(reader, None)
            except _RecordTooLong:
                raise self._too_long(line) from None
            except csv.Error as error:
                raise CsvRefused(
                    "expected CSV: lines that end in LF or CRLF, quotes that are closed, and "
                    "doubled where they stand for themselves",
                    line=line,
                ) from error
            if cells is None:
                return
            self._record.clear()
            if cells:
                yield line, cells

    def _too_long(self, line: int) -> CsvRefused:
        return CsvRefused(
            f"expected at most {MAX_RECORD_BYTES} bytes in a row",
            line=line,
            column=self._column(self._cells_begun() - 1),
        )

    def _lines(self) -> Iterator[str]:
        mark = "\ufeff"
        while line := self._file.readline(MAX_RECORD_BYTES - len(self._record) + 1):
            self._on_read(len(line))
            self._record += line
            if len(self._record) > MAX_RECORD_BYTES:
                raise _RecordTooLong
            yield _decoded(line).removeprefix(mark)
            mark = ""

    def _cells_begun(self) -> int:
        # A parser that is not strict reads a record without its end, whatever is in it.
        record = _decoded(self._record).replace("\r", " ")
        return len(next(csv.reader([record], delimiter=self._delimiter)))

    def _column(self, index: int) -> str:
        return self._header[index] if index < len(self._header) else str(index + 1)

    def _check_header(self, line: int, header: Sequence[str]) -> None:
        if not _is_utf8("".join(header)):
            raise CsvRefused(_NOT_UTF8, line=line)
        faults = [
            *(f"{column} is missing" for column in self._columns if column not in header),
            *(f"{_shown(name)} is not known" for name in header if name not in self._columns),
            *(f"{name} is repeated" for name in self._columns if header.count(name) > 1),
        ]
        if faults:
            raise CsvRefused(
                f"expected the columns {','.join(self._columns)}; "
                + ", ".join(faults[:MAX_FAULTS_SHOWN]),
                line=line,
            )


class _LineNumbers:
    """Which line each row begins on; kept is only where the distance between the two changes."""

    def __init__(self) -> None:
        self.count = 0
        self._changes = array("Q")
        self._distances = array("Q")

    def add(self, line: int) -> None:
        """Note the line of the next row."""
        distance = line - self.count
        if not self._distances or distance != self._distances[-1]:
            self._changes.append(self.count)
            self._distances.append(distance)
        self.count += 1

    def of(self, row: int) -> int:
        """Give the line of a row; rows count from 0."""
        return row + self._distances[bisect_right(self._changes, row) - 1]


class _RecordTooLong(Exception):
    """The record that is being read is longer than any that is valid."""


def _delimiter_of(header: str) -> str:
    """Give what stands between the cells of a file, by its first line.

    No column has a comma or a semicolon in its name. Raises CsvRefused for tabs.
    """
    if "," in header:
        return ","
    if ";" in header:
        return ";"
    if "\t" in header:
        raise CsvRefused("expected commas or semicolons between the columns, found tabs", line=1)
    return ","


def _decoded(text: bytes | bytearray) -> str:
    # What is not UTF-8 becomes lone surrogates. No cell may hold them, so the cell can be named.
    return text.decode(errors="surrogateescape")


def _is_utf8(decoded: str) -> bool:
    return decoded.isprintable() or not any("\udc80" <= each <= "\udcff" for each in decoded)


def _shown(text: str) -> str:
    return ascii(text[:MAX_SHOWN]) + ("…" if len(text) > MAX_SHOWN else "")
