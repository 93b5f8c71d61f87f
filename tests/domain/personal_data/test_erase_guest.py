"""Erasing a guest: what is deleted at once, what after the PSP responded, and what stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from adapters.fake_psp.plugin import NAME as FAKE
from adapters.psp_suite.samples import GUEST_ID, OTHER_GUEST_ID, a_uuid
from adapters.sqlite.connection import connect
from domain.audit.entry import Action
from domain.errors import GuestIdNotUsable, GuestNotFound, ServiceUnavailable
from domain.events.event import EventType
from domain.events.note_event import NoteEvent
from domain.guests.guest import Guest
from domain.identifiers import GuestId, GuestReference, MerchantAccount
from domain.personal_data import blank, finish_erasures
from domain.personal_data.erasure import MAX_REQUEST_DURATION
from domain.personal_data.finish_erasures import MAX_PER_CALL, FinishErasures
from domain.psps.hosted_page import HostedPage, HostedPageRequest, Outcome
from domain.psps.payment_provider import UNKNOWN_FOR, ProviderRefused, ProviderUnavailable
from domain.retries import MIN_BACKOFF
from domain.sessions.end import SessionStatus
from domain.sessions.polling import ASK_AGAIN_AFTER
from domain.sessions.session import CardSession
from domain.storage import RecordUnreadable, WriteUnit
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_guest, a_psp_guest, an_agreement
from tests.databases import audit_trail, change_by_hand, committed, guest_on_file, references_of
from tests.installation import MERCHANT, OTHER_GOOD_CARD, REDIRECT_URI, Installation, Trouble

NAME, EMAIL, STREET = "Wilhelmina", "wilhelmina@guests.example", "Kaiserallee"
GUEST = a_guest(first_name=NAME, last_name="Ohnesorg", email=EMAIL)
BILLING = {
    "first_name": NAME,
    "last_name": "Ohnesorg",
    "email": EMAIL,
    "address1": f"{STREET} 12",
    "city": "Karlsruhe",
    "zipcode": "76133",
    "country_code": "DE",
}


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """An installation whose guest has an unusual name."""
    installation = Installation(tmp_path, CARDONFILE_ERASURES_FILE=str(tmp_path / "erasures.txt"))
    installation.has_guest(GUEST)
    yield installation
    installation.close()


def finish(installation: Installation) -> bool:
    """Run the worker's jobs until none is due. Return whether the erasure is done."""
    for _ in range(4):
        installation.reconcile()
        installation.container.finish_erasures()()
        installation.clock.advance(timedelta(minutes=2))
    return is_done(installation)


def is_done(installation: Installation) -> bool:
    with installation.storage.read() as unit:
        erasure = unit.erasures.get(GUEST_ID)
    assert erasure is not None
    return erasure.done_at is not None


def files_that_hold(folder: Path, *texts: str) -> list[str]:
    """Return the names of files that contain one of the texts, even in deleted rows."""
    return sorted(
        file.name
        for file in folder.iterdir()
        if any(text.encode() in file.read_bytes() for text in texts)
    )


def test_an_erasure_removes_the_card_with_its_token(installation: Installation) -> None:
    account = installation.stored_card()
    with capture_logs() as lines:
        installation.erase_guest()
        removed = installation.account(account.account_id)
        assert removed.removed_at == installation.clock.now()
        assert not removed.is_default
        for _ in range(2):
            assert finish(installation)

    assert installation.tokens_at_psp() == frozenset()
    # Only the beginning and the end are logged.
    assert [line for line in lines if "erased" in line["event"]] == [
        {"event": event, "guest_id": GUEST_ID, "log_level": "info"}
        for event in ("guest_erased", "guest_erased_everywhere")
    ]
    # The fields that prove the payment are kept.
    removed = installation.account(account.account_id)
    for field in ("guest_id", "created_at", "card_logo", "last_four", "consented_at"):
        assert getattr(removed, field) == getattr(account, field)
    assert removed.consent_version == account.consent_version


