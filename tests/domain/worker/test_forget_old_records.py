"""Old records are deleted, each kind after its own time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from domain.cards.account import Account
from domain.cards.consent import GivenConsent
from tests.installation import OTHER_GOOD_CARD, Installation


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """An installation with retention times of its own."""
    installation = Installation(
        tmp_path, CARDONFILE_RETENTION="sessions=10,cards=20,audit=30,deliveries=1"
    )
    yield installation
    installation.close()


def forget_after(installation: Installation, days: int) -> None:
    installation.clock.advance(timedelta(days=days))
    installation.container.forget_old_records()()


def consents(installation: Installation, account: Account) -> Sequence[GivenConsent]:
    with installation.storage.read() as unit:
        return unit.consents.of(account)


def test_each_kind_goes_after_its_time(installation: Installation) -> None:
    kept, removed = installation.stored_card(), installation.removed_card(OTHER_GOOD_CARD)
    installation.reconcile_until_idle()

    forget_after(installation, 11)
    with installation.storage.read() as unit:
        assert unit.sessions.get(removed.token_id) is None
        assert unit.accounts.get(removed.account_id) is not None
        assert len(unit.audit_trail.latest()) == 1

    forget_after(installation, 10)
    with installation.storage.read() as unit:
        assert unit.accounts.get(removed.account_id) is None
        assert len(unit.audit_trail.latest()) == 1

    forget_after(installation, 10)
    with installation.storage.read() as unit:
        assert len(unit.audit_trail.latest()) == 0
    assert installation.accounts() == (installation.account(kept.account_id),)


def test_the_consent_of_an_active_card_outlives_its_session(installation: Installation) -> None:
    account = installation.stored_card()
    (before,) = consents(installation, account)
    forget_after(installation, 11)
    assert consents(installation, account) == [before]
    assert before.text


def test_the_consent_of_a_removed_card_goes_with_it(installation: Installation) -> None:
    account = installation.removed_card()
    installation.reconcile_until_idle()
    forget_after(installation, 21)
    assert consents(installation, account) == []


def test_a_card_that_the_psp_still_holds_stays(installation: Installation) -> None:
    account = installation.removed_card()
    forget_after(installation, 21)
    with installation.storage.read() as unit:
        assert unit.accounts.get(account.account_id) is not None
