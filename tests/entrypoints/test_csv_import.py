"""CSV imports. Every fault is reported with line and column, and then nothing is stored."""

from __future__ import annotations

import os
import resource
import signal
import sys
import tracemalloc
from contextlib import closing, suppress
from decimal import Decimal
from io import BytesIO, FileIO, TextIOWrapper
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.psp_suite.samples import GUEST_ID, NOW, OTHER_GUEST_ID, a_uuid
from adapters.sqlite.connection import Transaction
from adapters.system import RandomIds, SystemClock
from domain.audit.entry import Action, Actor
from domain.audit.note_act import NoteAct
from domain.centers.center import Center
from domain.identifiers import GuestId
from domain.pagination import PageRequest
from domain.personal_data.erasure import Erasure
from domain.products.product import Product
from entrypoints.cli.main import main
from entrypoints.csv_import import KINDS, MAX_RECORD_BYTES, ROWS_PER_UNIT, CsvImport, CsvRefused
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center, a_guest, a_product
from tests.databases import audit_trail, committed, guest_on_file
from tests.entrypoints.conftest import CommandLine
from tests.fuzzing import TIMES

CENTERS = "id,name\n"
GUESTS = "id,first_name,last_name,email\n"
PRODUCTS = "center_id,id,code,name,description,amount,currency\n"
GUEST = f"{GUEST_ID},Zo\u00eb,Null,zoe@guests.example\n"
UUID_EXPECTED = "expected a UUID such as 7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3"

NOTE_ACT = NoteAct(operator=Actor("user:deploy"), clock=SystemClock(), ids=RandomIds())


@pytest.fixture
def with_centers(cardonfile: CommandLine) -> CommandLine:
    """Return the command line on a database with two centers."""
    with committed(cardonfile.storage) as unit:
        unit.centers.put_many([a_center(), a_center(id=OTHER_CENTER_ID)])
    return cardonfile


def ignore(_: int) -> None:
    """Ignore the progress of reading."""


def imports(cardonfile: CommandLine, what: str, content: str) -> int:
    """Import a file. Return the number of imported rows."""
    with closing(CsvImport(cardonfile.storage, what, NOTE_ACT)) as rows:
        count = rows.check(BytesIO(content.encode()), on_read=ignore)
        assert sum(rows.store()) == count
        return count


def a_file(cardonfile: CommandLine, content: str) -> str:
    file = cardonfile.folder / "imported.csv"
    file.write_text(content)
    return str(file)


def refusal(cardonfile: CommandLine, what: str, content: str | bytes) -> str:
    """Import a file that must be refused. Return the refusal."""
    file = BytesIO(content if isinstance(content, bytes) else content.encode())
    with (
        closing(CsvImport(cardonfile.storage, what, NOTE_ACT)) as rows,
        pytest.raises(CsvRefused) as refused,
    ):
        rows.check(file, on_read=ignore)
    return str(refused.value)


def guest_rows(number: int) -> str:
    """Return the content of a file with this number of guests."""
    return GUESTS + "".join(f"{a_uuid(each)},A,B,\n" for each in range(number))


def center(cardonfile: CommandLine) -> Center | None:
    with cardonfile.storage.read() as unit:
        return unit.centers.get(CENTER_ID)


def products(cardonfile: CommandLine) -> tuple[Product, ...]:
    with cardonfile.storage.read() as unit:
        return unit.products.page(CENTER_ID, PageRequest()).items


def product_row(**changes: str) -> str:
    cells = {
        "center_id": CENTER_ID,
        "id": a_product(1).id,
        "code": "P-1",
        "name": "Massage 1",
        "description": "An hour of rest",
        "amount": "120.50",
        "currency": "EUR",
    }
    return ",".join((cells | changes).values()) + "\n"


