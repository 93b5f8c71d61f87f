"""Imports: what is read, and every fault by its line and column with nothing stored."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from decimal import Decimal
from io import BufferedReader, BytesIO, FileIO, RawIOBase
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typing_extensions import Buffer, override

from adapters.psp.contract.samples import GUEST_ID, OTHER_GUEST_ID, a_uuid
from domain.centers import Center
from domain.guests import Guest
from domain.identifiers import CenterId, GuestId
from domain.pagination import Page, PageRequest
from domain.products import Product
from entrypoints.csv_import import KINDS, MAX_RECORD_BYTES, CsvRefused, import_csv
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center, a_guest, a_product
from tests.entrypoints.conftest import CommandLine
from tests.fuzzing import TIMES

CENTERS = "id,name\n"
GUESTS = "id,first_name,last_name,email\n"
PRODUCTS = "center_id,id,code,name,description,amount,currency\n"
GUEST = f"{GUEST_ID},Zo\u00eb,Null,zoe@guests.example\n"
PRODUCT_ID = a_product(1).id


@pytest.fixture
def with_centers(cardonfile: CommandLine) -> CommandLine:
    """Give the command line on a database with two centers."""
    with cardonfile.storage.write() as unit:
        unit.centers.put_many([a_center(), a_center(id=OTHER_CENTER_ID)])
        unit.commit()
    return cardonfile


def file_of(cardonfile: CommandLine, what: str, content: str | bytes) -> Path:
    file = cardonfile.folder / f"{what}.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def imports(cardonfile: CommandLine, what: str, content: str | bytes) -> str:
    return cardonfile.succeeds("import", what, str(file_of(cardonfile, what, content)))


def refusal(cardonfile: CommandLine, what: str, content: str | bytes) -> str:
    """Give what is wrong with a file, after its path, having seen that nothing was stored."""
    before = stored(cardonfile)
    file = file_of(cardonfile, what, content)
    complaint = cardonfile.refuses("import", what, str(file))
    assert complaint.startswith(f"{file}, line ")
    assert stored(cardonfile) == before
    return complaint.removeprefix(f"{file}, ")


def stored(cardonfile: CommandLine) -> tuple[Center | None, Guest | None, tuple[Product, ...]]:
    with cardonfile.storage.read() as unit:
        return (
            unit.centers.get(CENTER_ID),
            unit.guests.get(GUEST_ID),
            unit.products.page(CENTER_ID, PageRequest()).items,
        )


def products(cardonfile: CommandLine) -> Page[Product]:
    with cardonfile.storage.read() as unit:
        return unit.products.page(CENTER_ID, PageRequest())


def product_row(**changes: str) -> str:
    cells = {
        "center_id": CENTER_ID,
        "id": PRODUCT_ID,
        "code": "P-1",
        "name": "Massage 1",
        "description": "An hour of rest",
        "amount": "120.50",
        "currency": "EUR",
    }
    return ",".join((cells | changes).values()) + "\n"


class TestWithSemicolons:
    # As a spreadsheet with German settings writes it: Save as, CSV UTF-8.
    EXCEL: Final = (
        "\ufeffcenter_id;id;code;name;description;amount;currency\r\n"
        f"{CENTER_ID};{a_uuid(1)};OIL-50;Massageöl, 50 ml;"
        '"Mandel; ""Lavendel""\nund Ruhe";49,90;EUR\r\n'
        f"{CENTER_ID};{a_uuid(2)};P-2;Massage;;120;EUR\r\n"
        f"{CENTER_ID};{a_uuid(3)};P-3;Sauna;;1234.5;EUR\r\n"
    )

    def test_a_spreadsheets_file_is_read(self, with_centers: CommandLine) -> None:
        assert imports(with_centers, "products", self.EXCEL) == "imported 3 products\n"

        first, second, third = products(with_centers).items
        assert (first.name, first.description) == (
            "Massageöl, 50 ml",
            'Mandel; "Lavendel"\nund Ruhe',
        )
        assert [each.amount for each in (first, second, third)] == [
            Decimal("49.90"),
            Decimal(120),
            Decimal("1234.5"),
        ]

    def test_guests_with_every_cell_in_quotes(self, cardonfile: CommandLine) -> None:
        imports(
            cardonfile,
            "guests",
            f'"id";"first_name";"last_name";"email"\r\n"{GUEST_ID}";"Ada";"Sample";""\r\n',
        )

        assert stored(cardonfile)[1] == a_guest(first_name="Ada", last_name="Sample", email=None)

    @pytest.mark.parametrize("amount", ["1.234", "1,234", "1.234,50", "1,23456", "49,", "€ 5,00"])
    def test_an_amount_that_may_mean_something_else_is_refused(
        self, with_centers: CommandLine, amount: str
    ) -> None:
        complaint = refusal(with_centers, "products", self.EXCEL.replace(";49,90;", f";{amount};"))

        assert complaint == (
            "line 2, column amount: expected an amount such as 120,50 or 120.50, with 1, 2 or 4 "
            "decimals (3 may be thousands) and at most 12 digits"
        )

    def test_a_row_with_too_many_cells_is_named(self, with_centers: CommandLine) -> None:
        complaint = refusal(with_centers, "products", self.EXCEL.replace(";P-3;", ";P;3;"))

        # The description of the first takes two lines.
        assert complaint == "line 5, column 8: expected 7 cells, found 8"

    def test_a_decimal_comma_is_refused_in_a_file_with_commas(
        self, with_centers: CommandLine
    ) -> None:
        row = product_row(amount='"49,90"')

        assert "expected an amount such as 120.50" in refusal(
            with_centers, "products", PRODUCTS + row
        )

    def test_tabs_are_refused(self, cardonfile: CommandLine) -> None:
        complaint = refusal(cardonfile, "centers", f"id\tname\n{CENTER_ID}\tHarbor Spa\n")

        assert complaint == (
            "line 1: expected commas or semicolons between the columns, found tabs"
        )


class TestRead:
    def test_centers(self, cardonfile: CommandLine) -> None:
        assert imports(cardonfile, "centers", f"{CENTERS}{CENTER_ID},Harbor Spa\n") == (
            "imported 1 center\n"
        )
        assert stored(cardonfile)[0] == a_center()

    def test_guests_with_an_address_and_without(self, cardonfile: CommandLine) -> None:
        imports(cardonfile, "guests", f"{GUESTS}{GUEST}{OTHER_GUEST_ID},Bo,Li,\n")

        with cardonfile.storage.read() as unit:
            assert unit.guests.get(GUEST_ID) == a_guest()
            bo = unit.guests.get(OTHER_GUEST_ID)
        assert bo == Guest(id=OTHER_GUEST_ID, first_name="Bo", last_name="Li", email=None)

    def test_products(self, with_centers: CommandLine) -> None:
        imports(with_centers, "products", PRODUCTS + product_row())

        assert products(with_centers).items == (a_product(1),)
        assert products(with_centers).items[0].amount.as_tuple() == Decimal("120.50").as_tuple()

    def test_a_thousand_guests_are_counted(self, cardonfile: CommandLine) -> None:
        rows = "".join(f"{a_uuid(number)},A,B,\n" for number in range(1000))

        assert imports(cardonfile, "guests", GUESTS + rows) == "imported 1000 guests\n"

    def test_a_header_alone_imports_nothing(self, cardonfile: CommandLine) -> None:
        assert imports(cardonfile, "guests", GUESTS) == "imported 0 guests\n"

    @pytest.mark.parametrize(
        "content",
        [
            f"\ufeff{CENTERS}{CENTER_ID},Harbor Spa",
            f"name,id\r\nHarbor Spa,{CENTER_ID}\r\n",
            f'"name","id"\n"Harbor Spa","{CENTER_ID}"\n\n\n',
            f"\n{CENTERS}\r\n\n{CENTER_ID},Harbor Spa\n",
        ],
        ids=["byte order mark", "other order and CRLF", "quotes", "blank lines"],
    )
    def test_spreadsheets_write_csv_in_many_ways(
        self, cardonfile: CommandLine, content: str
    ) -> None:
        imports(cardonfile, "centers", content)

        assert stored(cardonfile)[0] == a_center()

    def test_a_cell_may_hold_commas_and_quotes_and_a_description_lines(
        self, with_centers: CommandLine
    ) -> None:
        row = product_row(name='"Oil, ""warm"""', description='"One.\r\n\nTwo."')

        imports(with_centers, "products", PRODUCTS + row)

        (product,) = products(with_centers).items
        assert (product.name, product.description) == ('Oil, "warm"', "One.\r\n\nTwo.")

    @pytest.mark.parametrize("amount", ["0", "0.0001", "999999999999", "99999999.9999", "007.5"])
    def test_amounts(self, with_centers: CommandLine, amount: str) -> None:
        imports(with_centers, "products", PRODUCTS + product_row(amount=amount))

        assert products(with_centers).items[0].amount == Decimal(amount)

    def test_the_longest_row_that_has_the_right_form(self, with_centers: CommandLine) -> None:
        row = product_row(
            name='"' + '""' * 200 + '"',
            code="\U0001f600" * 100,
            description="\U0001f600" * 5000,
            amount="99999999.9999",
        )
        assert len(row.encode()) < MAX_RECORD_BYTES

        imports(with_centers, "products", PRODUCTS + row)

        assert products(with_centers).items[0].description == "\U0001f600" * 5000


