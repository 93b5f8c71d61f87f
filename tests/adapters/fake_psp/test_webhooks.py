from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from typing_extensions import override

from adapters.fake_psp.database import PspUnavailable
from adapters.fake_psp.provider import FakeProvider
from adapters.fake_psp.psp import FakePsp
from adapters.fake_psp.webhooks import GIVE_UP_AFTER, RETRY_AFTER, RETRY_EVERY, WebhookSender
from adapters.psp_suite.clock import SettableClock
from adapters.psp_suite.ids import SeededIds
from domain.psps.webhook import WebhookDelivery, WebhookNotice
from tests.adapters.fake_psp.conftest import (
    BASE_URL,
    CHALLENGE,
    DECLINED,
    MAIN,
    REQUEST,
    card_entry,
    hosted_page_request,
)
from tests.event_receiver import EventReceiver, Received
from tests.waiting import wait_until


class Site(EventReceiver):
    """Receives what a PSP sends about its pages. It responds with `statuses`, then with 200."""

    def __init__(self, psp: FakePsp) -> None:
        super().__init__()
        self.statuses: list[int] = []
        self.psp, self.clock = psp, psp.clock
        self.sender = WebhookSender(psp, url=self.url)

    @override
    def respond(self, _request: Received) -> int:
        return self.statuses.pop(0) if self.statuses else 200

    def deliver_due(self) -> int:
        return self.sender.deliver_due(self.clock.now())

    def notices(self, number: int = -1) -> Sequence[WebhookNotice]:
        """Return what a delivery reports. Without `number`, this is the last delivery."""
        sent = self.received[number]
        provider = FakeProvider(self.psp, webhook_secret=self.psp.webhook_secret, clock=self.clock)
        return provider.read_webhook(WebhookDelivery(headers=sent.headers, body=sent.body))


@pytest.fixture
def site(psp: FakePsp) -> Iterator[Site]:
    with Site(psp) as site:
        yield site
        site.sender.stop()


def complete_a_page(psp: FakePsp, session: int = 1) -> str:
    reference = psp.start_page(hosted_page_request(session)).reference
    psp.try_card(reference, card_entry())
    return reference


def test_a_completed_or_closed_page_is_reported_by_one_webhook(
    site: Site, clock: SettableClock
) -> None:
    reference = complete_a_page(site.psp)
    assert site.deliver_due() == 1
    (notice,) = site.notices()
    assert (notice.page_reference, notice.token_id) == (reference, REQUEST.token_id)
    # The address names no merchant account, so the event does.
    assert notice.merchant_account == MAIN
    assert notice.content.startswith("page.completed ")
    clock.advance(GIVE_UP_AFTER)
    assert (site.deliver_due(), len(site.received)) == (0, 1)
    closed = site.psp.start_page(hosted_page_request(2))
    for _ in range(2):
        site.psp.close_page(closed.reference)
    assert site.deliver_due() == 1
    assert [each.content.split()[0] for each in site.notices()] == ["page.closed"]


def test_each_refused_card_of_an_open_page_is_reported_by_a_webhook(site: Site) -> None:
    reference = site.psp.start_page(REQUEST).reference
    site.psp.try_card(reference, card_entry(DECLINED))
    site.psp.try_card(reference, card_entry(CHALLENGE))
    assert site.deliver_due() == 1
    first = site.notices()
    site.psp.answer_challenge(reference, confirmed=False)
    assert site.deliver_due() == 1
    told = [(each.content.split()[0], each.page_reference) for each in (*first, *site.notices())]
    assert told == [("page.card_refused", reference)] * 2


def test_a_webhook_that_was_rejected_is_sent_again_with_a_new_signature(
    site: Site, clock: SettableClock
) -> None:
    site.statuses = [500, 302]
    complete_a_page(site.psp)
    for delivered in (0, 0, 1):
        clock.advance(timedelta(hours=1))
        assert site.deliver_due() == delivered
    first, second, _ = site.received
    assert second.body == first.body
    assert second.headers["fake-psp-signature"] != first.headers["fake-psp-signature"]
    assert site.notices()


