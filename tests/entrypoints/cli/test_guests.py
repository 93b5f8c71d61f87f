"""The commands that show, export, erase and merge guests."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest

from adapters.psp_suite.samples import (
    GUEST_ID,
    MERCHANT_ACCOUNT,
    NOW,
    OTHER_GUEST_ID,
    TOKEN_ID,
    a_page_request,
    a_uuid,
)
from domain.audit.entry import Action
from domain.billing import BillingInfo
from domain.cards.account import AccountFilter
from domain.errors import PaymentMethodAlreadyExists
from domain.identifiers import EventId, GuestReference, TokenId
from domain.sessions.session import CardSession
from tests.builders import (
    CENTER_ID,
    a_center,
    a_consent,
    a_guest,
    a_page,
    a_psp_guest,
    a_refused_card,
    a_session,
    an_account,
    an_agreement,
    an_attempt,
    an_audit_entry,
    an_event_delivery,
    an_evidence,
)
from tests.contracts.storage.records import OTHER_TOKEN_ID
from tests.databases import change_by_hand, committed, guest_on_file
from tests.entrypoints.conftest import CommandLine

ENDED = ("web-store", "failed", "created", "payment_method_already_exists")
CARD = (
    *("ACCOUNT_ID", "GUEST", "CENTER", "PROVIDER", "MERCHANT_ACCOUNT"),
    *("BRAND", "LAST_FOUR", "EXPIRY"),
)
OF_CARDS = (GUEST_ID, CENTER_ID, "fake", MERCHANT_ACCOUNT, "visa", "4242", "03/31")
RENEWED = TokenId(a_uuid(299))
PAGE = "https://psp.example/pages/secret"


def failed_session() -> CardSession:
    """Return a session that was opened and then failed. Its row contains every kind of secret."""
    request = replace(a_page_request(), return_uri=f"https://cards.example/r?token_id={TOKEN_ID}")
    opened = a_session(
        attempt=an_attempt(request=request, page=a_page(address=PAGE)),
        billing_info=BillingInfo(address="1 Harbor Road", city="Porto"),
    )
    return opened.failed(PaymentMethodAlreadyExists(), NOW + timedelta(minutes=1))


@pytest.fixture
def on_file(cardonfile: CommandLine) -> CommandLine:
    """Return the command line on a database with every kind of data about a guest."""
    stored, removed = an_account(1, is_default=True), an_account(2, removed_at=NOW)
    delivery = an_event_delivery()
    about_another = replace(delivery.event, event_id=EventId("evt_2"), guest_id=OTHER_GUEST_ID)
    with committed(cardonfile.storage) as unit:
        unit.centers.put_many([a_center()])
        unit.guests.put_many([a_guest()])
        unit.sessions.add(failed_session())
        unit.sessions.add(a_session(token_id=OTHER_TOKEN_ID, guest_id=OTHER_GUEST_ID))
        unit.evidence.add(TOKEN_ID, an_evidence(content=f"{TOKEN_ID} unkept-token"), at_most=9)
        unit.refused_cards.add(
            [a_refused_card(), a_refused_card(number=2, guest_id=OTHER_GUEST_ID)]
        )
        for account in (stored, removed, an_account(3, guest_id=OTHER_GUEST_ID)):
            unit.accounts.add(account)
        unit.consents.add(a_consent(token_id=RENEWED))
        unit.agreements.add(an_agreement())
        unit.guest_references.keep(a_psp_guest(), GuestReference("guest-at-psp"))
        unit.event_deliveries.add(delivery)
        unit.event_deliveries.add(replace(delivery, event=about_another))
    return cardonfile


def noted(cardonfile: CommandLine) -> list[tuple[Action, str]]:
    with cardonfile.storage.read() as unit:
        return [(each.action, each.about) for each in unit.audit_trail.latest()]


def exported(cardonfile: CommandLine) -> Any:  # JSON
    return json.loads(cardonfile.succeeds("guest", "export", GUEST_ID))


def test_guest_show_finds_a_guest_by_id_or_email_address_without_showing_the_name(
    on_file: CommandLine,
) -> None:
    lines = [line.split() for line in on_file.succeeds("guest", "show", GUEST_ID).splitlines()]

    time = f"{NOW:%Y-%m-%dT%H:%M:%SZ}"
    stored, removed = an_account(1), an_account(2)
    assert lines == [
        ["id", GUEST_ID],
        [],
        [*CARD, *("DEFAULT", "ADDED", "REMOVED")],
        [removed.account_id, *OF_CARDS, "no", time, time],
        [stored.account_id, *OF_CARDS, "yes", time, "-"],
        [],
        ["PREFIX", "CREATED", "GUEST", "CENTER", "CALLER", "STATUS", "PROGRESS", "REASON"],
        [TOKEN_ID[:8], time, GUEST_ID, CENTER_ID, *ENDED],
    ]
    assert noted(on_file) == []
    address = "ZOE@guests.example"
    by_address = on_file.succeeds("guest", "show", address).splitlines()
    assert [line.split() for line in by_address] == lines
    with committed(on_file.storage) as unit:
        unit.guests.put_many([a_guest(id=OTHER_GUEST_ID)])
    several = on_file.succeeds("guest", "show", address).split()
    assert several == ["ID", *sorted((GUEST_ID, OTHER_GUEST_ID))]


def test_the_audit_trail_records_that_the_name_of_a_guest_was_shown(on_file: CommandLine) -> None:
    options = ("guest", "show", GUEST_ID, "--json")
    shown, without = (json.loads(on_file.succeeds(*options, *p)) for p in (["--personal"], []))

    assert {**without, "name": "Zoë Null", "email": "zoe@guests.example"} == shown
    assert noted(on_file) == [(Action.PERSONAL_DATA_SHOWN, GUEST_ID)]


def test_the_export_of_a_guest_contains_neither_secrets_nor_records_of_other_guests(
    on_file: CommandLine,
) -> None:
    export = exported(on_file)

    assert export["guest"]["email"] == "zoe@guests.example"
    (session,) = export["sessions"]
    assert session["billing_info"]["address"] == "1 Harbor Road"
    assert session["failure"]["type"] == "payment_method_already_exists"
    assert session["attempt"]["page"]["guest_reference"] == "guest-at-psp"
    assert [each["origin"] for each in session["evidence"]] == [an_evidence().origin]
    assert [each["removed_at"] is None for each in export["accounts"]] == [False, True]
    assert [each["text"] for each in export["consents"]] == [a_consent().text]
    assert [each["shown"]["text"] for each in export["agreements"]] == [an_agreement().shown.text]
    assert [each["guest_reference"] for each in export["psp_references"]] == ["guest-at-psp"]
    assert [each["number"] for each in export["refused_cards"]] == [1]
    assert [each["event"]["card"]["last_four"] for each in export["event_deliveries"]] == ["4242"]
    printed = json.dumps(export)
    assert TOKEN_ID[:8] in printed
    secrets = [TOKEN_ID, RENEWED, PAGE, "page-1", "unkept-token", str(a_session().link_key)]
    for number in (1, 2):
        secrets += [an_account(number).token_id, an_account(number).token]
    assert [each for each in (*secrets, OTHER_GUEST_ID) if each in printed] == []


def test_the_export_of_a_guest_contains_the_audit_entries_about_all_its_records(
    on_file: CommandLine,
) -> None:
    abouts = [an_account(1).account_id, TOKEN_ID[:8]]
    with committed(on_file.storage) as unit:
        for number, about in enumerate([*abouts, an_account(3).account_id]):
            unit.audit_trail.add(an_audit_entry(number, about=about))

    assert [each["about"] for each in exported(on_file)["audit_entries"]] == sorted(abouts)
    # Each export is an entry of the next.
    assert len(exported(on_file)["audit_entries"]) == 3
    assert noted(on_file)[:2] == [(Action.GUEST_EXPORTED, GUEST_ID)] * 2


def test_guest_show_shows_cards_even_if_the_record_of_the_guest_is_missing(
    cardonfile: CommandLine,
) -> None:
    with committed(cardonfile.storage) as unit:
        unit.accounts.add(an_account(1))

    shown = json.loads(cardonfile.succeeds("guest", "show", GUEST_ID, "--personal", "--json"))
    assert ([each["brand"] for each in shown["cards"]], "name" in shown) == (["visa"], False)
    assert exported(cardonfile)["guest"] is None


class TestErase:
    @pytest.fixture
    def file(self, cardonfile: CommandLine) -> Path:
        file = cardonfile.folder / "erasures.txt"
        cardonfile.environment["CARDONFILE_ERASURES_FILE"] = str(file)
        return file

    def test_guest_erase_adds_the_guest_to_the_erasure_file_once(
        self, on_file: CommandLine, file: Path
    ) -> None:
        printed, what_is_left = on_file.succeeds("guest", "erase", GUEST_ID).splitlines()
        assert printed == f"erased {GUEST_ID}"
        assert f"`cardonfile guest show {GUEST_ID}` shows the time" in what_is_left
        again = on_file.refuses("guest", "erase", GUEST_ID)
        assert again.startswith(f"guest {GUEST_ID} was erased at 20")

        assert file.read_text().split()[0] == GUEST_ID
        assert file.stat().st_mode & 0o777 == 0o600
        with on_file.storage.read() as unit:
            assert unit.guests.get(GUEST_ID) is None
            accounts = unit.accounts.search(AccountFilter(), limit=9)
        assert [each.removed_at is None for each in accounts] == [True, False, False]
        assert noted(on_file) == [(Action.GUEST_ERASED, GUEST_ID)]
        shown = json.loads(on_file.succeeds("guest", "show", GUEST_ID, "--json"))
        assert datetime.fromisoformat(shown["erased"]) <= datetime.now(UTC)
        assert shown["erased_everywhere"] is None

    def test_erasing_a_guest_without_an_erasure_file_prints_a_warning(
        self, on_file: CommandLine
    ) -> None:
        result = on_file.run("guest", "erase", GUEST_ID)
        assert (result.exit_code, result.stdout.splitlines()[0]) == (0, f"erased {GUEST_ID}")
        assert result.stderr.startswith("Warning: CARDONFILE_ERASURES_FILE is not set")
        again = on_file.refuses("guest", "erase", "--again")
        assert again == "--again needs CARDONFILE_ERASURES_FILE, which is not set"

    def test_a_guest_is_not_erased_while_the_erasure_file_cannot_be_written(
        self, on_file: CommandLine, file: Path
    ) -> None:
        file.mkdir()
        sentence = on_file.refuses("guest", "erase", GUEST_ID)
        assert sentence == f"no guest was erased: CARDONFILE_ERASURES_FILE, {file}: Is a directory"
        assert guest_on_file(on_file.storage, GUEST_ID) is not None

    def test_the_service_does_not_run_while_a_restored_database_contains_erased_guests(
        self, on_file: CommandLine, file: Path
    ) -> None:
        file.write_text(f"{GUEST_ID} 2026-11-20T12:00:00+00:00\n{a_uuid(77)} x\n")
        assert on_file.refuses("reconcile") == (
            "guests that CARDONFILE_ERASURES_FILE lists as erased are in the database (1): a "
            "backup was restored, or a process was killed during an erasure; run `cardonfile guest "
            "erase --again`"
        )

        assert on_file.succeeds("guest", "erase", "--again") == (
            f"erased {GUEST_ID}\nerased {a_uuid(77)}\nerased again: 2\n"
        )
        assert on_file.succeeds("guest", "erase", "--again") == "erased again: 0\n"
        assert on_file.run("reconcile").exit_code == 0
        missing = file.parent / "missing" / file.name
        assert on_file.refuses("reconcile", CARDONFILE_ERASURES_FILE=str(missing)) == (
            f"the folder of CARDONFILE_ERASURES_FILE is missing: create {missing.parent}"
        )

    def test_the_service_does_not_run_if_the_erasure_file_cannot_be_read(
        self, on_file: CommandLine, file: Path
    ) -> None:
        file.symlink_to(file)  # An endless loop. An unreadable file must not count as missing.

        assert on_file.refuses("reconcile") == f"{file}: Too many levels of symbolic links"


class TestMerge:
    @pytest.fixture
    def two(self, on_file: CommandLine) -> CommandLine:
        """Return the command line on a database with a second guest."""
        with committed(on_file.storage) as unit:
            unit.guests.put_many([a_guest(id=OTHER_GUEST_ID, first_name="Adah")])
        return on_file

    def test_guest_merge_shows_both_guests_before_it_asks_for_confirmation(
        self, two: CommandLine
    ) -> None:
        merge = ("guest", "merge", GUEST_ID, "--from", OTHER_GUEST_ID)
        assert two.run(*merge, typed="\n").exit_code != 0
        assert guest_on_file(two.storage, OTHER_GUEST_ID) is not None
        result = two.run(*merge, typed="y\n")

        assert result.exit_code == 0, result.output
        for text in (
            "remaining guest",
            "merged guest",
            "Adah",
            a_guest().full_name,
            an_account(1).last_four,
        ):
            assert text in result.stdout
        assert result.stdout.endswith(f"merged {OTHER_GUEST_ID} into {GUEST_ID}\n")
        assert "This cannot be undone [y/N]" in result.stderr
        assert "CARDONFILE_ERASURES_FILE is not set" in result.stderr
        assert noted(two)[0] == (Action.GUEST_MERGED, OTHER_GUEST_ID)
        shown = json.loads(two.succeeds("guest", "show", OTHER_GUEST_ID, "--json"))
        assert shown["merged_into"] == GUEST_ID
        said = two.refuses("guest", "erase", OTHER_GUEST_ID)
        assert said.startswith(f"guest {OTHER_GUEST_ID} was merged into {GUEST_ID} at 20")

    def test_guest_merge_is_refused_if_a_card_is_added_before_the_confirmation(
        self, two: CommandLine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def add(*_: object, **__: object) -> bool:
            with committed(two.storage) as unit:
                unit.accounts.add(an_account(9, guest_id=OTHER_GUEST_ID, is_default=False))
            return True

        monkeypatch.setattr(click, "confirm", add)
        result = two.run("guest", "merge", GUEST_ID, "--from", OTHER_GUEST_ID)
        assert (result.exit_code, result.stderr) == (1, "Error: Cards do not match\n")

    def test_repeating_erasures_also_repeats_a_merge_that_a_restored_backup_lost(
        self, two: CommandLine
    ) -> None:
        file = two.folder / "erasures.txt"
        two.environment["CARDONFILE_ERASURES_FILE"] = str(file)
        two.succeeds("guest", "merge", GUEST_ID, "--from", OTHER_GUEST_ID, "--yes")
        change_by_hand(two.storage, "DELETE FROM erasures")
        assert two.succeeds("guest", "erase", "--again") == (
            f"merged {OTHER_GUEST_ID} into {GUEST_ID}\nerased again: 1\n"
        )