class TestAgain:
    def test_a_row_whose_id_is_there_updates_it(self, cardonfile: CommandLine) -> None:
        imports(cardonfile, "guests", GUESTS + GUEST)
        imports(cardonfile, "guests", f"{GUESTS}{GUEST_ID},Zo\u00eb,Li,\n")

        assert stored(cardonfile)[1] == a_guest(last_name="Li", email=None)

    def test_a_product_that_is_updated_keeps_its_place(self, with_centers: CommandLine) -> None:
        second = product_row(id=a_product(2).id)
        imports(with_centers, "products", PRODUCTS + product_row() + second)
        imports(with_centers, "products", PRODUCTS + second + product_row(name="Facial"))

        assert [(each.id, each.name) for each in products(with_centers).items] == [
            (a_product(1).id, "Facial"),
            (a_product(2).id, "Massage 1"),
        ]
        assert products(with_centers).total == 2

    def test_ids_are_the_same_in_capitals(self, cardonfile: CommandLine) -> None:
        some_id = "abcdefab-cdef-4abc-8def-abcdefabcdef"
        centers, guests = f"{CENTERS}{{}},Harbor Spa\n", f"{GUESTS}{{}},Zo\u00eb,Null,\n"
        for written in (some_id, some_id.upper()):
            imports(cardonfile, "centers", centers.format(written))
            imports(cardonfile, "guests", guests.format(written))
            imports(cardonfile, "products", PRODUCTS + product_row(id=written, center_id=written))

        with cardonfile.storage.read() as unit:
            assert unit.centers.get(CenterId(some_id)) is not None
            assert unit.guests.get(GuestId(some_id)) is not None
            page = unit.products.page(CenterId(some_id), PageRequest())
            assert [each.id for each in page.items] == [some_id]
            assert unit.centers.get(CenterId(some_id.upper())) is None
            assert unit.guests.get(GuestId(some_id.upper())) is None


