"""Bookings to whose terms a guest agrees."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from domain.agreements.agreement import Agreement
from domain.cards.account import Account
from domain.hosted_payments.find_way_back import WayBack
from domain.sessions.session import CardSession
from tests.builders import CENTER_ID
from tests.installation import GOOD_CARD, Installation

DAY: Final = timedelta(days=1)
BROWSER: Final = "a-secret-of-this-browser"


def takes_agreements(installation: Installation, language: str = "en") -> None:
    installation.container.set_center()(CENTER_ID, {"time_zone": "Europe/Berlin"})
    installation.container.set_reservation_text()(CENTER_ID, language)


def a_booking(installation: Installation, in_days: int = 10, **changes: Any) -> dict[str, Any]:
    """Return the agreement of add-card for a booking some days ahead."""
    starts_at = installation.clock.now() + in_days * DAY
    return {
        "reference": "booking-17",
        "description": "2 × massage",
        "starts_at": starts_at.isoformat(),
        "ends_at": (starts_at + timedelta(hours=1)).isoformat(),
        "no_show": {"amount": "80.00", "currency": "EUR"},
        "late_cancellation": {"amount": "40.00", "currency": "EUR"},
        "cancel_by": (starts_at - DAY).isoformat(),
        **changes,
    }


def way_back(installation: Installation, session: CardSession) -> WayBack:
    found = installation.container.find_way_back()(key=session.link_key, browser=BROWSER)
    assert found is not None
    return found


def agree(
    installation: Installation,
    session: CardSession,
    *,
    keeps: bool = False,
    browser: str = BROWSER,
    **seen: str,
) -> None:
    """Open the link in a new browser, and click the button on the page in this browser.

    `seen` is what the service sees of the browser.
    """
    found = installation.container.find_way_back()(key=session.link_key)
    assert found is not None
    assert found.agreement is not None
    installation.use_cases.open_hosted_page(
        key=session.link_key,
        by_click=True,
        agreed=found.agreement.digest,
        keeps=keeps,
        browser=browser,
        **seen,
    )


def started(installation: Installation, **changes: Any) -> CardSession:
    agreement = changes.pop("agreement", None) or a_booking(installation)
    return installation.add_card(agreement=agreement, **changes)


def guaranteed(
    installation: Installation, number: str = GOOD_CARD, *, keeps: bool = False, **changes: Any
) -> CardSession:
    """Return a session in which the guest agreed and typed a card."""
    session = started(installation, **changes)
    agree(installation, session, keeps=keeps)
    installation.type_card(session, number)
    installation.return_to_shop(session)
    return installation.session(session.token_id)


def agreements(installation: Installation, account: Account) -> list[Agreement]:
    with installation.storage.read() as unit:
        return [*unit.agreements.of_account(account.account_id)]
