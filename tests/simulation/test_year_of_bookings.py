"""Simulates a year of bookings in Berlin, with summer time, wrong clocks and service outages."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Final
from zoneinfo import ZoneInfo

import pytest

from adapters.psp_suite.samples import GUEST_ID, OTHER_GUEST_ID
from domain.identifiers import AccountId
from tests.builders import a_guest
from tests.domain.agreements.bookings import BROWSER, DAY, takes_agreements
from tests.installation import GOOD_CARD, OTHER_GOOD_CARD, Installation

BERLIN: Final = ZoneInfo("Europe/Berlin")
GRACE: Final = 7 * DAY


@dataclass
class Year:
    """An installation with its bookings.

    `kept_until` contains, for each card, the times until which the guest was told it will be kept.
    """

    installation: Installation
    chance: Random
    kept_until: defaultdict[AccountId, list[datetime]] = field(
        default_factory=lambda: defaultdict(list)
    )
    bookings: int = 0
    clicks: int = 0

    def book(self) -> None:
        """Book a visit at nine in the morning in Berlin, and agree to the terms on the page."""
        it, chance = self.installation, self.chance
        self.bookings += 1
        day = it.clock.now().astimezone(BERLIN) + chance.randrange(1, 40) * DAY
        starts_at = day.replace(hour=9, minute=0, second=0, microsecond=0)
        guest = chance.choice((GUEST_ID, OTHER_GUEST_ID))
        session = it.add_card(
            guest_id=guest,
            agreement={
                "reference": f"booking-{self.bookings}",
                "description": "2 × massage",
                "starts_at": starts_at.isoformat(),
                "ends_at": (starts_at + timedelta(hours=1)).isoformat(),
                "no_show": {"amount": "80.00", "currency": "EUR"},
                "reuse": chance.choice(("never", "offer")),
            },
        )
        page = it.container.find_page_content()(key=session.link_key)
        assert page is not None
        assert page.agreement is not None
        assert f"{starts_at:%B} {starts_at.day}, {starts_at.year}, 9:00" in page.agreement.text.text
        it.use_cases.open_hosted_page(
            key=session.link_key,
            by_click=True,
            agreed=page.agreement.digest,
            card=page.card_name,
            browser=BROWSER,
        )
        self.clicks += page.card is not None
        if page.card is None:
            it.type_card(session, chance.choice((GOOD_CARD, OTHER_GOOD_CARD)))
            it.return_to_shop(session)
        account_id = it.session(session.token_id).account_id
        assert account_id is not None
        until = starts_at.astimezone(UTC) + timedelta(hours=1) + GRACE
        self.kept_until[account_id].append(until)

    def work(self) -> None:
        """Do all due work, as the worker does."""
        self.installation.container.end_agreements()()
        self.installation.container.remove_ended_cards()()
        self.installation.reconcile()

    def check(self) -> None:
        """Check that each card was removed after its last booking and not earlier."""
        now = self.installation.clock.now()
        for account_id, times in self.kept_until.items():
            account = self.installation.account(account_id)
            assert (account.removed_at is not None) == (max(times) < now)
            assert account.removed_at is None or account.removed_at > max(times)


def test_over_a_year_each_card_is_kept_exactly_as_long_as_its_guest_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation, chance = Installation(tmp_path), Random(45)
    clock = installation.clock
    takes_agreements(installation)
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    year, end = Year(installation, chance), clock.now() + 366 * DAY
    while clock.now() < end:
        # The service may be stopped for some days.
        clock.advance(chance.choice((1, 1, 1, 1, 2, 6)) * timedelta(hours=chance.randrange(20, 50)))
        if chance.randrange(8) == 0:
            wrong_by = chance.choice((-30, -1, 1, 30)) * DAY
            with monkeypatch.context() as patch:
                # After a jump, a clock counts as unsteady for a while.
                patch.setattr(clock, "is_steady", lambda: False)
                clock.advance(wrong_by)
                year.work()
                clock.advance(-wrong_by)
        year.work()
        year.check()
        if chance.randrange(2) == 0:
            year.book()
    removed = [
        each for each in year.kept_until if installation.account(each).removed_at is not None
    ]
    assert len(removed) > 10
    assert year.clicks > 10
    installation.close()
