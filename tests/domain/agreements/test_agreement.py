"""When an agreement ends, and how long it keeps the card."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from domain.agreements.agreement import EndOfAgreement
from tests.builders import an_agreement

HOUR = timedelta(hours=1)
AGREEMENT = an_agreement()
ENDS_AT, KEPT_UNTIL = AGREEMENT.terms.ends_at, AGREEMENT.kept_until


def test_an_agreement_is_open_until_the_booking_ends() -> None:
    assert AGREEMENT.is_open(ENDS_AT - HOUR)
    assert not AGREEMENT.is_open(ENDS_AT)


def test_an_agreement_that_was_ended_early_is_no_longer_open() -> None:
    ended = AGREEMENT.ended(EndOfAgreement.CANCELLED, ENDS_AT - HOUR)
    assert not ended.is_open(ENDS_AT - HOUR)
    assert (ended.reason, ended.ended_at) == (EndOfAgreement.CANCELLED, ENDS_AT - HOUR)


def test_an_agreement_allows_charges_until_the_time_that_the_guest_was_shown() -> None:
    over = AGREEMENT.ended(None, ENDS_AT)
    for agreement in (AGREEMENT, over):
        assert agreement.allows_charges(KEPT_UNTIL - HOUR)
        assert not agreement.allows_charges(KEPT_UNTIL)


@pytest.mark.parametrize("reason", EndOfAgreement)
def test_an_agreement_that_was_ended_or_replaced_allows_no_charges(reason: EndOfAgreement) -> None:
    assert not AGREEMENT.ended(reason, ENDS_AT).allows_charges(ENDS_AT)


@pytest.mark.parametrize(
    ("ended_at", "kept_until"),
    [
        (None, KEPT_UNTIL),
        (ENDS_AT - timedelta(days=2), KEPT_UNTIL - timedelta(days=2)),
        # The guest read that the card is removed at this time.
        (ENDS_AT + timedelta(days=2), KEPT_UNTIL),
    ],
    ids=["not ended early", "ended early", "ended late"],
)
def test_a_card_is_kept_for_the_grace_period_after_its_agreement_ended(
    ended_at: datetime | None, kept_until: datetime
) -> None:
    ended = AGREEMENT if ended_at is None else AGREEMENT.ended(EndOfAgreement.FULFILLED, ended_at)
    assert ended.keeps_card_until == kept_until


def test_a_clock_that_is_behind_does_not_shorten_the_grace_period() -> None:
    ended = AGREEMENT.ended(EndOfAgreement.CANCELLED, AGREEMENT.agreed_at - timedelta(days=30))
    assert ended.keeps_card_until == AGREEMENT.agreed_at + AGREEMENT.grace
