"""The commands about evidence: keys, and verification without a database."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adapters.json_web_signatures import EvidenceKeys
from adapters.psp_suite.samples import GUEST_ID
from domain.audit.entry import Action
from tests.builders import a_center, a_guest, a_session, an_account, an_agreement
from tests.databases import audit_trail, committed
from tests.entrypoints.conftest import CommandLine

ACCOUNT = an_account()
SHOW = ("card", "evidence", ACCOUNT.account_id)


@pytest.fixture
def with_card(cardonfile: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A database with a card that guarantees a booking, and a key."""
    with committed(cardonfile.storage) as unit:
        unit.centers.put_many([a_center()])
        unit.guests.put_many([a_guest()])
        unit.accounts.add(ACCOUNT)
        unit.agreements.add(an_agreement())
        unit.sessions.add(a_session())
    cardonfile.succeeds("evidence", "new-key", keys_of(cardonfile))
    monkeypatch.setenv("CARDONFILE_EVIDENCE_KEYS_FILE", keys_of(cardonfile))
    return cardonfile


def keys_of(cardonfile: CommandLine) -> str:
    return str(cardonfile.folder / "keys.json")


def published(cardonfile: CommandLine) -> Path:
    keys = EvidenceKeys(Path(keys_of(cardonfile)).read_text()).public_keys()
    path = cardonfile.folder / "jwks.json"
    path.write_text(json.dumps({"keys": keys}))
    return path


def test_evidence_verify_works_without_a_database(
    with_card: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence, keys = with_card.folder / "evidence.json", published(with_card)
    evidence.write_text(with_card.succeeds(*SHOW))
    cardonfile_url = f"sqlite:///{with_card.folder / 'elsewhere.db'}"
    with_card.environment["CARDONFILE_DATABASE_URL"] = cardonfile_url
    monkeypatch.delenv("CARDONFILE_EVIDENCE_KEYS_FILE")
    verify = ("evidence", "verify", str(evidence), "--keys", str(keys))

    genuine = f"genuine: about the payment account {ACCOUNT.account_id}, made at "
    assert with_card.succeeds(*verify).startswith(genuine)
    # Evidence of a former key stays valid.
    with_card.succeeds("evidence", "new-key", keys_of(with_card))
    published(with_card)
    assert with_card.succeeds(*verify).startswith(genuine)
    evidence.write_text(evidence.read_text().replace("You may charge my card.", "You may not."))
    assert "the signature is for another document" in with_card.refuses(*verify)


def test_card_evidence_can_be_written_as_an_html_page(with_card: CommandLine) -> None:
    page = with_card.succeeds(*SHOW, "--html")

    assert page.startswith("<!doctype html>")
    assert "You may charge my card." in page
    assert "“Agree”" in page
    (noted,) = audit_trail(with_card.storage)
    assert (noted.action, noted.about) == (Action.EVIDENCE_SHOWN, ACCOUNT.account_id)


def test_card_evidence_about_an_erased_guest_must_be_requested_explicitly(
    with_card: CommandLine,
) -> None:
    assert with_card.run("guest", "erase", GUEST_ID).exit_code == 0

    assert "--after-erasure" in with_card.refuses(*SHOW)
    page = with_card.succeeds(*SHOW, "--after-erasure", "--html")
    assert "zoe@guests.example" not in page


def test_a_new_evidence_key_is_stored_in_a_file_that_only_its_owner_can_read(
    with_card: CommandLine,
) -> None:
    keys = Path(keys_of(with_card))
    assert keys.stat().st_mode & 0o777 == 0o600

    keys.chmod(0o644)
    refused = with_card.refuses(*SHOW)
    assert "CARDONFILE_EVIDENCE_KEYS_FILE must name a file that only its owner can read" in refused
    with_card.succeeds("evidence", "new-key", keys_of(with_card))
    assert keys.stat().st_mode & 0o777 == 0o600
    no_keys = with_card.refuses(*SHOW, CARDONFILE_EVIDENCE_KEYS_FILE="")
    assert "cardonfile evidence new-key" in no_keys


def test_evidence_new_key_does_not_change_a_file_that_contains_no_keys(
    cardonfile: CommandLine,
) -> None:
    notes = cardonfile.folder / "notes.txt"
    notes.write_text("not keys")

    assert "cannot add a key to" in cardonfile.refuses("evidence", "new-key", str(notes))
    assert notes.read_text() == "not keys"
