"""An operator sets the reservation texts of a center."""

from __future__ import annotations

from datetime import timedelta

import pytest

from adapters.catalogs import shipped_reservation_texts
from domain.agreements.reservation_text import ReservationText
from domain.agreements.set_reservation_text import SetReservationText
from domain.audit.entry import Action
from domain.centers.center import CenterNotFound
from domain.consents.set_consent import NoTextShipped
from domain.errors import InvalidField
from tests.builders import CENTER_ID, OTHER_CENTER_ID
from tests.databases import audit_trail
from tests.domain.agreements.test_reservation_text import OWN
from tests.installation import Installation


@pytest.fixture
def set_text(installation: Installation) -> SetReservationText:
    installation.container.set_center()(CENTER_ID, {"time_zone": "Europe/Berlin"})
    return installation.container.set_reservation_text()


def stored(installation: Installation) -> list[ReservationText]:
    with installation.storage.read() as unit:
        return [*unit.reservation_texts.of(CENTER_ID)]


def test_the_shipped_reservation_text_is_used_unless_the_operator_supplies_a_text(
    installation: Installation, set_text: SetReservationText
) -> None:
    done = set_text(CENTER_ID, "DE")
    german = shipped_reservation_texts()["de"]
    assert done.text == german
    assert stored(installation) == [german]
    assert done.example is not None
    assert "Harbor Spa" in done.example.text
    assert "40,00 €" in done.example.text.replace("\xa0", " ")

    own = set_text(CENTER_ID, "de", own=OWN).text
    assert own == ReservationText.own("de", OWN)
    assert stored(installation) == [own]


def test_removing_a_reservation_text_is_recorded_in_the_audit_trail(
    installation: Installation, set_text: SetReservationText
) -> None:
    for _ in range(2):
        set_text(CENTER_ID, "de")
    installation.clock.advance(timedelta(seconds=1))
    for _ in range(2):
        done = set_text(CENTER_ID, "de", off=True)
        assert (done.text, done.example) == (None, None)

    assert stored(installation) == []
    entries = audit_trail(installation.storage, about=CENTER_ID)
    assert [each.details for each in entries if each.action is Action.CONSENT_SET] == [
        {"for": "reservation", "language": "de", "version": "none"},
        {"for": "reservation", "language": "de", "version": "booking-2026-11"},
    ]


def test_a_reservation_text_requires_the_center_to_have_a_time_zone(
    installation: Installation,
) -> None:
    with pytest.raises(InvalidField, match="center with a time zone"):
        installation.container.set_reservation_text()(CENTER_ID, "en")
    assert stored(installation) == []


@pytest.mark.parametrize(
    ("center_id", "language", "refusal"),
    [
        (OTHER_CENTER_ID, "en", CenterNotFound),
        (CENTER_ID, "ja", NoTextShipped),
        (CENTER_ID, "", InvalidField),
    ],
)
def test_a_reservation_text_for_an_unknown_center_or_language_is_refused(
    installation: Installation,
    set_text: SetReservationText,
    center_id: str,
    language: str,
    refusal: type[Exception],
) -> None:
    with pytest.raises(refusal):
        set_text(center_id, language)
    assert stored(installation) == []


def test_the_time_zone_of_a_center_with_a_reservation_text_cannot_be_removed(
    installation: Installation, set_text: SetReservationText
) -> None:
    set_text(CENTER_ID, "de")
    set_center = installation.container.set_center()
    with pytest.raises(InvalidField, match="time_zone must be set as long as"):
        set_center(CENTER_ID, {"time_zone": None})
    set_center(CENTER_ID, {"time_zone": "Asia/Tokyo"})
    set_text(CENTER_ID, "de", off=True)
    set_center(CENTER_ID, {"time_zone": None})