class TestHeader:
    @pytest.mark.parametrize(
        ("content", "fault"),
        [
            ("", "id is missing, name is missing"),
            ("\n\n", "id is missing, name is missing"),
            ("id\n", "name is missing"),
            ("id,name,phone\n", "'phone' is not known"),
            ("id,name,id\n", "id is repeated"),
            ("id, name\n", "name is missing, ' name' is not known"),
            ("ID,name\n", "id is missing, 'ID' is not known"),
            ("id;name;price\n", "'price' is not known"),
            (
                "id;name,price\n",
                "id is missing, name is missing, 'id;name' is not known, 'price' is not known",
            ),
            ("id,name,\n", "'' is not known"),
            ("id,name,\x1b[2J\n", "'\\x1b[2J' is not known"),
            (f"id,name,{'x' * 41}\n", f"'{'x' * 40}'\u2026 is not known"),
        ],
    )
    def test_columns_that_are_not_the_expected_ones_are_named(
        self, cardonfile: CommandLine, content: str, fault: str
    ) -> None:
        assert refusal(cardonfile, "centers", content) == (
            f"line 1: expected the columns id,name; {fault}"
        )

    def test_columns_without_end_are_not_all_named(self, cardonfile: CommandLine) -> None:
        assert len(refusal(cardonfile, "centers", "x," * 30_000 + "\n")) < 500

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
    def test_text_of_two_bytes_a_character_is_refused(
        self, cardonfile: CommandLine, encoding: str
    ) -> None:
        content = f"{CENTERS}{CENTER_ID},Harbor Spa\n".encode(encoding)

        assert refusal(cardonfile, "centers", content).startswith("line 1: expected ")


