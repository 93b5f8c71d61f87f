"""What `cardonfile reconcile` does, and what it logs."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from domain.errors import ServiceUnavailable
from domain.events.event import EventType
from domain.sessions.end import SessionStatus
from domain.worker.jobs import End
from entrypoints.worker import job_runner
from tests.event_receiver import EventReceiver
from tests.installation import OTHER_GOOD_CARD, PREPAID_CARD, Installation, Trouble

# Events may be sent to this machine.
pytestmark = pytest.mark.installed(CARDONFILE_EVENT_NETWORKS="127.0.0.0/8")


def add_endpoints(installation: Installation, *receivers: EventReceiver) -> None:
    for receiver in receivers:
        installation.container.add_event_endpoint()(
            url=receiver.url, types=[EventType.ACCOUNT_STORED]
        )


def reconciled(installation: Installation) -> list[Counter[str]]:
    """Reconcile, and return the counts in the log lines."""
    with capture_logs() as logs:
        installation.reconcile()
    return [
        Counter({each.value: line[each.value] for each in End if line[each.value]})
        for line in logs
        if line["event"] == "reconciled"
    ]


def test_reconcile_works_until_nothing_is_due(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_runner, "REPORT_AFTER", 3)
    sessions = [installation.add_card() for _ in range(4)]
    installation.clock.advance(timedelta(minutes=30))

    assert reconciled(installation) == [Counter(settled=3), Counter(settled=1)]
    assert installation.session(sessions[-1].token_id).status is SessionStatus.EXPIRED
    assert installation.reconcile().is_idle


def test_reconcile_logs_the_result_of_its_work(installation: Installation) -> None:
    with EventReceiver() as taking, EventReceiver() as away:
        away.status = 503
        add_endpoints(installation, taking, away)
        # One session has a card, one session waits for its guest, and another card is to be
        # discarded.
        # Each event was stored for both endpoints, and the endpoint that is away is called once.
        installation.removed_card(OTHER_GOOD_CARD)
        installation.stored_card(PREPAID_CARD)
        installation.session_with_card()
        installation.opened_session()
        installation.clock.advance(timedelta(seconds=30))
        installation.provider.have(Trouble.BEFORE_IT_ACTED)
        at_psp, at_endpoints = reconciled(installation)
        assert at_psp == {"waiting_for_psp": 3}
        assert at_endpoints == {"delivered": 2, "not_delivered": 1}
        assert (len(away.received), len(taking.received)) == (1, 2)

        installation.provider.recover()
        installation.clock.advance(timedelta(minutes=1))
        at_psp, at_endpoints = reconciled(installation)
        assert at_psp == {"settled": 1, "open": 1, "discarded": 1}
        assert at_endpoints == {"delivered": 1, "not_delivered": 1}


def test_a_storage_failure_during_reconcile_ends_only_the_affected_kind_of_work(
    installation: Installation,
) -> None:
    removed = installation.removed_card()
    sessions = [installation.session_with_card(OTHER_GOOD_CARD) for _ in range(2)]
    installation.clock.advance(timedelta(seconds=30))

    def go_away() -> None:
        raise ServiceUnavailable

    def settled() -> int:
        return sum(installation.session(each.token_id).is_settled for each in sessions)

    installation.provider.meanwhile["outcome"] = go_away
    with pytest.raises(ServiceUnavailable):
        installation.reconcile()
    assert removed.token not in installation.tokens_at_psp()
    assert settled() == 0

    # The other session is done in the next run, the first one after its lease.
    for expected in (1, 1):
        installation.reconcile()
        assert settled() == expected
    installation.clock.advance(timedelta(minutes=1))
    installation.reconcile()
    assert settled() == 2