@pytest.mark.parametrize(
    ("begin", "status"),
    [
        (Installation.opened_session, SessionStatus.EXPIRED),
        (Installation.session_with_card, SessionStatus.FAILED),
    ],
)
def test_an_erasure_ends_an_open_session_and_its_page(
    installation: Installation, begin: Callable[..., CardSession], status: SessionStatus
) -> None:
    session = begin(installation, billing_info=BILLING)
    page = installation.page_reference(session)
    installation.erase_guest()
    installation.reconcile()

    assert installation.session(session.token_id).status is status
    assert installation.psp.page(page).is_over
    assert installation.accounts() == ()
    assert installation.tokens_at_psp() == frozenset()


def test_a_session_cannot_be_added_during_an_erasure(installation: Installation) -> None:
    installation.before_next_write(installation.erase_guest)
    with pytest.raises(GuestNotFound):
        installation.add_card()
    with installation.storage.read() as unit:
        assert unit.sessions.of_guest(GUEST_ID) == ()


def test_an_erasure_removes_rows_that_are_stored_during_the_erasure(
    installation: Installation,
) -> None:
    session = installation.add_card(billing_info=BILLING)
    installation.loses("card_sessions")
    installation.erase_guest()
    # On PostgreSQL, a transaction that began before the erasure may store these rows.
    installation.has_guest(GUEST)
    with committed(installation.storage) as unit:
        unit.sessions.add(session)
    assert finish(installation)
    ended = installation.session(session.token_id)
    assert (ended.status, ended.billing_info) == (SessionStatus.EXPIRED, None)
    assert guest_on_file(installation.storage, GUEST_ID) is None


def test_a_card_that_is_stored_during_an_erasure_is_discarded(installation: Installation) -> None:
    installation.has_endpoint()
    account = installation.stored_card()
    installation.erase_guest()
    installation.put_account(account)
    assert finish(installation)
    assert installation.accounts() == ()
    assert installation.tokens_at_psp() == frozenset()
    told = [each.event.type for each in installation.deliveries()]
    assert told.count(EventType.ACCOUNT_REMOVED) == 2
    assert installation.provider.calls[-2:] == ["discard", "forget_guest"]


@pytest.mark.parametrize("is_finished", [False, True])
def test_repeating_an_add_card_request_after_an_erasure_is_refused(
    installation: Installation, is_finished: bool
) -> None:
    installation.add_card(idempotency_key="visit-1")
    installation.erase_guest()
    if is_finished:
        finish(installation)
    with pytest.raises(GuestNotFound):
        installation.add_card(idempotency_key="visit-1")


def expired_session_with_card(installation: Installation) -> CardSession:
    """Return an expired session for which the PSP has nevertheless stored a card."""
    session = installation.session_with_card(billing_info=BILLING)
    current = installation.session(session.token_id)
    now = installation.clock.now()
    expired = replace(current, expires_at=now, cancelled_at=now).without_card(now)
    installation.put_session(expired)
    assert expired.status is SessionStatus.EXPIRED
    return expired


def test_an_erasure_keeps_evidence_until_the_psp_has_been_asked_for_the_outcome(
    installation: Installation,
) -> None:
    expired_session_with_card(installation)
    installation.receive_webhook()
    installation.erase_guest()
    installation.provider.evidence.clear()
    installation.reconcile()

    assert [len(told) for told in installation.provider.evidence] == [1]
    assert finish(installation)


def test_a_card_reported_while_the_psp_deletes_the_customer_is_discarded(
    installation: Installation,
) -> None:
    session = expired_session_with_card(installation)
    installation.erase_guest()
    installation.clock.advance(timedelta(minutes=5))
    installation.provider.forget_guest = lambda *_: installation.settle(session.token_id)
    installation.container.finish_erasures()()

    assert not is_done(installation)
    assert finish(installation)
    assert installation.tokens_at_psp() == frozenset()


def test_an_erasure_includes_a_webhook_that_arrives_while_the_psp_deletes_the_customer(
    installation: Installation,
) -> None:
    session = expired_session_with_card(installation)
    installation.erase_guest()
    installation.clock.advance(timedelta(minutes=5))
    installation.provider.meanwhile["forget_guest"] = installation.receive_webhook
    installation.container.finish_erasures()()

    assert not is_done(installation)
    assert finish(installation)
    assert installation.evidence(session) == ()


