"""Helpers for tests in which a guest agrees to the terms of a booking."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from adapters.psp_suite.samples import GUEST_ID
from domain.agreements.agreement import MAX_OPEN_AGREEMENTS, Agreement
from domain.agreements.click import ShownAgreement
from domain.cards.account import Account
from domain.hosted_payments.find_page_content import PageContent
from domain.hosted_payments.show_agreement import name_of
from domain.identifiers import AgreementId
from domain.sessions.session import CardSession
from tests.builders import CENTER_ID
from tests.databases import committed
from tests.installation import GOOD_CARD, Installation

DAY: Final = timedelta(days=1)
BROWSER: Final = "a-secret-of-this-browser"


def takes_agreements(installation: Installation, language: str = "en") -> None:
    installation.container.set_center()(CENTER_ID, {"time_zone": "Europe/Berlin"})
    installation.container.set_reservation_text()(CENTER_ID, language)


def a_booking(installation: Installation, in_days: int = 10, **changes: Any) -> dict[str, Any]:
    """Return the `agreement` field of an add-card request for a booking in `in_days` days."""
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


def page_content(installation: Installation, session: CardSession) -> PageContent:
    found = installation.container.find_page_content()(key=session.link_key, browser=BROWSER)
    assert found is not None
    return found


def agreement_on_page(installation: Installation, session: CardSession) -> ShownAgreement:
    """Open the link in a new browser, and return the agreement that the page shows."""
    found = installation.container.find_page_content()(key=session.link_key)
    assert found is not None
    assert found.agreement is not None
    return found.agreement


def agree(
    installation: Installation,
    session: CardSession,
    *,
    agreed: str = "",
    card: Account | None = None,
    keeps: bool = False,
    browser: str = BROWSER,
    **seen: str,
) -> str:
    """Click the button on the page, or on an earlier page with the digest `agreed`.

    The page offers a `card` on file, if any. `seen` is what the service sees of the browser. Return
    where the browser is sent.
    """
    return installation.use_cases.open_hosted_page(
        key=session.link_key,
        by_click=True,
        agreed=agreed or agreement_on_page(installation, session).digest,
        card=name_of(card) if card else None,
        keeps=keeps,
        browser=browser,
        **seen,
    )


def started(installation: Installation, **changes: Any) -> CardSession:
    agreement = changes.pop("agreement", None) or a_booking(installation)
    return installation.add_card(agreement=agreement, **changes)


def second_booking(installation: Installation, **changes: Any) -> CardSession:
    """Return a session for another booking, whose page may offer the card on file."""
    # Agreements that are made at the same instant have no order.
    installation.clock.advance(timedelta(minutes=1))
    reuse = changes.pop("reuse", "offer")
    booking = a_booking(installation, 20, reference="booking-18", reuse=reuse)
    return started(installation, agreement=booking, **changes)


def guaranteed(
    installation: Installation, number: str = GOOD_CARD, *, keeps: bool = False, **changes: Any
) -> CardSession:
    """Return a session in which the guest agreed to the terms and typed a card."""
    session = started(installation, **changes)
    agree(installation, session, keeps=keeps)
    installation.type_card_and_return(session, number)
    return installation.session(session.token_id)


def guaranteed_card(installation: Installation, **changes: Any) -> Account:
    """Return the guest's only card, which guarantees a booking."""
    session = guaranteed(installation, **changes)
    (account,) = installation.accounts(session.guest_id)
    return account


def agreements(installation: Installation, account: Account) -> list[Agreement]:
    with installation.storage.read() as unit:
        return [*unit.agreements.of_account(account.account_id)]


def has_20_open_agreements(installation: Installation, account: Account) -> None:
    """Copy the only agreement of a card until the card has as many as it may have."""
    (first,) = agreements(installation, account)
    with committed(installation.storage) as unit:
        for _ in range(1, MAX_OPEN_AGREEMENTS):
            unit.agreements.add(replace(first, agreement_id=AgreementId(installation.ids.uuid())))


def end(
    installation: Installation,
    agreement: Agreement,
    *reasons: str,
    at: str | None = None,
    guest_id: str = GUEST_ID,
) -> None:
    """End an agreement for one of the `reasons`, or as cancelled if none is given."""
    installation.container.end_agreement()(
        installation.caller,
        guest_id=guest_id,
        agreement_id=agreement.agreement_id,
        reasons=reasons or ["cancelled"],
        ats=[] if at is None else [at],
    )
