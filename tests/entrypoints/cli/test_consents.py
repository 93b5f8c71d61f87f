"""`cardonfile consent`."""

from __future__ import annotations

import json

import pytest

from adapters.psp_suite.samples import NOW, a_uuid
from domain.identifiers import TokenId
from tests.builders import CENTER_ID, a_consent, a_shipped_consent, an_account
from tests.databases import committed
from tests.entrypoints.conftest import CommandLine

SHOW = ("consent", "show", a_uuid(101))


def store(cardonfile: CommandLine) -> None:
    """Store an account that was renewed and removed."""
    with committed(cardonfile.storage) as unit:
        unit.accounts.add(an_account(removed_at=NOW))
        unit.consents.add(a_consent())
        earlier = NOW.replace(year=2025)
        unit.consents.add(
            a_consent(token_id=TokenId(a_uuid(7)), version="2025-01", text="Old", agreed_at=earlier)
        )


def test_consent_show_starts_with_the_consent_that_applies_to_the_card(
    cardonfile: CommandLine,
) -> None:
    store(cardonfile)

    assert cardonfile.succeeds(*SHOW) == (
        "AGREED_AT             VERSION  LANGUAGE  TEXT\n"
        "2026-03-04T05:06:07Z  2026-11  en        You may charge my card.\n"
        "2025-03-04T05:06:07Z  2025-01  en        Old\n"
    )
    assert json.loads(cardonfile.succeeds(*SHOW, "--json"))[1] == {
        "agreed_at": "2025-03-04T05:06:07.800009Z",
        "version": "2025-01",
        "language": "en",
        "text": "Old",
    }


GERMAN = ("consent", "set", "--center", CENTER_ID, "--language", "de")


def versions(cardonfile: CommandLine) -> dict[str, str]:
    shown = json.loads(cardonfile.succeeds("center", "show", CENTER_ID, "--json"))
    consents: dict[str, str] = shown["consents"]
    return consents


def test_consent_set_shows_the_text_that_it_stores(with_center: CommandLine) -> None:
    printed = with_center.succeeds(*GERMAN)

    assert printed == (
        "guests of Harbor Spa agree to this, version 2026-11:\n"
        f"  {a_shipped_consent(language='de').text}\n"
    )
    assert versions(with_center) == {"de": "2026-11"}
    assert with_center.succeeds(*GERMAN, "--none") == "guests of Harbor Spa read no text in de\n"
    assert versions(with_center) == {}
    file = with_center.folder / "text.txt"
    file.write_text("Ich erlaube {center},\nmeine Karte zu belasten. – ä\n")
    custom = with_center.succeeds(*GERMAN, "--file", str(file))
    assert "  Ich erlaube Harbor Spa, meine Karte zu belasten. – ä\n" in custom
    assert versions(with_center)["de"].startswith("own-")
    english = ("consent", "set", "--center", CENTER_ID, "--language", "en", "--none")
    assert with_center.succeeds(*english) == "guests of Harbor Spa read the shipped English text\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\xff", "--file: the text is not UTF-8: save the file as UTF-8"),
        (b"a" * 20_000, "--file must be 1 to 5000 characters"),
        (b"{guest}", "--file must be 1 to 5000 characters"),
    ],
)
def test_consent_set_refuses_a_file_that_is_not_a_valid_consent_text(
    with_center: CommandLine, content: bytes, expected: str
) -> None:
    file = with_center.folder / "text.txt"
    file.write_bytes(content)

    assert with_center.refuses(*GERMAN, "--file", str(file)).startswith(expected)
    assert versions(with_center) == {}


def test_commands_warn_if_guests_will_not_see_the_consent_text_in_the_chosen_language(
    with_center: CommandLine,
) -> None:
    for language, found in (("ja", "ja --file YOUR_TEXT"), ("it-CH", "it")):
        result = with_center.run("center", "set", CENTER_ID, "--language", language)
        assert result.exit_code == 0
        assert result.stderr.endswith(f"consent set --center {CENTER_ID} --language {found}\n")
        assert with_center.run("center", "show", CENTER_ID).stderr == result.stderr
    keys = {
        "CARDONFILE_STRIPE_SECRET_KEY": "sk_test_x",
        "CARDONFILE_STRIPE_WEBHOOK_SECRETS": "whsec_x",
    }
    with_center.succeeds("configure-payments", CENTER_ID, "--provider", "stripe", **keys)
    arabic = with_center.run("consent", "set", "--center", CENTER_ID, "--language", "ar", **keys)
    assert arabic.stderr.startswith("stripe's page does not support ar, so guests do not see")
    assert with_center.run(*GERMAN, **keys).stderr == ""


BOOKINGS = ("consent", "set", "--center", CENTER_ID, "--for", "reservation", "--language")


def test_consent_set_shows_the_booking_text_with_an_example_booking(
    with_center: CommandLine,
) -> None:
    file = with_center.folder / "text.toml"
    file.write_text('text = "Agree"')
    no_texts = with_center.refuses(*BOOKINGS, "en", "--file", str(file))
    assert no_texts.startswith("--file must be a TOML file with the texts text, text_when_late, ")
    assert with_center.refuses(*BOOKINGS, "en") == (
        "--center must be a center with a time zone: set it with `cardonfile center set --time-zone`"
    )
    with_center.succeeds("center", "set", CENTER_ID, "--time-zone", "Europe/Berlin")

    lines = with_center.succeeds(*BOOKINGS, "en").splitlines()

    assert lines[0].startswith("the text of Harbor Spa about bookings, version booking-2026-11, ")
    assert lines[1].startswith("  Harbor Spa keeps this card to guarantee your booking: ")
    assert "2 × massage" in lines[1]
    assert lines[-2:] == [
        "  [ ] Also keep this card for later visits",
        "  [Agree and guarantee the booking]",
    ]
    show = ("center", "show", CENTER_ID)
    assert "reservation_texts  en booking-2026-11" in with_center.succeeds(*show)
    removed = "Harbor Spa has no text about bookings in en\n"
    assert with_center.succeeds(*BOOKINGS, "en", "--none") == removed
    assert "reservation_texts  none" in with_center.succeeds(*show)