@pytest.mark.parametrize(
    ("begin", "pending"),
    [(Installation.opened_session, "outcome"), (Installation.stored_card, "discard")],
)
def test_the_psp_is_asked_to_delete_a_customer_only_after_every_page_or_token_is_gone(
    installation: Installation, begin: Callable[[Installation], object], pending: str
) -> None:
    begin(installation)
    installation.provider.have(Trouble.BEFORE_IT_ACTED, pending)
    installation.erase_guest()
    assert not finish(installation)
    assert "forget_guest" not in installation.provider.calls


def test_an_erasure_deletes_the_psp_customer_of_a_refused_page(installation: Installation) -> None:
    forgotten: list[GuestReference] = []

    def refuse(_: HostedPageRequest) -> HostedPage:
        raise ProviderRefused(guest_reference=GuestReference("guest-9"))

    installation.provider.start = refuse
    installation.provider.forget_guest = lambda *it: forgotten.append(it[1])
    with pytest.raises(ProviderUnavailable):
        installation.open_page(installation.add_card())
    installation.erase_guest()
    assert finish(installation)
    assert forgotten == ["guest-9"]


def erased_where_the_psp_cannot_forget(
    installation: Installation,
) -> tuple[CardSession, FinishErasures]:
    """Return an expired session of an erased guest, and a function that finishes the erasure."""
    session = expired_session_with_card(installation)
    installation.provider.forget_guest = lambda *_: None
    finish_erasures = replace(installation.container.finish_erasures(), psps={})
    installation.erase_guest()
    installation.clock.advance(timedelta(minutes=5))
    return session, finish_erasures


def test_a_card_reported_after_an_erasure_is_discarded(installation: Installation) -> None:
    session, finish_erasures = erased_where_the_psp_cannot_forget(installation)
    finish_erasures()
    assert is_done(installation)
    assert len(installation.tokens_at_psp()) == 1

    installation.receive_webhook()
    installation.reconcile()

    assert installation.tokens_at_psp() == frozenset()
    assert installation.session(session.token_id).status is SessionStatus.EXPIRED
    # The PSP's evidence about it is deleted too.
    assert not is_done(installation)
    finish_erasures()
    assert is_done(installation)
    page = session.current_attempt.page
    assert page is not None
    with installation.storage.read() as unit:
        psp_account = session.configuration.psp_account
        assert unit.discards.of_guest(psp_account, page.guest_reference) == ()
    assert installation.evidence(session) == ()


def test_an_erasure_waits_for_requests_that_may_store_data(installation: Installation) -> None:
    installation.stored_card()
    installation.erase_guest()
    installation.reconcile()
    finish_erasures = installation.container.finish_erasures()
    for wait in (timedelta(0), MAX_REQUEST_DURATION - timedelta(seconds=1)):
        installation.clock.advance(wait)
        finish_erasures()
        assert not is_done(installation)

    installation.clock.advance(timedelta(seconds=1))
    finish_erasures()
    assert is_done(installation)


def test_a_psp_customer_created_during_an_erasure_is_deleted(installation: Installation) -> None:
    account = installation.stored_card()
    installation.erase_guest()
    installation.reconcile()
    installation.clock.advance(timedelta(minutes=5))
    late, forgotten = GuestReference("late"), list[GuestReference]()

    def forget(_: MerchantAccount, reference: GuestReference) -> None:
        if not forgotten:
            with committed(installation.storage) as unit:
                unit.guest_references.keep(a_psp_guest(), late)
        forgotten.append(reference)

    installation.provider.forget_guest = forget
    installation.container.finish_erasures()()
    assert not is_done(installation)

    assert finish(installation)
    assert {*forgotten} == {account.guest_reference, late}


def test_evidence_that_arrives_as_an_erasure_finishes_is_erased(installation: Installation) -> None:
    session, finish_erasures = erased_where_the_psp_cannot_forget(installation)

    def settle_meanwhile() -> bool:
        installation.receive_webhook()
        installation.reconcile()
        return True

    with pytest.MonkeyPatch.context() as during:
        during.setattr(installation.storage, "overwrite_deleted", settle_meanwhile)
        finish_erasures()
    assert not is_done(installation)
    finish_erasures()

    assert is_done(installation)
    assert installation.evidence(session) == ()


