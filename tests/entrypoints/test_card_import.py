"""`cardonfile import cards`: the report on each line, and the rate of calls to the PSP."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, timedelta
from io import BytesIO

import pytest

from adapters.psp_suite.samples import GUEST_ID, OTHER_GUEST_ID, a_uuid
from domain.audit.entry import Action
from domain.cards.import_card import IMPORTS_PER_MINUTE, Fate
from domain.identifiers import GuestId
from domain.psps.card import Card
from entrypoints.card_import import MAX_LEFT_OUT, WAITS_SECONDS, CardImport, PspSilent
from tests.builders import CENTER_ID, a_guest
from tests.databases import audit_trail, change_by_hand
from tests.entrypoints.conftest import CommandLine
from tests.installation import MERCHANT, OTHER_GOOD_CARD, Installation, Trouble

COLUMNS = (
    *("guest_id", "center_id", "provider", "merchant_account", "guest_reference", "token"),
    *("consented_at", "consent_version"),
)
HEADER = ",".join(COLUMNS)


def row(card: Card, guest_id: str = GUEST_ID, **changes: str) -> str:
    cells = (guest_id, CENTER_ID, "fake", MERCHANT, card.guest_reference, card.token)
    agreed = ("2024-05-31", "2024-05")
    return ",".join({**dict(zip(COLUMNS, cells + agreed, strict=True)), **changes}.values())


@pytest.fixture
def command_line(installation: Installation, unmigrated: CommandLine) -> CommandLine:
    """Return the command line of an installation."""
    assert installation.database == unmigrated.database
    return unmigrated


def file_of(command_line: CommandLine, *rows: str) -> str:
    file = command_line.folder / "cards.csv"
    file.write_text("\n".join((HEADER, *rows, "")))
    return str(file)


def test_repeating_a_card_import_stores_each_card_once(
    installation: Installation, command_line: CommandLine
) -> None:
    file = file_of(command_line, row(installation.card_at_psp()))

    for _ in range(2):
        assert command_line.succeeds("import", "cards", file) == "imported 1 card\n"

    assert len(installation.accounts()) == 1
    trail = audit_trail(installation.storage, about="cards")
    noted = [(each.action, each.details) for each in trail]
    assert noted == [(Action.IMPORT_BEGUN, {"rows": 1})] * 2


def test_a_card_import_names_skipped_cards_by_their_line(
    installation: Installation, command_line: CommandLine
) -> None:
    erased = GuestId(a_uuid(77))
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    installation.has_guest(a_guest(id=erased))
    good, gone, third = (installation.card_at_psp() for _ in range(3))
    installation.psp.discard(MERCHANT, gone.guest_reference, gone.token)
    installation.container.erase_guest()(None, guest_id=erased)
    file = file_of(
        command_line,
        row(gone),
        row(good),
        row(third, token="card_of_nobody"),
        row(third),
        row(installation.card_at_psp(), erased),
        row(installation.card_at_psp(OTHER_GOOD_CARD), OTHER_GUEST_ID),
    )

    for _ in range(2):
        result = command_line.run("import", "cards", file)

        assert (result.exit_code, result.stdout) == (1, "imported 2 cards\n")
        told = [line for line in result.stderr.splitlines(keepends=True) if "event=" not in line]
        assert "".join(told) == (
            f"{file}, line 2: the PSP no longer has the card\n"
            f"{file}, line 4: the PSP does not know this token for this guest_reference at this "
            "merchant account\n"
            f"{file}, line 5: the guest already has this card on file at the center, with another token\n"
            "skipped, because the guests were erased or merged: 1\n"
            "Error: rows that were not imported, for the reasons above: 3\n"
        )
    assert len(installation.accounts()) == len(installation.accounts(OTHER_GUEST_ID)) == 1


# Shows F46.
def test_a_guests_unreadable_card_on_file_does_not_block_the_import_of_other_cards(
    installation: Installation,
) -> None:
    rows = some_rows(installation, 2)
    installation.stored_card()
    change_by_hand(installation.storage, "UPDATE payment_accounts SET source = 99")
    importing = Import(installation, row(installation.card_at_psp(OTHER_GOOD_CARD)), *rows)

    assert (importing.run(), importing.told) == (3, [(2, Fate.UNREADABLE.value)])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"guest_id": OTHER_GUEST_ID}, "the id of a guest that has been imported"),
        ({"center_id": a_uuid(99)}, "the id of a center that has been imported"),
        ({"provider": "acme"}, "a PSP that is set up here and can read stored cards"),
        ({"token": "4242424242424242"}, "text without a card number"),
        ({"token": "first"}, "a token that no earlier line has"),
        ({"consented_at": "2999-01-01"}, "a time in the past"),
    ],
)
def test_a_card_import_names_an_invalid_row_without_importing_any_card(
    installation: Installation, command_line: CommandLine, changes: dict[str, str], sentence: str
) -> None:
    card = installation.card_at_psp()
    file = file_of(command_line, row(card, token="first"), row(card, **changes))
    (column,) = changes

    refused = command_line.refuses("import", "cards", file)

    assert refused == f"{file}, line 3, column {column}: expected {sentence}"
    assert not installation.accounts()


class Import:
    """An import that moves the clock of an installation instead of pausing."""

    def __init__(self, installation: Installation, *rows: str) -> None:
        self.installation = installation
        self.content = "\n".join((HEADER, *rows)).encode()
        self.told: list[tuple[int, str]] = []

    def run(self) -> int:
        """Run the import, and return how many lines were done."""
        container = self.installation.container
        importing = CardImport(
            container.import_card(),
            container.note_operators_act(),
            tell=lambda line, why: self.told.append((line, why)),
        )
        with closing(importing) as rows:
            rows.check(BytesIO(self.content), on_read=lambda _: None)
            return sum(rows.store())


@pytest.fixture(autouse=True)
def quick(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Move the clock instead of waiting."""
    wait = time.sleep

    def sleep(seconds: float) -> None:
        installation.clock.advance(timedelta(seconds=seconds))
        wait(0)

    monkeypatch.setattr("entrypoints.card_import.time.sleep", sleep)


