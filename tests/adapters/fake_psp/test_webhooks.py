from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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
from domain.psps.hosted_page import WebhookDelivery
from tests.adapters.fake_psp.conftest import (
    BASE_URL,
    CHALLENGE,
    DECLINED,
    card_entry,
    hosted_page_request,
)
from tests.waiting import LIMIT_SECONDS, wait_until


class Receiver(ThreadingHTTPServer):
    """An HTTP server that keeps what it receives, and responds with `statuses`, then with 200."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receive)
        self.received: queue.Queue[WebhookDelivery] = queue.Queue()
        self.statuses: list[int] = []
        self.url = f"http://127.0.0.1:{self.server_port}/webhooks/fake"

    def take(self) -> WebhookDelivery:
        return self.received.get(timeout=LIMIT_SECONDS)


class _Receive(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Receiver)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.path == "/webhooks/fake":
            self.server.received.put(WebhookDelivery(headers=headers, body=body))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        self.send_response(status)
        if status in (301, 302, 307, 308):
            self.send_header("Location", "/webhooks/fake")
        self.send_header("Content-Length", "0")
        self.end_headers()

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    # With the default interval, `shutdown` takes half a second.
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def sender(psp: FakePsp, receiver: Receiver) -> WebhookSender:
    return WebhookSender(psp, url=receiver.url)


def complete_a_page(psp: FakePsp, session: int = 1) -> str:
    reference = psp.start_page(hosted_page_request(session=session)).reference
    psp.try_card(reference, card_entry())
    return reference


def test_a_completed_page_is_reported_once(
    psp: FakePsp,
    sender: WebhookSender,
    receiver: Receiver,
    provider: FakeProvider,
    clock: SettableClock,
) -> None:
    reference = complete_a_page(psp)
    assert sender.deliver_due(clock.now()) == 1
    (notice,) = provider.read_webhook(receiver.take())
    assert notice.page_reference == reference
    assert notice.token_id == hosted_page_request().token_id
    assert notice.content.startswith("page.completed ")
    clock.advance(GIVE_UP_AFTER)
    assert sender.deliver_due(clock.now()) == 0
    assert receiver.received.empty()


def test_a_closed_page_is_reported(
    psp: FakePsp,
    sender: WebhookSender,
    receiver: Receiver,
    provider: FakeProvider,
    clock: SettableClock,
) -> None:
    page = psp.start_page(hosted_page_request())
    psp.close_page(page.reference)
    psp.close_page(page.reference)
    assert sender.deliver_due(clock.now()) == 1
    (notice,) = provider.read_webhook(receiver.take())
    assert notice.content.startswith("page.closed ")


def test_a_page_that_is_not_over_is_not_reported(
    psp: FakePsp, sender: WebhookSender, clock: SettableClock
) -> None:
    reference = psp.start_page(hosted_page_request()).reference
    psp.try_card(reference, card_entry(DECLINED))
    psp.try_card(reference, card_entry(CHALLENGE))
    psp.answer_challenge(reference, confirmed=False)
    assert sender.deliver_due(clock.now()) == 0


@pytest.mark.parametrize("status", [302, 500])
def test_a_rejected_event_is_sent_again_signed_anew(
    psp: FakePsp,
    sender: WebhookSender,
    receiver: Receiver,
    provider: FakeProvider,
    clock: SettableClock,
    status: int,
) -> None:
    receiver.statuses = [status]
    complete_a_page(psp)
    assert sender.deliver_due(clock.now()) == 0
    first = receiver.take()
    assert receiver.received.empty()
    clock.advance(timedelta(hours=1))
    assert sender.deliver_due(clock.now()) == 1
    second = receiver.take()
    assert second.body == first.body
    assert second.headers["fake-psp-signature"] != first.headers["fake-psp-signature"]
    assert provider.read_webhook(second)


# Shows F31.
def test_retries_come_ever_less_often(
    psp: FakePsp, sender: WebhookSender, receiver: Receiver, clock: SettableClock
) -> None:
    receiver.statuses = [500] * 1000
    complete_a_page(psp)
    for wait in (*RETRY_AFTER, RETRY_EVERY, RETRY_EVERY):
        sender.deliver_due(clock.now())
        receiver.take()
        clock.advance(wait - timedelta(milliseconds=1))
        sender.deliver_due(clock.now())
        assert receiver.received.empty()
        clock.advance(timedelta(milliseconds=1))
    clock.advance(GIVE_UP_AFTER)
    sender.deliver_due(clock.now())
    receiver.take()
    clock.advance(RETRY_EVERY)
    sender.deliver_due(clock.now())
    assert receiver.received.empty()


# Shows F32.
def test_a_bad_event_does_not_hold_up_the_others(
    psp: FakePsp,
    sender: WebhookSender,
    receiver: Receiver,
    clock: SettableClock,
) -> None:
    receiver.statuses = [500]
    for session in (1, 2, 3):
        complete_a_page(psp, session)
    assert sender.deliver_due(clock.now()) == 2
    assert receiver.received.qsize() == 3
    clock.advance(RETRY_AFTER[0])
    assert sender.deliver_due(clock.now()) == 1


def test_an_unreachable_or_broken_server_is_tried_again(psp: FakePsp, clock: SettableClock) -> None:
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


def test_an_event_that_is_being_sent_is_not_sent_by_another_process(
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


def test_the_thread_sends_at_once_what_is_written(
    psp: FakePsp, sender: WebhookSender, receiver: Receiver
) -> None:
    sender.start()
    sender.start()
    try:
        complete_a_page(psp, 1)
        receiver.take()
        complete_a_page(psp, 2)
        receiver.take()
    finally:
        sender.stop()
    sender.stop()
    assert all(thread.name != "fake-psp-webhooks" for thread in threading.enumerate())


def test_a_file_that_cannot_be_used_is_in_the_log_once_with_its_name(
    sender: WebhookSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def fail(_: object) -> int:
        tries.append(1)
        # The next look comes at once.
        sender._psp.events_written.set()
        raise PspUnavailable("/srv/cards-fake-psp.db: disk I/O error")

    monkeypatch.setattr(sender, "deliver_due", fail)
    with capture_logs() as logs:
        sender.start()
        wait_until(lambda: len(tries) > 3)
        sender.stop()

    (line,) = logs
    assert line["event"] == "fake_psp_database_unavailable"
    assert line["cause"] == "/srv/cards-fake-psp.db: disk I/O error"


def test_a_sender_that_is_started_again_sends_what_was_left(
    psp: FakePsp, sender: WebhookSender, receiver: Receiver, clock: SettableClock
) -> None:
    sender.start()
    sender.stop()
    complete_a_page(psp)
    assert sender.deliver_due(clock.now()) == 0
    sender.start()
    try:
        receiver.take()
    finally:
        sender.stop()