def test_a_psp_response_after_the_erasure_changes_nothing(installation: Installation) -> None:
    session = expired_session_with_card(installation)
    ask = installation.provider.outcome

    def answer_late(*asked: Any) -> Outcome:
        answer: Outcome = ask(*asked)
        installation.provider.outcome = ask
        installation.erase_guest()
        assert finish(installation)
        return answer

    installation.provider.outcome = answer_late
    installation.settle(session.token_id)
    installation.reconcile()

    assert installation.session(session.token_id).status is SessionStatus.EXPIRED
    assert installation.accounts() == ()
    assert installation.tokens_at_psp() == frozenset()


def test_a_webhook_that_arrives_after_the_erasure_is_not_stored(installation: Installation) -> None:
    session = expired_session_with_card(installation)
    installation.erase_guest()
    finish(installation)
    installation.receive_webhook()

    assert installation.evidence(session) == ()
    assert installation.session(session.token_id).due_at is None


def test_a_browser_returning_after_an_erasure_leaves_nothing(installation: Installation) -> None:
    session = installation.opened_session()

    def erase_meanwhile() -> None:
        installation.erase_guest()
        finish(installation)

    installation.before_next_write(erase_meanwhile)
    installation.return_to_shop(session, state=NAME)

    assert installation.evidence(session) == ()


def test_an_erasure_leaves_no_personal_data_in_any_file(
    installation: Installation, tmp_path: Path
) -> None:
    installation.stored_card(billing_info=BILLING)
    installation.session_with_card(OTHER_GOOD_CARD, billing_info=BILLING)
    left = installation.opened_session(billing_info=BILLING)
    installation.return_to_shop(left, state=NAME)
    installation.add_card(billing_info=BILLING)
    texts = (NAME, "Ohnesorg", EMAIL, STREET)
    assert len(files_that_hold(tmp_path, *texts)) >= 2

    installation.erase_guest()
    assert finish(installation)
    assert files_that_hold(tmp_path, *texts) == []


def test_an_erasure_waits_for_a_reader_that_sees_the_old_data(installation: Installation) -> None:
    installation.erase_guest()
    finish_erasures = installation.container.finish_erasures()
    reading = closing(connect(installation.database, busy_timeout_seconds=0))
    with reading as reader, reader.conn:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM guests").fetchone()
        installation.has_guest(a_guest(id=OTHER_GUEST_ID))
        installation.clock.advance(MAX_REQUEST_DURATION)
        finish_erasures()
        assert not is_done(installation)
    # No PSP has refused, so the erasure is tried again soon.
    installation.clock.advance(MIN_BACKOFF)
    finish_erasures()
    assert is_done(installation)


def test_references_to_a_psp_customer_are_erased_after_the_psp_confirmed_the_deletion(
    installation: Installation, tmp_path: Path
) -> None:
    account = installation.stored_card()
    installation.provider.have(Trouble.BEFORE_IT_ACTED, "forget_guest")
    installation.erase_guest()
    assert not finish(installation)
    assert installation.account(account.account_id).guest_reference == account.guest_reference

    installation.provider.recover()
    installation.clock.advance(timedelta(hours=2))
    assert finish(installation)
    assert files_that_hold(tmp_path, account.token, account.fingerprint) == []
    assert files_that_hold(tmp_path, account.guest_reference) == ["erasures.txt"]


# Shows F47.
@pytest.mark.parametrize("is_found_later", [True, False])
def test_deleting_a_customer_that_the_psp_did_not_find_is_retried(
    installation: Installation, is_found_later: bool
) -> None:
    account = installation.stored_card()
    installation.provider.have(Trouble.NOT_FOUND, "forget_guest")
    installation.erase_guest()
    finish(installation)
    assert not is_done(installation)
    assert installation.account(account.account_id).guest_reference == account.guest_reference

    if is_found_later:
        installation.provider.recover()
    installation.clock.advance(UNKNOWN_FOR)
    finish(installation)

    assert is_done(installation)