def some_rows(installation: Installation, number: int) -> Sequence[str]:
    """Return `number` rows, each with a card of another guest."""
    guests = [GuestId(a_uuid(700 + each)) for each in range(number)]
    for guest_id in guests:
        installation.has_guest(a_guest(id=guest_id))
    return [row(installation.card_at_psp(), guest_id) for guest_id in guests]


def test_a_card_import_reads_a_limited_number_of_cards_per_minute_from_the_psp(
    installation: Installation,
) -> None:
    read: list[datetime] = []
    rows = some_rows(installation, IMPORTS_PER_MINUTE + 10)
    installation.provider.before = lambda _, __: read.append(installation.clock.now())
    # Cards that the PSP no longer has are read too.
    for card in installation.psp.list_cards(MERCHANT, None).cards[::2]:
        installation.psp.discard(MERCHANT, *card)

    assert Import(installation, *rows).run() == len(rows)

    minute = timedelta(minutes=1)
    most = max(sum(begun <= each < begun + minute for each in read) for begun in read)
    assert (len(read), most) == (len(rows), IMPORTS_PER_MINUTE)


def test_a_card_import_waits_for_a_psp_that_is_briefly_unavailable(
    installation: Installation,
) -> None:
    rows = some_rows(installation, 2)
    back_at = installation.clock.now() + timedelta(seconds=sum(WAITS_SECONDS[:2]))
    installation.provider.have(Trouble.BEFORE_IT_ACTED, "read_card")
    installation.provider.before = lambda _, __: (
        installation.provider.recover() if installation.clock.now() >= back_at else None
    )
    importing = Import(installation, *rows)

    assert (importing.run(), importing.told) == (2, [])


def test_a_card_import_ends_if_the_psp_stays_unavailable(installation: Installation) -> None:
    importing = Import(installation, *some_rows(installation, MAX_LEFT_OUT + 1))
    installation.provider.have(Trouble.BEFORE_IT_ACTED, "read_card")

    with pytest.raises(PspSilent, match="or remove the lines reported above"):
        importing.run()

    lines = [line for line, _ in importing.told]
    assert lines == list(range(2, 2 + MAX_LEFT_OUT))
    installation.provider.recover()
    assert importing.run() == MAX_LEFT_OUT + 1


def test_card_compare_lists_cards_that_are_only_at_the_psp_or_only_on_file(
    installation: Installation, command_line: CommandLine
) -> None:
    account, card = installation.stored_card(), installation.card_at_psp()
    compare = ("card", "compare", "--account", MERCHANT)

    found = command_line.run(*compare)
    assert (found.exit_code, found.stderr) == (1, "cards that are in both places: 1\n")
    header, line = found.stdout.splitlines()
    assert header.split() == ["ONLY", "TOKEN", "GUEST_REFERENCE", "GUEST", "ACCOUNT_ID"]
    assert line.split() == ["at_psp", card.token, card.guest_reference, "-", "-"]

    installation.psp.discard(MERCHANT, card.guest_reference, card.token)
    found = command_line.run(*compare, "--json")
    assert (found.exit_code, found.stdout) == (0, "[]\n")
    installation.psp.discard(MERCHANT, account.guest_reference, account.token)
    found = command_line.run(*compare)
    assert found.exit_code == 1
    assert found.stdout.splitlines()[1].split()[::4] == ["on_file", account.account_id]
    refused = command_line.refuses(*compare, "--provider", "acme")
    assert refused == f"no PSP that is set up can list the cards of the merchant account {MERCHANT}"
