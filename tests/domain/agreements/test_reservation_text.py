"""The reservation text: what an operator may write, and what a guest reads."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from typing_extensions import override

from adapters.catalogs import shipped_reservation_texts
from adapters.psp_suite.samples import NOW
from domain.agreements.locale_formats import LocaleFormats
from domain.agreements.reservation_text import MAX_FILE_LENGTH, ReservationText, values_of
from domain.agreements.terms import Money
from domain.errors import InvalidField
from tests.builders import a_center, center_settings, terms_of_a_booking

NOT_NEEDED: Final = {"reference", "ends_at"}
"""Values that the shipped texts do not have."""
SETTINGS: Final = center_settings(time_zone="Europe/Berlin")
OWN: Final = """
text = '''
 {center} keeps the card   for {description}, {reference}, from {starts_at} to {ends_at}.

Free until {cancel_by}.
Late: {late_cancellation}.
No-show: {no_show}.
Ask {contact}.
Terms: {policy_uri}
Gone after {kept_until}.
'''
text_when_late = '''
No longer free.
Late: {late_cancellation}.
No-show: {no_show}.
Gone after {kept_until}.
'''
button = "Agree"
keep = "Keep it, {center}"
on_psp_page = "For {center}, {starts_at}"
"""


class PlainFormats(LocaleFormats):
    """Formats values in the same way for each language."""

    @override
    def decimals_of(self, currency: str) -> int | None:
        return 2

    @override
    def money(self, money: Money, language: str) -> str:
        return f"{money.currency} {money.amount}"

    @override
    def time(self, at: datetime, language: str, time_zone: str) -> str:
        return f"{at:%d.%m.} ({time_zone})"


def values(now: datetime = NOW, **changes: Any) -> dict[str, str | None]:
    terms = replace(terms_of_a_booking(), **changes)
    return values_of(
        terms,
        a_center(),
        SETTINGS,
        PlainFormats(),
        language="en",
        kept_until=NOW + timedelta(days=30),
        now=now,
    )


def read(**changes: Any) -> str:
    """Return the text that a guest reads for a booking whose values have the `changes`."""
    return ReservationText.own("en", OWN).shown(values(**changes)).text


def test_the_reservation_text_contains_the_values_of_the_booking() -> None:
    assert read() == (
        # Each value is isolated, so that right-to-left text does not move signs to the other end.
        "Harbor Spa keeps the card for \N{FIRST STRONG ISOLATE}2 × massage\N{POP DIRECTIONAL ISOLATE}"
        ", \N{FIRST STRONG ISOLATE}booking-17\N{POP DIRECTIONAL ISOLATE}, from 14.03. "
        "(Europe/Berlin) to 14.03. (Europe/Berlin).\n"
        "Free until 13.03. (Europe/Berlin).\n"
        "Late: EUR 40.00.\n"
        "No-show: EUR 80.00.\n"
        "Ask \N{LEFT-TO-RIGHT ISOLATE}+49301234567\N{POP DIRECTIONAL ISOLATE}.\n"
        "Terms: \N{LEFT-TO-RIGHT ISOLATE}https://shop.example/terms\N{POP DIRECTIONAL ISOLATE}\n"
        "Gone after 03.04. (Europe/Berlin)."
    )


@pytest.mark.parametrize(
    ("name", "paragraph"),
    [("no_show", "No-show"), ("late_cancellation", "Late"), ("policy_uri", "Terms")],
)
def test_a_paragraph_of_the_text_is_omitted_if_its_placeholder_has_no_value(
    name: str, paragraph: str
) -> None:
    assert read(**{name: None}) == "\n".join(
        each for each in read().splitlines() if not each.startswith(paragraph)
    )


@pytest.mark.parametrize(
    "changes",
    [{"cancel_by": None}, {"now": terms_of_a_booking().starts_at}],
    ids=["no time is given", "the time has passed"],
)
def test_the_text_changes_when_a_booking_can_no_longer_be_cancelled_free_of_charge(
    changes: dict[str, Any],
) -> None:
    assert read(**changes).splitlines()[0] == "No longer free."


def test_braces_in_the_description_of_a_booking_are_not_treated_as_a_placeholder() -> None:
    assert "{center} {x}" in read(description="{center} {x}")


def test_a_center_without_a_time_zone_shows_times_in_utc() -> None:
    found = values_of(
        terms_of_a_booking(),
        a_center(),
        center_settings(),
        PlainFormats(),
        language="en",
        kept_until=NOW,
        now=NOW,
    )
    assert found["kept_until"] == "04.03. (UTC)"


def test_the_version_of_a_custom_reservation_text_depends_on_its_content() -> None:
    version = ReservationText.own("en", OWN).version
    assert ReservationText.own("en", OWN.replace("card   for", "card for")).version == version
    assert ReservationText.own("en", OWN.replace("Agree", "Yes")).version != version


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ("button", "buton", "TOML file with the texts text, text_when_late, button, keep"),
        ('"Agree"', "5", "TOML file with the texts"),
        ('"Agree"', '"Agree', "TOML file: "),
        ('"Agree"', '" "', "button is text without control"),
        ('"Agree"', f'"{"x" * 81}"', "button of at most 80"),
        ('"Agree"', '"Agree to {description}"', r"button has no braces except \{center\}$"),
        ("Free until {cancel_by}.", "", r"text has \{cancel_by\}"),
        ("Gone after {kept_until}.", "", r"text has \{kept_until\}"),
        ("Late: {late_cancellation}.", "", r"text has \{late_cancellation\}"),
        ("No longer free", "Until {cancel_by}", "text_when_late has no braces except"),
        ("{contact}", "{contact!r}", "text has no braces except"),
        ("{contact}", "{name}", "text has no braces except"),
        ("{contact}", "{contact} and {policy_uri}", r"has \{contact\} and \{policy_uri\} in para"),
        ("{contact}", "{contact} and {kept_until}", r"has \{contact\} and \{kept_until\} in para"),
        ("For {center}", "x" * 301, "on_psp_page of at most 300"),
        ("Agree", "4242424242424242", "text without a card number"),
        ("Agree", "x" * MAX_FILE_LENGTH, "file of at most"),
    ],
)
def test_a_custom_reservation_text_that_would_mislead_guests_is_refused(
    before: str, after: str, complaint: str
) -> None:
    assert before in OWN
    with pytest.raises(InvalidField, match=complaint):
        ReservationText.own("en", OWN.replace(before, after))


@pytest.mark.parametrize("language", sorted(shipped_reservation_texts()))
def test_every_shipped_reservation_text_contains_every_value_of_a_booking(language: str) -> None:
    shown = shipped_reservation_texts()[language].shown(values())
    needed = {name: value for name, value in values().items() if name not in NOT_NEEDED}
    assert [name for name, value in needed.items() if f"{value}" not in shown.text] == []


def test_the_booking_line_for_the_psps_page_contains_no_invisible_characters() -> None:
    own = ReservationText.own("en", OWN.replace("For {center}", "For {description}"))
    assert own.shown(values()).on_psp_page == "For 2 × massage, 14.03. (Europe/Berlin)"