def test_a_clock_that_was_a_year_ahead_does_not_delay_an_erasure(
    installation: Installation,
) -> None:
    installation.stored_card()
    installation.clock.advance(timedelta(days=365))
    installation.erase_guest()
    installation.clock.advance(timedelta(days=-365))
    assert finish(installation)


def test_the_id_of_an_erased_guest_cannot_be_used_again(installation: Installation) -> None:
    installation.erase_guest()
    with pytest.raises(GuestNotFound):
        installation.erase_guest()
    with pytest.raises(GuestNotFound):
        installation.use_cases.put_guest(
            installation.caller, guest_id=GUEST_ID, first_name="Ada", last_name="Bo", email=None
        )
    (entry,) = audit_trail(installation.storage, about=GUEST_ID)
    assert entry.actor == f"caller:{installation.caller.name}"
    assert entry.action is Action.GUEST_ERASED


@pytest.mark.parametrize("lost", [("guests",), ("guests", "card_sessions")])
def test_a_guest_whose_row_was_deleted_by_hand_can_be_erased(
    installation: Installation, lost: tuple[str, ...]
) -> None:
    account = installation.stored_card()
    for table in lost:
        installation.loses(table)
    installation.erase_guest()
    assert installation.account(account.account_id).removed_at is not None


class TestUnreadableRows:
    """Rows that another release has written."""

    def test_an_unreadable_session_does_not_prevent_an_erasure(
        self, installation: Installation, tmp_path: Path
    ) -> None:
        installation.stored_card(billing_info=BILLING)
        session = installation.opened_session(billing_info=BILLING)
        installation.return_to_shop(session, state=NAME)
        change_by_hand(installation.storage, "UPDATE card_sessions SET failure = '{}'")

        installation.erase_guest()

        assert installation.accounts() == ()
        assert guest_on_file(installation.storage, GUEST_ID) is None
        assert not finish(installation)

        # The session's page ends at this time.
        installation.clock.advance(session.expires_at - installation.clock.now())
        assert finish(installation)
        assert installation.tokens_at_psp() == frozenset()
        assert files_that_hold(tmp_path, NAME, "Ohnesorg", EMAIL, STREET) == []

    def test_an_erasure_removes_an_unreadable_account(
        self, installation: Installation, tmp_path: Path
    ) -> None:
        account = installation.stored_card()
        change_by_hand(installation.storage, "UPDATE payment_accounts SET source = 99")

        installation.erase_guest()
        assert finish(installation)
        assert installation.tokens_at_psp() == frozenset()
        with installation.storage.read() as unit:
            psp_account, token = account.psp_account, account.token
            assert not unit.accounts.is_held(*psp_account, token)
        assert files_that_hold(tmp_path, account.token, account.fingerprint) == []
        assert files_that_hold(tmp_path, account.guest_reference) == ["erasures.txt"]


def test_an_outage_at_one_merchant_account_does_not_delay_an_erasure_at_another(
    installation: Installation,
) -> None:
    installation.stored_card()
    installation.has_other_center()
    installation.configure(OTHER_CENTER_ID, merchant_account=MerchantAccount("another"))
    installation.stored_card(center_id=OTHER_CENTER_ID)
    forgotten = []

    def fail(method: str, merchant_account: MerchantAccount) -> None:
        if method == "forget_guest":
            if merchant_account == "another":
                raise ProviderUnavailable
            forgotten.append(merchant_account)

    installation.provider.before = fail
    installation.erase_guest()
    assert not finish(installation)
    assert "default" in forgotten


def erase_many(installation: Installation, number_of_guests: int) -> list[GuestId]:
    """Erase other guests, whose customers the PSP is to delete next. Return their ids."""
    guests = [GuestId(a_uuid(500 + number)) for number in range(number_of_guests)]
    for guest_id in guests:
        installation.has_guest(a_guest(id=guest_id))
        installation.erase_guest(guest_id)
    installation.clock.advance(timedelta(minutes=5))
    return guests