# Shows F31.
def test_retries_of_a_webhook_become_less_frequent(site: Site, clock: SettableClock) -> None:
    site.statuses = [500] * 1000
    complete_a_page(site.psp)
    for tries, wait in enumerate((*RETRY_AFTER, RETRY_EVERY, RETRY_EVERY), 1):
        site.deliver_due()
        clock.advance(wait - timedelta(milliseconds=1))
        site.deliver_due()
        assert len(site.received) == tries
        clock.advance(timedelta(milliseconds=1))
    clock.advance(GIVE_UP_AFTER)
    site.deliver_due()
    clock.advance(RETRY_EVERY)
    site.deliver_due()
    assert len(site.received) == tries + 1


# Shows F32.
def test_a_webhook_that_cannot_be_delivered_does_not_delay_other_webhooks(
    site: Site, clock: SettableClock
) -> None:
    site.statuses = [500]
    for session in (1, 2, 3):
        complete_a_page(site.psp, session)
    assert (site.deliver_due(), len(site.received)) == (2, 3)
    clock.advance(RETRY_AFTER[0])
    assert site.deliver_due() == 1


def test_a_webhook_to_an_unreachable_or_broken_server_is_retried(
    psp: FakePsp, clock: SettableClock
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"nonsense\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        complete_a_page(psp)
        sender = WebhookSender(psp, url=f"http://127.0.0.1:{server.getsockname()[1]}/")
        assert sender.deliver_due(clock.now()) == 0
        thread.join()
    clock.advance(timedelta(hours=1))
    with capture_logs() as logs:
        assert sender.deliver_due(clock.now()) == 0
    assert [(line["event"], line["tries"]) for line in logs] == [("webhook_not_taken", 2)]


def test_a_webhook_that_is_being_sent_is_not_sent_by_another_process(
    psp: FakePsp, database: Path, clock: SettableClock
) -> None:
    other = FakePsp(database, base_url=BASE_URL, clock=clock, ids=SeededIds(2))
    complete_a_page(psp)
    until = clock.now() + timedelta(seconds=30)
    assert psp.take_due_event(clock.now(), until=until) is not None
    assert other.take_due_event(clock.now(), until=until) is None
    clock.advance(timedelta(seconds=30))
    event = other.take_due_event(clock.now(), until=clock.now() + timedelta(seconds=30))
    assert event is not None
    assert event.tries == 2


def test_the_sender_thread_sends_new_webhooks_immediately(site: Site) -> None:
    site.sender.start()
    site.sender.start()
    complete_a_page(site.psp, 1)
    wait_until(lambda: len(site.received) == 1)
    complete_a_page(site.psp, 2)
    wait_until(lambda: len(site.received) == 2)
    site.sender.stop()
    site.sender.stop()
    assert all(thread.name != "fake-psp-webhooks" for thread in threading.enumerate())

    complete_a_page(site.psp, 3)
    assert site.deliver_due() == 0
    # Started again, it sends what was left.
    site.sender.start()
    wait_until(lambda: len(site.received) == 3)
    site.sender.stop()


def test_an_unusable_database_file_is_logged_once_with_its_name(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def fail(_: object) -> int:
        tries.append(1)
        # The next look comes at once.
        site.psp.events_written.set()
        raise PspUnavailable("/srv/cards-fake-psp.db: disk I/O error")

    monkeypatch.setattr(site.sender, "deliver_due", fail)
    with capture_logs() as logs:
        site.sender.start()
        wait_until(lambda: len(tries) > 3)
        site.sender.stop()

    (line,) = logs
    assert line["event"] == "fake_psp_database_unavailable"
    assert line["cause"] == "/srv/cards-fake-psp.db: disk I/O error"