class TestCommand:
    @pytest.mark.parametrize("rows", [0, 1, 2])
    def test_an_import_prints_the_number_of_imported_rows(
        self, cardonfile: CommandLine, rows: int
    ) -> None:
        assert cardonfile.succeeds("import", "guests", a_file(cardonfile, guest_rows(rows))) == (
            f"imported {rows} guest{'s' * (rows != 1)}\n"
        )
        noted = [each.details for each in audit_trail(cardonfile.storage, about="guests")]
        assert noted == [{"rows": rows}] * (rows > 0)

    def test_an_import_skips_an_erased_guest(self, cardonfile: CommandLine) -> None:
        with committed(cardonfile.storage) as unit:
            unit.erasures.add(Erasure(guest_id=GUEST_ID, erased_at=NOW, due_at=NOW))
        file = a_file(cardonfile, f"{GUESTS}{GUEST_ID},A,B,\n{OTHER_GUEST_ID},C,D,\n")

        result = cardonfile.run("import", "guests", file)

        assert (result.exit_code, result.stdout) == (0, "imported 1 guest\n")
        assert result.stderr == "skipped, because the guests were erased or merged: 1\n"
        assert guest_on_file(cardonfile.storage, GUEST_ID) is None
        assert guest_on_file(cardonfile.storage, OTHER_GUEST_ID) is not None

    # Shows S22.
    def test_importing_a_file_with_an_invalid_row_stores_no_rows(
        self, cardonfile: CommandLine
    ) -> None:
        file = a_file(cardonfile, f"{GUESTS}{GUEST}harbor,Bo,Li,\n")

        assert cardonfile.refuses("import", "guests", file) == (
            f"{file}, line 3, column id: {UUID_EXPECTED}"
        )
        assert guest_on_file(cardonfile.storage, GUEST_ID) is None

    @pytest.mark.parametrize(
        ("name", "complaint"), [("no.csv", "No such file or directory"), ("", "Is a directory")]
    )
    def test_importing_a_path_that_is_not_a_file_is_refused(
        self, cardonfile: CommandLine, name: str, complaint: str
    ) -> None:
        file = str(cardonfile.folder / name)

        assert cardonfile.refuses("import", "guests", file) == f"{file}: {complaint}"

    def test_an_import_shows_its_progress_on_a_terminal(
        self, cardonfile: CommandLine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bar, file = b"", a_file(cardonfile, GUESTS + GUEST)
        for name, value in cardonfile.environment.items():
            monkeypatch.setenv(name, value)
        terminal, end_of_program = os.openpty()
        with FileIO(terminal) as shown:
            with (
                TextIOWrapper(FileIO(end_of_program, "w")) as stderr,
                monkeypatch.context() as there,
            ):
                there.setattr(sys, "stderr", stderr)
                main(["import", "guests", file], standalone_mode=False)
            # Linux reports the end of a terminal as an error.
            with suppress(OSError):
                while part := shown.read(10_000):
                    bar += part

        assert b"importing guests" in bar
        assert b"100%" in bar

    def test_a_file_can_be_imported_through_a_pipe(self, cardonfile: CommandLine) -> None:
        end, start = os.pipe()
        with FileIO(end), FileIO(start, "w") as writing:
            writing.write((GUESTS + GUEST).encode())
            writing.close()

            assert cardonfile.succeeds("import", "guests", f"/dev/fd/{end}") == (
                "imported 1 guest\n"
            )


class TestWithSemicolons:
    # The file that Excel writes with German settings (Save as, CSV UTF-8).
    EXCEL: Final = (
        "\ufeffcenter_id;id;code;name;description;amount;currency\r\n"
        f"{CENTER_ID};{a_uuid(1)};OIL-50;Massageöl, 50 ml;"
        '"Mandel; ""Lavendel""\nund Ruhe";49,90;EUR\r\n'
        f"{CENTER_ID};{a_uuid(2)};P-2;Massage;;120;EUR\r\n"
        f"{CENTER_ID};{a_uuid(3)};P-3;Sauna;;1234.5;EUR\r\n"
    )

    def test_a_spreadsheet_file_with_semicolons_is_read(self, with_centers: CommandLine) -> None:
        assert imports(with_centers, "products", self.EXCEL) == 3

        first, second, third = products(with_centers)
        assert (first.name, first.description) == (
            "Massageöl, 50 ml",
            'Mandel; "Lavendel"\nund Ruhe',
        )
        assert [each.amount for each in (first, second, third)] == [
            Decimal("49.90"),
            Decimal(120),
            Decimal("1234.5"),
        ]

    @pytest.mark.parametrize("amount", ["1.234", "1,234", "1.234,50", "49,", "€ 5,00"])
    def test_importing_an_ambiguous_amount_is_refused(
        self, with_centers: CommandLine, amount: str
    ) -> None:
        complaint = refusal(with_centers, "products", self.EXCEL.replace(";49,90;", f";{amount};"))

        assert complaint == (
            "line 2, column amount: expected an amount such as 120,50 or 120.50, with 1, 2 or 4 "
            "decimals (3 could mean thousands) and at most 12 digits"
        )


class TestReadingFiles:
    @pytest.mark.parametrize(
        "content",
        [
            f"{CENTERS}{CENTER_ID},Harbor Spa\n",
            f"\ufeff{CENTERS}{CENTER_ID},Harbor Spa",
            f"name,id\r\nHarbor Spa,{CENTER_ID}\r\n",
            f'"name","id"\n"Harbor Spa","{CENTER_ID}"\n\n\n',
            f"\n{CENTERS}\r\n\n{CENTER_ID},Harbor Spa\n",
        ],
        ids=["plain", "byte order mark", "other order and CRLF", "quotes", "blank lines"],
    )
    def test_csv_files_of_common_spreadsheets_are_read(
        self, cardonfile: CommandLine, content: str
    ) -> None:
        assert imports(cardonfile, "centers", content) == 1
        assert center(cardonfile) == a_center()

    def test_an_imported_product_has_exactly_the_values_in_its_row(
        self, with_centers: CommandLine
    ) -> None:
        row = product_row(name='"Oil, ""warm"""', description='"One.\r\n\nTwo."')

        imports(with_centers, "products", PRODUCTS + row)

        assert products(with_centers) == (
            a_product(1, name='Oil, "warm"', description="One.\r\n\nTwo."),
        )

    def test_importing_a_guest_without_a_language_keeps_the_stored_language(
        self, cardonfile: CommandLine
    ) -> None:
        with_language = "id,language,first_name,last_name,email\n"
        for file in (
            f"{with_language}{GUEST_ID},de-at,Zoë,Null,zoe@guests.example\n",
            f"{with_language}{GUEST_ID},,Zoë,Null,zoe@guests.example\n",
            GUESTS + GUEST,
        ):
            imports(cardonfile, "guests", file)
            assert guest_on_file(cardonfile.storage, GUEST_ID) == a_guest(language="de-AT")

    def test_the_longest_valid_row_can_be_imported(self, with_centers: CommandLine) -> None:
        row = product_row(
            name='"' + '""' * 200 + '"',
            code="\U0001f600" * 100,
            description="\U0001f600" * 5000,
            amount="99999999.9999",
        )
        assert len(row.encode()) < MAX_RECORD_BYTES

        imports(with_centers, "products", PRODUCTS + row)

        assert products(with_centers)[0].description == "\U0001f600" * 5000


OF_CENTERS: Final = "line 1: expected the columns id,name; "
OF_GUESTS: Final = "line 1: expected the columns id,first_name,last_name,email[,language]; "
FAULTS: Final[dict[str, tuple[str, str | bytes, str]]] = {
    "no header": ("centers", "", f"{OF_CENTERS}id is missing, name is missing"),
    "a column twice": ("centers", "id,name,id\n", f"{OF_CENTERS}id is repeated"),
    "mixed separators": (
        *("centers", "id;name,price\n"),
        f"{OF_CENTERS}id is missing, name is missing, 'id;name' is unknown, 'price' is unknown",
    ),
    "a control character": ("centers", "id,name,\x1b[2J\n", f"{OF_CENTERS}'\\x1b[2J' is unknown"),
    "a long name": (
        *("centers", f"id,name,{'x' * 41}\n"),
        f"{OF_CENTERS}'{'x' * 40}'\u2026 is unknown",
    ),
    # The message does not show the row.
    "a row in place of the header": (
        *("guests", f"{a_uuid(1)},Ann,Lee,ann@mail.example\n"),
        f"{OF_GUESTS}id is missing, first_name is missing, last_name is missing, email is missing",
    ),
    "tabs": (
        *("centers", f"id\tname\n{CENTER_ID}\tHarbor Spa\n"),
        "line 1: expected commas or semicolons between the columns, found tabs",
    ),
    "a line for spreadsheets": (
        *("centers", f"sep=;\nid;name\n{CENTER_ID};Harbor Spa\n"),
        "line 1: remove this line, which only spreadsheets understand",
    ),
    "two bytes a character": (
        *("centers", f"{CENTERS}{CENTER_ID},Harbor Spa\n".encode("utf-16")),
        "line 1: expected text in UTF-8: save the file as CSV UTF-8",
    ),
    **{
        f"no {column}": (
            *("products", PRODUCTS + product_row() + product_row(**{"id": a_uuid(2), column: ""})),
            f"line 3, column {column}: expected ",
        )
        for column in ("center_id", "id", "code", "name", "amount", "currency")
    },
    "a decimal comma between commas": (
        *("products", PRODUCTS + product_row(amount='"49,90"')),
        "line 2, column amount: expected an amount such as 120.50",
    ),
    "another form of language": (
        *("guests", f"id,language,first_name,last_name,email\n{GUEST_ID},de_AT,Zo,Li,\n"),
        "line 2, column language: expected a language tag such as de",
    ),
    "a card number as last_name": (
        *("guests", f"{GUESTS}{GUEST}{OTHER_GUEST_ID},Bo,Li 4242 4242 4242 4242,\n"),
        "line 3, column last_name: expected text without a card number",
    ),
    "a fault below several lines": (
        "products",
        PRODUCTS + product_row(description='"1\n2\r\n3"') + "\n" + product_row(amount="free"),
        "line 6, column amount: ",
    ),
    **{
        f"{name} cells": ("guests", f"{GUESTS}{row}\n", f"line 2, column {fault}")
        for name, row, fault in (
            ("no", "x", "first_name: expected 4 cells, found 1"),
            ("many", f"{GUEST_ID},Zo,Li,{',' * 9000}", "5: expected 4 cells, found 9004"),
        )
    },
    **{
        f"another encoding, {name!r}": (
            *("guests", (GUESTS + GUEST + OTHER_GUEST_ID).encode() + b",A," + name + b",\n"),
            "line 3, column last_name: expected text in UTF-8: save the file as CSV UTF-8",
        )
        for name in (b"Zo\xeb", b"\xc0\x80")
    },
    "a byte order mark inside": (
        *("guests", f"\ufeff{GUESTS}\ufeff{GUEST}"),
        f"line 2, column id: {UUID_EXPECTED}",
    ),
    **{
        name: ("guests", f"{GUESTS}{row}", "line 2: expected CSV: ")
        for name, row in (
            ("text after a quote", f'{GUEST_ID},"Zo"e,Li,\n'),
            ("a quote that is open", f'{GUEST_ID},"Zo,Li,\n'),
            ("a quote to the end", f'{GUEST_ID},Zo,Li,"\n\n\n'),
            ("CR alone", f"{GUEST_ID},Zo,Li,\r{OTHER_GUEST_ID},Bo,Li,\r"),
        )
    },
    # Between the two are rows of several lines, and an empty line.
    "an id that comes twice": (
        "products",
        PRODUCTS
        + "".join(
            product_row(id=a_uuid(number), description='"1\n2"' if number % 3 else "1")
            for number in range(1, 8)
        )
        + f"\n{product_row(id=a_uuid(7))}",
        "line 15, column id: expected an id that no earlier line has",
    ),
}


# Shows S11, S18, S22.
@pytest.mark.parametrize(("what", "content", "complaint"), FAULTS.values(), ids=FAULTS)
def test_the_refusal_of_a_csv_file_says_where_the_error_is(
    with_centers: CommandLine, what: str, content: str | bytes, complaint: str
) -> None:
    assert refusal(with_centers, what, content).startswith(complaint)


class TestLargeFiles:
    def test_the_refusal_of_a_file_with_very_many_columns_is_short(
        self, cardonfile: CommandLine
    ) -> None:
        assert len(refusal(cardonfile, "centers", "x," * 30_000 + "\n")) < 500

    # Shows S22.
    @pytest.mark.parametrize(
        ("start", "long", "end", "column"),
        [
            (f"{GUEST_ID},Zo,", "x", ",\n", "last_name"),
            (f'{GUEST_ID},"', "x\n", "", "first_name"),
            (f"{GUEST_ID},Zo,Li,", "x\r", "", "email"),
            ("", ",", "", str(MAX_RECORD_BYTES + 2)),
        ],
        ids=["plain", "quoted lines", "CR", "commas"],
    )
    def test_a_row_of_ten_megabytes_is_refused_without_reading_all_of_it(
        self, cardonfile: CommandLine, start: str, long: str, end: str, column: str
    ) -> None:
        content = GUESTS + start + long * (10_000_000 // len(long)) + end

        assert refusal(cardonfile, "guests", content) == (
            f"line 2, column {column}: expected at most {MAX_RECORD_BYTES} bytes in a row"
        )


class TestStoringRows:
    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            (
                {"id": a_uuid(8), "center_id": a_uuid(9)},
                "the id of a center that has been imported",
            ),
            ({"center_id": OTHER_CENTER_ID}, "the center that already has this product"),
        ],
    )
    def test_a_product_is_refused_if_its_center_is_unknown_or_differs_from_the_stored_center(
        self, with_centers: CommandLine, changes: dict[str, str], expected: str
    ) -> None:
        imports(with_centers, "products", PRODUCTS + product_row())
        rows = product_row(id=a_uuid(7)) + product_row(**changes)

        assert refusal(with_centers, "products", PRODUCTS + rows) == (
            f"line 3, column center_id: expected {expected}"
        )

    def test_an_import_fails_if_the_temporary_file_cannot_be_written(
        self, cardonfile: CommandLine
    ) -> None:
        # More than SQLite keeps in memory.
        file = a_file(cardonfile, guest_rows(50_000))
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        try:
            complaint = cardonfile.refuses("import", "guests", file)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

        assert complaint.startswith("cannot write the rows to a temporary file")
        assert guest_on_file(cardonfile.storage, GuestId(a_uuid(1))) is None

    def test_other_processes_can_write_to_the_database_between_the_parts_of_an_import(
        self, cardonfile: CommandLine
    ) -> None:
        file, parts = BytesIO(guest_rows(2 * ROWS_PER_UNIT + 1).encode()), []
        with closing(CsvImport(cardonfile.storage, "guests", NOTE_ACT)) as checked:
            checked.check(file, on_read=ignore)
            for stored in checked.store():
                parts.append(stored)
                with committed(cardonfile.storage) as unit:
                    unit.centers.put_many([a_center()])

        assert parts == [ROWS_PER_UNIT, ROWS_PER_UNIT, 1]

    def test_repeating_an_interrupted_import_completes_the_import(
        self, cardonfile: CommandLine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows = 2 * ROWS_PER_UNIT + 1
        file = a_file(cardonfile, guest_rows(rows))

        def commit_and_interrupt(transaction: Transaction) -> None:
            commit(transaction)
            signal.raise_signal(signal.SIGINT)

        commit = Transaction.commit
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(Transaction, "commit", commit_and_interrupt)
            interrupted = cardonfile.run("import", "guests", file)

        assert interrupted.exit_code == 130
        assert interrupted.stderr == (
            f"imported {ROWS_PER_UNIT} of {rows} guests\n"
            "interrupted: run the same command again to import the rest\n"
        )
        assert cardonfile.succeeds("import", "guests", file) == f"imported {rows} guests\n"
        assert guest_on_file(cardonfile.storage, GuestId(a_uuid(rows - 1))) is not None
        trail = audit_trail(cardonfile.storage, about="guests")
        noted = [(each.action, each.details) for each in trail]
        assert noted == [(Action.IMPORT_BEGUN, {"rows": rows})] * 2


PIECES = st.sampled_from(
    [
        *(b",", b"\n", b"\r\n", b"\r", b'"', b'""', b" ", b"\x00", b"\xff", b"\xef\xbb\xbf"),
        *(GUESTS.encode(), GUEST.encode(), PRODUCTS.encode(), product_row().encode()),
        *(GUEST_ID.encode(), b"id", b"name", b"zoe@guests.example", b"1.50", b"EUR"),
    ]
)


@pytest.mark.parametrize("what", KINDS)
@given(has_header=st.booleans(), pieces=st.lists(PIECES | st.binary(max_size=20), max_size=30))
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=40 * TIMES,
)
def test_any_csv_file_is_either_imported_completely_or_refused(
    with_centers: CommandLine, what: str, has_header: bool, pieces: list[bytes]
) -> None:
    header = ",".join(KINDS[what].columns).encode() + b"\n" if has_header else b""
    content = header + b"".join(pieces)
    read: list[int] = []
    complaint = None
    with closing(CsvImport(with_centers.storage, what, NOTE_ACT)) as rows:
        try:
            rows.check(BytesIO(content), on_read=read.append)
        except CsvRefused as refused:
            complaint = str(refused)

    if complaint is None:
        assert sum(read) == len(content)
    else:
        assert complaint.startswith("line ")
        assert complaint.isprintable()
        assert len(complaint) < 1000


def test_the_memory_use_of_an_import_does_not_grow_with_the_number_of_rows(
    cardonfile: CommandLine,
) -> None:
    def peak(rows: int) -> int:
        file = BytesIO(guest_rows(rows).encode())
        tracemalloc.start()
        try:
            with closing(CsvImport(cardonfile.storage, "guests", NOTE_ACT)) as checked:
                assert checked.check(file, on_read=ignore) == rows
                assert sum(checked.store()) == rows
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # What is kept from the first time on does not count.
    peak(1_000)
    few = peak(1_000)
    # A reference to an object for each row would be more. Garbage may wait for its collector.
    assert peak(5_000) < few + 120_000