def left(installation: Installation) -> int:
    """Return the number of erasures that are not done."""
    with installation.storage.read() as unit:
        return unit.erasures.count_unfinished().items


def test_erasures_are_finished_in_small_batches(installation: Installation) -> None:
    erase_many(installation, MAX_PER_CALL + 1)
    finish_erasures = installation.container.finish_erasures()

    assert finish_erasures()
    assert left(installation) == 1
    assert not finish_erasures()
    assert left(installation) == 0


# Shows F46.
@pytest.mark.parametrize("fault", [ServiceUnavailable, RecordUnreadable])
def test_damaged_rows_of_a_guest_do_not_delay_the_erasure_of_other_guests(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, fault: type[Exception]
) -> None:
    guests = erase_many(installation, 2 * MAX_PER_CALL)

    def end_and_blank(unit: WriteUnit, note: NoteEvent, guest_id: GuestId, now: datetime) -> bool:
        if guest_id in guests[: MAX_PER_CALL + 1]:
            raise fault
        return blank.end_and_blank(unit, note, guest_id, now)

    monkeypatch.setattr(finish_erasures, "end_and_blank", end_and_blank)

    for _ in range(2):
        with pytest.raises(fault):
            installation.container.finish_erasures()()

    assert left(installation) == MAX_PER_CALL + 1


def test_an_erasure_restarts_a_discard_whose_row_is_unreadable(installation: Installation) -> None:
    installation.stored_card()
    installation.erase_guest()
    change_by_hand(installation.storage, "UPDATE discards SET begun_at = 'soon'")

    assert finish(installation)
    assert not installation.tokens_at_psp()


def test_an_erasure_that_is_not_done_after_a_day_is_logged(installation: Installation) -> None:
    installation.stored_card()
    installation.erase_guest()
    psps = installation.container.worker_psps()
    fake = psps.pop(FAKE)
    with capture_logs() as lines:
        finish(installation)
        assert {line["event"] for line in lines} <= {"reconciled"}
        lines.clear()
        installation.clock.advance(timedelta(days=1))
        installation.container.finish_erasures()()
    (line,) = lines
    assert (line["event"], line["guest_id"]) == ("erasure_not_done", GUEST_ID)
    assert line["waits_for"] == [f"{FAKE}/{MERCHANT}"]
    psps[FAKE] = fake
    installation.clock.advance(timedelta(hours=2))
    installation.reconcile()
    with capture_logs() as lines:
        installation.container.finish_erasures()()
    assert [line["event"] for line in lines] == ["guest_erased_everywhere"]


@pytest.mark.parametrize("is_begun", [False, True])
def test_an_erasure_that_two_processes_finish_concurrently_is_logged_as_done_once(
    installation: Installation, is_begun: bool
) -> None:
    installation.stored_card()
    installation.erase_guest()
    installation.reconcile()
    installation.clock.advance(timedelta(minutes=5))
    finish_erasures = installation.container.finish_erasures()
    if is_begun:
        installation.provider.meanwhile["forget_guest"] = finish_erasures
    else:
        installation.before_next_write(finish_erasures)
    with capture_logs() as lines:
        finish_erasures()

    assert is_done(installation)
    assert [line["event"] for line in lines] == ["guest_erased_everywhere"]


@pytest.mark.parametrize("guests_not_erased", [[GUEST], []], ids=["with the guest", "without"])
def test_an_erasure_is_repeated_after_a_backup_was_restored(
    installation: Installation, guests_not_erased: list[Guest]
) -> None:
    installation.erase_guest()
    installation.loses("erasures")
    for guest in guests_not_erased:
        installation.has_guest(guest)

    erase_guest = installation.container.erase_guest()
    assert erase_guest.guests_not_erased() == [guest.id for guest in guests_not_erased]
    assert erase_guest.repeat_from_file() == [GUEST_ID]
    assert (erase_guest.guests_not_erased(), erase_guest.repeat_from_file()) == ([], [])
    assert finish(installation)