NOT_TEXT = ["\x00", "a\x00b", "a\x07", "\x1b[31mred", "a\x7f", "\x85", "a\u2028b"]
NO_UUID = [
    "",
    " ",
    "7",
    GUEST_ID[:-1],
    GUEST_ID.replace("-", ""),
    f"{{{GUEST_ID}}}",
    f"urn:uuid:{GUEST_ID}",
    f" {GUEST_ID}",
    GUEST_ID.replace("0", "\u0660"),
    GUEST_ID + "\x00",
]
FAULTS = {
    "id": NO_UUID,
    "center_id": NO_UUID,
    "code": ["", " ", "x" * 101, *NOT_TEXT],
    "name": ["", "\u3000", "x" * 201, '"two\nlines"', *NOT_TEXT],
    "description": ["x" * 5001, '"a\rb"', *NOT_TEXT],
    "amount": [
        *("", "-1", "+1", "1.", ".5", "1.23456", "1e3", "1_000", " 1", "NaN", "Infinity"),
        *("0x1", "9" * 13, "999999999.9999", "\u0661", "1\u00a0000", '"1,50"', '"1\n"'),
    ],
    "currency": ["", "eur", "EU", "EURO", "E R", "\u0415UR", "EU1", '"EUR\n"'],
}


class TestCells:
    @pytest.mark.parametrize(
        ("column", "cell"), [(column, cell) for column in FAULTS for cell in FAULTS[column]]
    )
    def test_one_of_another_form_is_named_by_line_and_column(
        self, with_centers: CommandLine, column: str, cell: str
    ) -> None:
        rows = product_row() + product_row(**{"id": a_product(2).id, column: cell})

        complaint = refusal(with_centers, "products", PRODUCTS + rows)

        expected = KINDS["products"].columns[column].expected
        assert complaint == f"line 3, column {column}: expected {expected}"

    @pytest.mark.parametrize(
        "email",
        [
            *("zoe", "zoe@", "@guests.example", "zoe@guests..example", "a b@guests.example"),
            *("zo\u00eb@guests.example", " ", "a@b\x00", "a@b,c@d", f"a@{'b.' * 130}c"),
        ],
    )
    def test_an_address_that_is_none_is_refused(self, cardonfile: CommandLine, email: str) -> None:
        rows = f'{GUEST}{OTHER_GUEST_ID},Bo,Li,"{email}"\n'

        assert refusal(cardonfile, "guests", GUESTS + rows) == (
            "line 3, column email: expected an e-mail address, or nothing, and no card number"
        )

    @pytest.mark.parametrize("column", ["first_name", "last_name", "email"])
    def test_a_card_number_beside_a_guest_is_refused_and_not_shown(
        self, cardonfile: CommandLine, column: str
    ) -> None:
        cells = {"id": OTHER_GUEST_ID, "first_name": "Bo", "last_name": "Li", "email": ""}
        kept = "4242424242424242@guests.example" if column == "email" else "Li 4242 4242 4242 4242"

        complaint = refusal(
            cardonfile, "guests", f"{GUESTS}{GUEST}{','.join((cells | {column: kept}).values())}\n"
        )

        assert complaint.startswith(f"line 3, column {column}: expected ")
        assert complaint.endswith(", and no card number")

    def test_the_line_is_the_one_that_an_editor_shows(self, with_centers: CommandLine) -> None:
        rows = product_row(description='"1\n2\r\n3"') + "\n" + product_row(amount="free")

        assert refusal(with_centers, "products", PRODUCTS + rows).startswith(
            "line 6, column amount: "
        )

    @pytest.mark.parametrize(
        ("row", "expected"),
        [
            (f"{GUEST_ID},Zo\n", "line 2, column last_name: expected 4 cells, found 2"),
            ("x\n", "line 2, column first_name: expected 4 cells, found 1"),
            (f"{GUEST_ID},Zo,Li,,\n", "line 2, column 5: expected 4 cells, found 5"),
            (f"{GUEST_ID},Zo,Li,{',' * 9000}\n", "line 2, column 5: expected 4 cells, found 9004"),
        ],
        ids=["missing", "one", "extra", "many"],
    )
    def test_missing_and_extra_ones_are_named(
        self, cardonfile: CommandLine, row: str, expected: str
    ) -> None:
        assert refusal(cardonfile, "guests", GUESTS + row) == expected

    @pytest.mark.parametrize("name", [b"Zo\xeb", b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"ok\xe2"])
    def test_one_of_another_encoding_is_named(self, cardonfile: CommandLine, name: bytes) -> None:
        content = (
            GUESTS.encode() + GUEST.encode() + OTHER_GUEST_ID.encode() + b",A," + name + b",\n"
        )

        assert refusal(cardonfile, "guests", content) == (
            "line 3, column last_name: expected text in UTF-8"
        )

    def test_a_byte_order_mark_belongs_to_the_start(self, cardonfile: CommandLine) -> None:
        expected = KINDS["guests"].columns["id"].expected

        assert refusal(cardonfile, "guests", f"\ufeff{GUESTS}\ufeff{GUEST}") == (
            f"line 2, column id: expected {expected}"
        )

    @pytest.mark.parametrize(
        "row",
        [
            f'{GUEST_ID},"Zo"e,Li,\n',
            f'{GUEST_ID},"Zo,Li,\n',
            f'{GUEST_ID},Zo,Li,"\n\n\n',
            f"{GUEST_ID},Zo,Li,\r{OTHER_GUEST_ID},Bo,Li,\r",
        ],
        ids=["text after a quote", "quote not closed", "quote to the end", "CR alone"],
    )
    def test_what_is_no_csv_is_refused_by_its_first_line(
        self, cardonfile: CommandLine, row: str
    ) -> None:
        assert refusal(cardonfile, "guests", GUESTS + row).startswith("line 2: expected CSV: ")

    @pytest.mark.parametrize(
        ("start", "long", "end", "column"),
        [
            (f"{GUEST_ID},Zo,", "x", ",\n", "last_name"),
            (f'{GUEST_ID},Zo,Li,"', "x", '"\n', "email"),
            (f'{GUEST_ID},"', "x\n", '",Li,\n', "first_name"),
            (f'{GUEST_ID},"', "\x00", '",Li,\n', "first_name"),
            (f'{GUEST_ID},"', "x", "", "first_name"),
            (f"{GUEST_ID},Zo,Li,", "x\r", "", "email"),
            ("", "\u00e9", "", "id"),
            ("", ",", "", str(MAX_RECORD_BYTES + 2)),
        ],
        ids=["plain", "quoted", "lines", "NUL", "open", "CR", "alone", "commas"],
    )
    def test_one_of_ten_megabytes_is_named_and_not_read(
        self, cardonfile: CommandLine, start: str, long: str, end: str, column: str
    ) -> None:
        content = GUESTS + start + long * (10_000_000 // len(long)) + end

        assert refusal(cardonfile, "guests", content) == (
            f"line 2, column {column}: expected at most {MAX_RECORD_BYTES} bytes in a row"
        )


class TestStored:
    def test_an_id_that_comes_twice_is_named_after_rows_of_several_lines(
        self, with_centers: CommandLine
    ) -> None:
        rows = "".join(
            product_row(id=str(UUID(int=number)), description='"1\n2"' if number % 3 else "1")
            for number in range(1, 8)
        )

        assert refusal(
            with_centers, "products", PRODUCTS + rows + "\n" + product_row(id=str(UUID(int=7)))
        ) == ("line 15, column id: expected an id that no earlier line has")

    def test_an_id_that_comes_twice_is_named(self, with_centers: CommandLine) -> None:
        rows = product_row(description='"1\n2"') + product_row()

        assert refusal(with_centers, "products", PRODUCTS + rows) == (
            "line 4, column id: expected an id that no earlier line has"
        )

    @pytest.mark.parametrize(
        ("what", "header", "row"),
        [("centers", CENTERS, f"{OTHER_CENTER_ID},Spa\n"), ("guests", GUESTS, GUEST)],
    )
    def test_an_id_that_comes_twice_is_named_for_others_too(
        self, cardonfile: CommandLine, what: str, header: str, row: str
    ) -> None:
        assert refusal(cardonfile, what, header + row + "\n" + row) == (
            "line 4, column id: expected an id that no earlier line has"
        )

    def test_a_center_that_is_not_there_is_named(self, with_centers: CommandLine) -> None:
        rows = product_row() + product_row(id=a_uuid(7), center_id=a_uuid(9))

        assert refusal(with_centers, "products", PRODUCTS + rows) == (
            "line 3, column center_id: expected the id of a center that has been imported"
        )

    def test_a_product_that_changes_its_center_is_named(self, with_centers: CommandLine) -> None:
        imports(with_centers, "products", PRODUCTS + product_row())

        rows = product_row(id=a_uuid(7)) + product_row(center_id=OTHER_CENTER_ID)
        assert refusal(with_centers, "products", PRODUCTS + rows) == (
            "line 3, column center_id: expected the center that this product belongs to already"
        )

    def test_a_fault_in_the_last_row_undoes_the_updates_before_it(
        self, cardonfile: CommandLine
    ) -> None:
        imports(cardonfile, "guests", GUESTS + GUEST)

        refusal(cardonfile, "guests", f"{GUESTS}{GUEST_ID},Bo,Li,\n{OTHER_GUEST_ID},,,\n")

        assert stored(cardonfile)[1] == a_guest()


class TestFile:
    def test_one_that_is_not_there_is_named(self, cardonfile: CommandLine) -> None:
        file = str(cardonfile.folder / "no.csv")

        assert cardonfile.refuses("import", "guests", file) == f"{file}: No such file or directory"

    def test_a_folder_is_none(self, cardonfile: CommandLine) -> None:
        folder = str(cardonfile.folder)

        assert cardonfile.refuses("import", "guests", folder) == f"{folder}: Is a directory"

    @pytest.mark.slow
    def test_how_far_it_is_read_is_shown_on_a_terminal(self, cardonfile: CommandLine) -> None:
        file = file_of(cardonfile, "guests", GUESTS + GUEST)
        terminal, end_of_process = os.openpty()
        with FileIO(terminal) as shown:
            with cardonfile.start("import", "guests", str(file), stderr=end_of_process) as process:
                printed, _ = process.communicate(timeout=60)
            bar = shown.read(10_000)
            os.close(end_of_process)

        assert (process.returncode, printed) == (0, b"imported 1 guest\n")
        assert b"importing guests" in bar
        assert b"100%" in bar

    @pytest.mark.slow
    def test_one_that_comes_through_a_pipe_is_read(self, cardonfile: CommandLine) -> None:
        with cardonfile.start("import", "guests", "/dev/stdin") as process:
            printed, complaint = process.communicate(input=(GUESTS + GUEST).encode(), timeout=60)

        assert (process.returncode, printed, complaint) == (0, b"imported 1 guest\n", b"")


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
    max_examples=150 * TIMES,
)
def test_whatever_a_file_holds_it_is_stored_or_refused(
    with_centers: CommandLine, what: str, has_header: bool, pieces: list[bytes]
) -> None:
    header = ",".join(KINDS[what].columns).encode() + b"\n" if has_header else b""
    content = header + b"".join(pieces)
    read: list[int] = []
    complaint = None
    with with_centers.storage.write() as unit:
        try:
            import_csv(unit, KINDS[what], BytesIO(content), on_read=read.append)
        except CsvRefused as refused:
            complaint = str(refused)

    if complaint is None:
        assert sum(read) == len(content)
    else:
        assert complaint.startswith("line ")
        assert complaint.isprintable()
        assert len(complaint) < 1000


class EndlessRows(RawIOBase):
    """A file of many rows that takes no room."""

    def __init__(self, rows: int) -> None:
        self._rows = self._written(rows)

    def _written(self, rows: int) -> Iterator[bytes]:
        yield GUESTS.encode()
        for number in range(rows):
            yield f"{a_uuid(number)},Zo\u00eb,Null,guest{number}@guests.example\n".encode()

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Buffer, /) -> int:
        row = next(self._rows, b"")
        memoryview(buffer)[: len(row)] = row
        return len(row)


def ignore(_: int) -> None:
    """Take no notice of what was read."""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(cardonfile: CommandLine) -> None:
    def peak(rows: int) -> int:
        with cardonfile.storage.write() as unit, BufferedReader(EndlessRows(rows)) as file:
            tracemalloc.start()
            try:
                assert import_csv(unit, KINDS["guests"], file, on_read=ignore) == rows
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    peak(1)
    assert peak(100_000) < peak(1_000) + 200_000