def test_the_psp_customers_in_the_erasure_file_are_deleted_after_a_restore(
    installation: Installation,
) -> None:
    account = installation.stored_card()
    installation.erase_guest()
    # The new primary lacks everything that was stored since the guest's first page.
    for table in ("erasures", "card_sessions", "payment_accounts", "psp_guests", "discards"):
        installation.loses(table)
    forgotten: list[tuple[MerchantAccount, GuestReference]] = []
    installation.provider.forget_guest = lambda *it: forgotten.append(it)

    installation.container.erase_guest().repeat_from_file()

    assert finish(installation)
    assert set(forgotten) == {(MERCHANT, account.guest_reference)}


@pytest.mark.parametrize("cut", [1, 2, 3, 9])
def test_a_truncated_line_of_the_erasure_file_names_no_psp_customer(
    installation: Installation, tmp_path: Path, cut: int
) -> None:
    installation.stored_card()
    installation.erase_guest()
    file = tmp_path / "erasures.txt"
    assert len(installation.container.erasure_file().erased()[GUEST_ID]) == 1
    file.write_bytes(file.read_bytes()[:-cut])
    whole = cut == 1

    assert len(installation.container.erasure_file().erased()[GUEST_ID]) == whole


def test_a_truncated_line_of_the_erasure_file_does_not_affect_other_lines(
    installation: Installation, tmp_path: Path
) -> None:
    (tmp_path / "erasures.txt").write_text("0b54f1d7-63c7")
    installation.erase_guest()
    assert installation.container.erasure_file().erased().keys() == {GUEST_ID}


@pytest.mark.parametrize("words", ["by hand .", "now cus_1 .", "now fake/default .", "now // ."])
def test_only_the_guest_id_is_read_from_a_hand_edited_line_of_the_erasure_file(
    installation: Installation, tmp_path: Path, words: str
) -> None:
    (tmp_path / "erasures.txt").write_text(f"{GUEST_ID} {words}\n")

    assert installation.container.erase_guest().repeat_from_file() == [GUEST_ID]
    assert references_of(installation.storage, GUEST_ID) == []


def test_a_guest_is_not_erased_if_the_erasure_file_cannot_be_written(
    installation: Installation, tmp_path: Path
) -> None:
    (tmp_path / "erasures.txt").mkdir()
    with pytest.raises(ServiceUnavailable):
        installation.erase_guest()
    assert guest_on_file(installation.storage, GuestId(GUEST_ID)) == GUEST


def test_erasing_an_unknown_guest_is_refused(installation: Installation) -> None:
    with pytest.raises(GuestNotFound):
        installation.erase_guest(OTHER_GUEST_ID)
    with pytest.raises(GuestIdNotUsable):
        installation.erase_guest(GuestId("12"))


def test_a_link_opened_during_the_erasure_leads_to_the_shop(installation: Installation) -> None:
    session = installation.session_with_card()
    installation.clock.advance(ASK_AGAIN_AFTER)

    def erase_meanwhile(provider: object, call: object) -> None:
        installation.provider.before = lambda _, __: None
        installation.erase_guest()
        finish(installation)

    installation.provider.before = erase_meanwhile

    assert installation.open_page(session) == REDIRECT_URI


@pytest.mark.parametrize("reason", ["NULL", "'odd'"], ids=["readable", "unreadable"])
def test_an_erasure_clears_the_booking_reference_of_agreements(
    installation: Installation, reason: str
) -> None:
    account = installation.stored_card()
    agreement = an_agreement(account_id=account.account_id)
    with committed(installation.storage) as unit:
        unit.agreements.add(agreement)
        unit.agreements.name_session(GUEST_ID, CENTER_ID, "booking-17", account.token_id)
    change_by_hand(installation.storage, f"UPDATE agreements SET reason = {reason}")
    installation.erase_guest()
    change_by_hand(installation.storage, "UPDATE agreements SET reason = NULL")
    with installation.storage.read() as unit:
        (kept,) = unit.agreements.of_guest(GUEST_ID)
        assert unit.agreements.session_of(GUEST_ID, CENTER_ID, "booking-17") is None
    ended = agreement.ended(None, installation.clock.now())
    assert kept == replace(ended, terms=replace(agreement.terms, reference=""))
