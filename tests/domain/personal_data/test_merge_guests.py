"""Merging two guests: what moves and what does not. No card is lost, doubled or misplaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from adapters.psp_suite.samples import GUEST_ID, NOW, OTHER_GUEST_ID, a_uuid
from domain.audit.entry import Action
from domain.cards.account import Account
from domain.errors import (
    CardsDoNotMatch,
    GuestIdNotUsable,
    GuestNotFound,
    InvalidField,
    ServiceUnavailable,
    SessionNotFound,
    UserNotAuthorized,
)
from domain.events.event import Event, EventType
from domain.guests.put_guest import put_unless_erased
from domain.identifiers import GuestId, GuestReference, MerchantAccount
from domain.permissions import Permission
from domain.personal_data.blank import end_and_blank
from domain.personal_data.erasure import MAX_REQUEST_DURATION
from domain.sessions.end import SessionStatus
from domain.storage import RecordUnreadable
from tests.builders import (
    CENTER_ID,
    OTHER_CENTER_ID,
    a_guest,
    a_psp_guest,
    a_refused_card,
    an_agreement,
)
from tests.databases import audit_trail, change_by_hand, committed, guest_on_file, references_of
from tests.installation import DECLINED_CARD, GOOD_CARD, MERCHANT, OTHER_GOOD_CARD, Installation

MERGED, REMAINING = OTHER_GUEST_ID, GUEST_ID
THIRD: GuestId = GuestId(a_uuid(77))
DAY = timedelta(days=1)


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """An installation with three guests, two centers and a file of erasures."""
    installation = Installation(tmp_path, CARDONFILE_ERASURES_FILE=str(tmp_path / "erasures.txt"))
    installation.has_other_center()
    installation.has_guest(a_guest(id=MERGED, first_name="Adah", email="adah@guests.example"))
    installation.has_guest(a_guest(id=THIRD))
    yield installation
    installation.close()


def merge(
    installation: Installation,
    merged: str = MERGED,
    remaining: str = REMAINING,
    last_fours: object = None,
) -> None:
    """Merge two guests. Send `last_fours`, or the digits of the cards that they have."""
    if last_fours is None:
        installation.merge_guests(GuestId(merged), into=GuestId(remaining))
    else:
        installation.use_cases.merge_guests(
            installation.caller, guest_id=remaining, merged_id=merged, last_fours=last_fours
        )


def ids(accounts: Sequence[Account]) -> list[str]:
    return [account.account_id for account in accounts]


def events(installation: Installation) -> list[Event]:
    return [delivery.event for delivery in installation.deliveries()]


def finish(installation: Installation) -> None:
    """Run the worker's jobs for some minutes."""
    for _ in range(4):
        installation.reconcile()
        installation.container.finish_erasures()()
        installation.clock.advance(timedelta(minutes=2))


def are_erased(installation: Installation) -> bool:
    """Return whether the erasure of each of the two merged guests is done."""
    with installation.storage.read() as unit:
        erasures = [unit.erasures.get(guest_id) for guest_id in (MERGED, REMAINING)]
    return all(each is not None and each.done_at is not None for each in erasures)


def restore_a_backup_from_before(installation: Installation, merged: GuestId = MERGED) -> None:
    """Restore the guest who was merged, as an older backup of the database would."""
    installation.loses("erasures")
    installation.has_guest(a_guest(id=merged))


def test_merging_guests_moves_a_card_together_with_its_consent(installation: Installation) -> None:
    account = installation.stored_card(guest_id=MERGED)
    consents = installation.consents(account)
    merge(installation)

    assert installation.account(account.account_id) == replace(account, guest_id=REMAINING)
    assert installation.consents(account) == consents
    assert installation.accounts(MERGED) == ()
    finish(installation)
    assert installation.tokens_at_psp() == {account.token}
    assert installation.accounts() == (replace(account, guest_id=REMAINING),)


def test_the_default_card_of_the_remaining_guest_stays_the_default(
    installation: Installation,
) -> None:
    kept = installation.stored_card()
    moved = installation.stored_card(OTHER_GOOD_CARD, guest_id=MERGED)
    elsewhere = installation.stored_card(guest_id=MERGED, center_id=OTHER_CENTER_ID)
    assert kept.is_default
    assert moved.is_default
    merge(installation)

    assert installation.account(kept.account_id).is_default
    assert not installation.account(moved.account_id).is_default
    # The remaining guest has no other card at that center.
    assert installation.account(elsewhere.account_id).is_default


@pytest.mark.parametrize(("first", "second"), [(REMAINING, MERGED), (MERGED, REMAINING)])
def test_merging_two_accounts_of_the_same_card_keeps_the_account_with_the_later_consent(
    installation: Installation, first: GuestId, second: GuestId
) -> None:
    older = installation.stored_card(guest_id=first)
    other = installation.stored_card(OTHER_GOOD_CARD, guest_id=REMAINING)
    installation.clock.advance(DAY)
    later = installation.stored_card(guest_id=second)
    installation.has_endpoint()
    merge(installation)

    assert set(ids(installation.accounts())) == {later.account_id, other.account_id}
    ended = installation.account(older.account_id)
    assert (ended.guest_id, ended.removed_at) == (REMAINING, installation.clock.now())
    # If the card was the default of the remaining guest, its remaining account is the default.
    defaults = [each.last_four for each in installation.accounts() if each.is_default]
    assert defaults == [GOOD_CARD[-4:] if first == REMAINING else OTHER_GOOD_CARD[-4:]]
    (removed,) = [it for it in events(installation) if it.type is EventType.ACCOUNT_REMOVED]
    assert (removed.account_id, removed.reason) == (older.account_id, "replaced")
    finish(installation)
    assert installation.tokens_at_psp() == {later.token, other.token}


@pytest.mark.parametrize(
    ("days", "kept_days"), [((1, 2), 2), ((2, 1), 2), ((None, 1), None), ((1, None), None)]
)
def test_merging_two_accounts_of_the_same_card_keeps_all_agreements(
    installation: Installation, days: tuple[int | None, int | None], kept_days: int | None
) -> None:
    def later(in_days: int | None) -> datetime | None:
        return None if in_days is None else NOW + in_days * DAY

    accounts = [installation.stored_card(guest_id=each) for each in (REMAINING, MERGED)]
    with committed(installation.storage) as unit:
        for number, (account, each) in enumerate(zip(accounts, days, strict=True)):
            unit.accounts.update(replace(account, keep_until=later(each)))
            of = {"account_id": account.account_id, "guest_id": account.guest_id}
            unit.agreements.add(an_agreement(number, **of))
    merge(installation)

    (account,) = installation.accounts()
    assert account.keep_until == later(kept_days)
    with installation.storage.read() as reading:
        found = reading.agreements.of_account(account.account_id)
    assert {each.agreement_id for each in found} == {
        an_agreement(number).agreement_id for number in (0, 1)
    }
    assert {each.guest_id for each in found} == {REMAINING}


def test_a_card_reported_during_a_merge_goes_to_the_remaining_guest(
    installation: Installation,
) -> None:
    session = installation.session_with_card(guest_id=MERGED)
    installation.provider.meanwhile["outcome"] = partial(merge, installation)

    installation.return_to_shop(session)
    settled = installation.session(session.token_id)
    assert (settled.status, settled.guest_id) == (SessionStatus.COMPLETED, REMAINING)
    # The PSP finds the page by the request as it was sent.
    assert settled.current_attempt.request.guest_id == MERGED
    assert ids(installation.accounts()) == [settled.account_id]
    assert installation.accounts(MERGED) == ()


def test_a_page_open_during_a_merge_renews_the_remaining_card(installation: Installation) -> None:
    account = installation.stored_card()
    session = installation.session_with_card(guest_id=MERGED, expiry=(9, 2033))
    merge(installation)
    installation.return_to_shop(session)

    (renewed,) = installation.accounts()
    assert (renewed.account_id, renewed.expiry_year) == (account.account_id, 2033)


def test_the_guest_reference_of_a_page_that_is_created_during_a_merge_is_kept(
    installation: Installation,
) -> None:
    session = installation.add_card(guest_id=MERGED)
    assert references_of(installation.storage, REMAINING) == []
    installation.provider.meanwhile["start"] = partial(merge, installation)
    installation.open_page(session)

    made = installation.session(session.token_id)
    assert made.guest_id == REMAINING
    with installation.storage.read() as unit:
        assert len(unit.guest_references.of(REMAINING)) == 1
        assert unit.guest_references.get(made.psp_guest(made.current_attempt.request)) is None
        assert unit.guest_references.of(MERGED) == []


def test_a_card_that_is_refreshed_during_a_merge_stays_on_file(installation: Installation) -> None:
    account = installation.stored_card(guest_id=MERGED)
    installation.clock.advance(2 * DAY)
    installation.provider.meanwhile["read_card"] = partial(merge, installation)
    installation.read_cards()
    assert ids(installation.accounts()) == [account.account_id]

    installation.clock.advance(DAY)
    installation.read_cards()
    assert installation.account(account.account_id).read_at is not None


def test_refused_cards_of_both_merged_guests_count_together(installation: Installation) -> None:
    session = installation.add_card()
    with committed(installation.storage) as unit:
        unit.refused_cards.add(
            a_refused_card(token_id=each, guest_id=guest_id, refused_at=installation.clock.now())
            for each, guest_id in ((session.token_id, REMAINING), (a_uuid(55), MERGED))
        )
    merge(installation)
    with installation.storage.read() as unit:
        assert len(unit.refused_cards.of_guest(REMAINING)) == 2
        assert unit.refused_cards.of_guest(MERGED) == ()


def test_an_erasure_deletes_the_psp_customers_of_merged_guests(installation: Installation) -> None:
    installation.stored_card(guest_id=MERGED)
    installation.stored_card(OTHER_GOOD_CARD)
    both = [
        *references_of(installation.storage, MERGED),
        *references_of(installation.storage, REMAINING),
    ]
    references = {reference for _, reference in both}
    assert len(references) > 1
    merge(installation)
    finish(installation)
    forgotten: list[GuestReference] = []
    forget = installation.provider.forget_guest

    def forget_guest(account: MerchantAccount, reference: GuestReference) -> None:
        forgotten.append(reference)
        forget(account, reference)

    installation.provider.forget_guest = forget_guest
    installation.erase_guest(REMAINING)
    finish(installation)

    assert set(forgotten) == references
    assert installation.tokens_at_psp() == frozenset()
    assert are_erased(installation)
    assert references_of(installation.storage, REMAINING) == []


def test_an_erasure_deletes_late_psp_customers_of_merged_guests(installation: Installation) -> None:
    merge(installation)
    finish(installation)
    psp_guest = a_psp_guest()._replace(guest_id=MERGED, merchant_account=MERCHANT)
    with committed(installation.storage) as unit:
        unit.guest_references.keep(psp_guest, GuestReference("cus_late"))
    forgotten: list[GuestReference] = []
    installation.provider.forget_guest = lambda _, reference: forgotten.append(reference)
    installation.erase_guest(REMAINING)
    finish(installation)
    assert forgotten == ["cus_late"]


def test_the_id_of_a_merged_guest_can_never_be_used_again(installation: Installation) -> None:
    account = installation.stored_card(guest_id=MERGED)
    session = installation.opened_session(guest_id=MERGED)
    installation.add_card(guest_id=MERGED, idempotency_key="key")
    remaining = guest_on_file(installation.storage, REMAINING)
    merge(installation)
    caller, use_cases = installation.caller, installation.use_cases
    former: list[Callable[[], object]] = [
        lambda: use_cases.read_guest(caller, guest_id=MERGED),
        lambda: use_cases.put_guest(
            caller, guest_id=MERGED, first_name="A", last_name="B", email=None
        ),
        lambda: installation.add_card(guest_id=MERGED),
        lambda: installation.add_card(guest_id=MERGED, idempotency_key="key"),
        lambda: installation.erase_guest(MERGED),
        lambda: merge(installation),
        # A cycle.
        lambda: merge(installation, merged=REMAINING, remaining=MERGED),
        lambda: merge(installation, merged=THIRD, remaining=MERGED),
    ]
    for _ in range(2):
        for call in former:
            with pytest.raises(GuestNotFound):
                call()
        finish(installation)
    with pytest.raises(SessionNotFound):
        use_cases.read_session(caller, guest_id=MERGED, token_id=session.token_id)
    with committed(installation.storage) as unit:
        # An import skips the id.
        assert put_unless_erased(unit, [a_guest(id=MERGED)]) == 1
        assert (unit.guests.get(REMAINING), unit.guests.get(MERGED)) == (remaining, None)
    assert ids(installation.accounts()) == [account.account_id]


@pytest.mark.parametrize("seen", [[], ["4242"], ["4242", "4242"], ["4242", "4444", "4444"]])
def test_a_merge_is_refused_if_the_given_last_four_digits_do_not_match_the_cards(
    installation: Installation, seen: list[str]
) -> None:
    account = installation.stored_card(guest_id=MERGED)
    installation.stored_card(OTHER_GOOD_CARD)
    with pytest.raises(CardsDoNotMatch):
        merge(installation, last_fours=seen)
    assert installation.accounts(MERGED) == (account,)
    merge(installation, last_fours=["4444", "4242"])


@pytest.mark.parametrize("seen", ["4242", [4242], {}, 4242])
def test_a_merge_is_refused_if_the_last_four_digits_of_the_cards_are_not_given_as_a_list(
    installation: Installation, seen: object
) -> None:
    with pytest.raises(InvalidField, match="last_fours"):
        merge(installation, last_fours=seen)


def test_merging_a_guest_into_the_same_guest_is_refused(installation: Installation) -> None:
    with pytest.raises(InvalidField, match="from must be the id of another guest"):
        merge(installation, merged=REMAINING.upper())


@pytest.mark.parametrize(
    ("merged", "remaining", "refusal"),
    [
        ("x", REMAINING, InvalidField),
        (MERGED, "x", GuestIdNotUsable),
        (a_uuid(999), REMAINING, GuestNotFound),
        (MERGED, a_uuid(999), GuestNotFound),
    ],
)
def test_merging_an_unknown_guest_is_refused(
    installation: Installation, merged: str, remaining: str, refusal: type[Exception]
) -> None:
    with pytest.raises(refusal):
        merge(installation, merged=merged, remaining=remaining, last_fours=[])


def test_a_merge_from_or_into_an_erased_guest_is_refused(installation: Installation) -> None:
    installation.erase_guest(MERGED)
    for merged, remaining in ((MERGED, REMAINING), (REMAINING, MERGED)):
        with pytest.raises(GuestNotFound):
            merge(installation, merged=merged, remaining=remaining)


def test_an_erasure_is_refused_if_the_guest_was_just_merged(installation: Installation) -> None:
    account = installation.stored_card(guest_id=MERGED)
    installation.before_next_write(partial(merge, installation))
    with pytest.raises(GuestNotFound):
        installation.erase_guest(MERGED)
    assert ids(installation.accounts()) == [account.account_id]


def test_cards_refused_during_a_merge_count_for_the_remaining_guest(
    installation: Installation,
) -> None:
    installation.configure(card_testing_limits="guest=off/1")
    session = installation.opened_session(guest_id=MERGED)
    other = installation.opened_session()
    installation.clock.advance(timedelta(minutes=1))
    installation.type_card(session, DECLINED_CARD)
    installation.provider.meanwhile["outcome"] = partial(merge, installation)
    installation.return_to_shop(session)
    assert installation.session(other.token_id).due_at == installation.clock.now()
    with installation.storage.read() as unit:
        assert len(unit.refused_cards.of_guest(REMAINING)) == 1


def test_a_merge_is_refused_if_the_remaining_guest_was_just_erased(
    installation: Installation,
) -> None:
    account = installation.stored_card(guest_id=MERGED)
    installation.before_next_write(partial(installation.erase_guest, REMAINING))
    with pytest.raises(GuestNotFound):
        merge(installation)
    assert installation.accounts(MERGED) == (account,)


@pytest.mark.parametrize("permission", [Permission.GUESTS_EDIT, Permission.GUESTS_ERASE])
def test_merging_guests_requires_the_edit_permission_besides_the_erase_permission(
    installation: Installation, permission: Permission
) -> None:
    every = frozenset({CENTER_ID, OTHER_CENTER_ID})
    for caller in (installation.a_caller(permission), installation.a_caller(centers=every)):
        with pytest.raises(UserNotAuthorized):
            installation.use_cases.merge_guests(
                caller, guest_id=REMAINING, merged_id=MERGED, last_fours=[]
            )


def test_an_event_and_the_audit_trail_name_both_guests_of_a_merge(
    installation: Installation,
) -> None:
    installation.has_endpoint()
    merge(installation)
    (event,) = events(installation)
    assert (event.type, event.status) == (EventType.GUEST_MERGED, "merged")
    assert (event.guest_id, event.merged_guest_id) == (REMAINING, MERGED)
    (entry,) = audit_trail(installation.storage, about=MERGED)
    assert (entry.action, entry.actor) == (Action.GUEST_MERGED, "caller:web-shop")
    assert entry.details == {"into": REMAINING}


def test_records_stored_late_for_a_merged_guest_are_moved(installation: Installation) -> None:
    merge(installation)
    # On PostgreSQL, a request that read the guest before the merge may store a session after it.
    session = installation.add_card()
    installation.put_session(replace(session, guest_id=MERGED))
    installation.has_guest(a_guest(id=MERGED))
    installation.clock.advance(MAX_REQUEST_DURATION)
    installation.container.finish_erasures()()

    assert installation.session(session.token_id).guest_id == REMAINING
    with installation.storage.read() as unit:
        assert unit.guests.get(MERGED) is None
        erasure = unit.erasures.get(MERGED)
    assert erasure is not None
    assert (erasure.merged_into, erasure.done_at) == (REMAINING, installation.clock.now())
    assert installation.container.read_status()().due["erasures"].items == 0


def test_the_export_of_a_guest_lists_the_merged_guests(installation: Installation) -> None:
    installation.has_endpoint()
    installation.stored_card(guest_id=MERGED)
    merge(installation)
    merge(installation, merged=REMAINING, remaining=THIRD)
    exported = installation.container.export_guest()(THIRD)

    assert exported["merged_guests"] == [REMAINING, MERGED]
    for name, size in (("accounts", 1), ("consents", 1), ("sessions", 1), ("psp_references", 1)):
        found = exported[name]
        assert isinstance(found, list)
        assert len(found) == size
    # Events that were sent about the former guest are not changed.
    deliveries = exported["event_deliveries"]
    assert isinstance(deliveries, list)
    told = [(each["event"]["type"], each["event"]["guest_id"]) for each in deliveries]
    assert ("account.stored", MERGED) in told
    assert ("guest.merged", THIRD) in told
    events = exported["events"]
    assert isinstance(events, list)
    assert [each["guest_id"] for each in events].count(MERGED) == len(events) - 2
    entries = exported["audit_entries"]
    assert isinstance(entries, list)
    assert {MERGED, REMAINING} <= {each["about"] for each in entries}


class TestMergesInARestoredBackup:
    def test_a_merge_is_repeated_in_an_older_backup(self, installation: Installation) -> None:
        account = installation.stored_card(guest_id=MERGED)
        merge(installation)
        installation.put_account(account)
        restore_a_backup_from_before(installation)
        erase_guest = installation.container.erase_guest()
        assert erase_guest.guests_not_erased() == [MERGED]

        assert erase_guest.repeat_from_file() == [MERGED]
        assert erase_guest.guests_not_erased() == []
        assert erase_guest.repeat_from_file() == []
        finish(installation)
        assert ids(installation.accounts()) == [account.account_id]
        assert installation.tokens_at_psp() == {account.token}

    @pytest.mark.parametrize(
        "lost", [[MERGED, REMAINING], [MERGED]], ids=["both merges", "the first"]
    )
    def test_repeating_a_chain_of_merges_moves_the_card_to_the_guest_who_remains(
        self, installation: Installation, lost: list[GuestId]
    ) -> None:
        account = installation.stored_card(guest_id=MERGED)
        merge(installation)
        merge(installation, merged=REMAINING, remaining=THIRD)
        installation.put_account(account)
        for each in lost:
            change_by_hand(installation.storage, f"DELETE FROM erasures WHERE guest_id = '{each}'")
            installation.has_guest(a_guest(id=each))

        assert installation.container.erase_guest().repeat_from_file() == lost
        assert ids(installation.accounts(THIRD)) == [account.account_id]

    def test_a_merged_guest_that_a_backup_restores_is_erased_with_the_remaining_guest(
        self, installation: Installation
    ) -> None:
        account = installation.stored_card(guest_id=MERGED)
        merge(installation)
        installation.erase_guest(REMAINING)
        installation.put_account(account)
        restore_a_backup_from_before(installation)

        installation.container.erase_guest().repeat_from_file()
        finish(installation)
        assert installation.accounts(MERGED) == installation.accounts() == ()
        assert installation.tokens_at_psp() == frozenset()

    def test_a_new_merge_overrides_an_opposite_merge_in_the_erasure_file(
        self, installation: Installation
    ) -> None:
        file = installation.container.erasure_file()
        file.note(MERGED, installation.clock.now() - DAY, (), merged_into=REMAINING)
        merge(installation, merged=REMAINING, remaining=MERGED)
        assert (list(file.erased()), file.merged()) == ([REMAINING], {REMAINING: MERGED})

    def test_a_merge_in_the_database_overrides_an_opposite_merge_in_the_erasure_file(
        self, installation: Installation, tmp_path: Path
    ) -> None:
        account = installation.stored_card(guest_id=MERGED)
        merge(installation, merged=REMAINING, remaining=MERGED)
        # The erasure file of this machine contains only the merge that the database lost.
        (tmp_path / "erasures.txt").unlink()
        file = installation.container.erasure_file()
        file.note(MERGED, installation.clock.now() - DAY, (), merged_into=REMAINING)
        erase_guest = installation.container.erase_guest()
        assert erase_guest.repeat_from_file() == [MERGED]
        assert erase_guest.guests_not_erased() == []
        assert ids(installation.accounts(MERGED)) == [account.account_id]
        assert file.merged() == {REMAINING: MERGED}

    def test_the_erasure_file_may_list_merges_in_any_order(
        self, installation: Installation
    ) -> None:
        file, now = installation.container.erasure_file(), installation.clock.now()
        file.note(REMAINING, now + DAY, (), merged_into=THIRD)
        # The process that wrote this line was slow, or the files of two machines were joined.
        file.note(MERGED, now, (), merged_into=REMAINING)
        assert file.merged() == {REMAINING: THIRD, MERGED: REMAINING}

    def test_erasing_a_guest_whose_merge_was_lost_does_not_erase_the_remaining_guest(
        self, installation: Installation
    ) -> None:
        installation.stored_card(guest_id=MERGED)
        kept = installation.stored_card(OTHER_GOOD_CARD)
        merge(installation)
        # The merge's line in the erasure file contains the references of both guests.
        finish(installation)
        moved = next(each for each in installation.accounts() if each != kept)
        installation.put_account(replace(moved, guest_id=MERGED))
        installation.loses("former_guest_references")
        for _ in range(2):
            # The database is restored, without `guest erase --again` the first time.
            restore_a_backup_from_before(installation)
            installation.erase_guest(MERGED)
            finish(installation)
        assert installation.tokens_at_psp() == {kept.token}

    def test_an_unreadable_card_does_not_stop_other_erasures(
        self, installation: Installation
    ) -> None:
        installation.stored_card(guest_id=MERGED)
        merge(installation)
        installation.erase_guest(THIRD)
        restore_a_backup_from_before(installation)
        installation.has_guest(a_guest(id=THIRD))
        change_by_hand(installation.storage, "UPDATE payment_accounts SET source = 77")
        erase_guest = installation.container.erase_guest()
        with pytest.raises(RecordUnreadable):
            erase_guest.repeat_from_file()
        assert erase_guest.guests_not_erased() == [MERGED]

    def test_a_merge_does_not_remove_an_erased_guest_from_the_erasure_file(
        self, installation: Installation
    ) -> None:
        file = installation.container.erasure_file()
        file.note(REMAINING, installation.clock.now(), ())
        file.note(MERGED, installation.clock.now(), (), merged_into=REMAINING)
        assert list(file.erased()) == [REMAINING, MERGED]

    def test_the_worker_moves_late_records_before_the_erasure_file_becomes_writable(
        self, installation: Installation, tmp_path: Path
    ) -> None:
        installation.stored_card(guest_id=MERGED)
        references = references_of(installation.storage, MERGED)
        file = tmp_path / "erasures.txt"
        file.mkdir()
        merge(installation)
        session = installation.add_card()
        installation.put_session(replace(session, guest_id=MERGED))
        installation.clock.advance(MAX_REQUEST_DURATION)
        with pytest.raises(ServiceUnavailable):
            installation.container.finish_erasures()()
        assert installation.session(session.token_id).guest_id == REMAINING
        file.rmdir()
        finish(installation)
        known = installation.container.erasure_file()
        assert known.merged() == {MERGED: REMAINING}
        assert known.erased() == {MERGED: references}

    def test_erasing_a_guest_adds_the_merges_of_the_guest_to_the_erasure_file(
        self, installation: Installation, tmp_path: Path
    ) -> None:
        merge(installation)
        (tmp_path / "erasures.txt").unlink()
        installation.erase_guest(REMAINING)
        file = installation.container.erasure_file()
        assert {*file.erased()} == {MERGED, REMAINING}
        assert file.merged() == {MERGED: REMAINING}

    def test_repeating_a_merge_restores_guest_references(self, installation: Installation) -> None:
        installation.stored_card(guest_id=MERGED)
        merge(installation)
        references = {each for _, each in references_of(installation.storage, REMAINING)}
        for table in ("payment_accounts", "card_sessions", "former_guest_references"):
            installation.loses(table)
        restore_a_backup_from_before(installation)
        installation.container.erase_guest().repeat_from_file()
        assert {each for _, each in references_of(installation.storage, REMAINING)} == references

    def test_a_truncated_line_about_a_merge_does_not_erase_the_remaining_guest(
        self, installation: Installation, tmp_path: Path
    ) -> None:
        merge(installation)
        file = tmp_path / "erasures.txt"
        line = file.read_text().strip()
        named = line.split()[0]
        for length in range(len(line)):
            file.write_text(line[:length])
            found = installation.container.erasure_file().erased()
            assert list(found) == ([MERGED] if len(named) <= length else []), line[:length]


def test_an_earlier_release_does_not_delete_the_cards_of_a_merged_guest(
    installation: Installation,
) -> None:
    account = installation.stored_card(guest_id=MERGED)
    merge(installation)
    # What 0.2.0 does with each row of `erasures`, whatever the new column says.
    installation.clock.advance(MAX_REQUEST_DURATION)
    with committed(installation.storage) as unit:
        assert unit.guest_references.of(MERGED) == []
        erasure = unit.erasures.get(MERGED)
        assert erasure is not None
        note_event = installation.container.note_event()
        end_and_blank(unit, note_event, MERGED, installation.clock.now())
        unit.guest_references.remove(MERGED)
        unit.erasures.update(erasure.done(installation.clock.now()))
    finish(installation)
    assert ids(installation.accounts()) == [account.account_id]
    assert installation.tokens_at_psp() == {account.token}
    assert references_of(installation.storage, REMAINING)


def test_the_id_of_a_merged_guest_is_kept_after_old_records_are_deleted(
    installation: Installation,
) -> None:
    account = installation.stored_card(guest_id=MERGED)
    merge(installation)
    finish(installation)
    installation.remove_card(installation.account(account.account_id))
    installation.reconcile()
    later = installation.clock.now() + 1000 * DAY
    with committed(installation.storage) as unit:
        assert unit.accounts.forget(before=later) == 1
        assert unit.sessions.forget(before=later) == 1
    with installation.storage.read() as unit:
        assert unit.erasures.merged_into(REMAINING) == [MERGED]
        # A later erasure must still find the guest at the PSP.
        assert unit.guest_references.of(REMAINING)


def test_a_merge_is_refused_if_a_card_cannot_be_decoded(installation: Installation) -> None:
    installation.stored_card(guest_id=MERGED)
    change_by_hand(installation.storage, "UPDATE payment_accounts SET source = 77")
    with pytest.raises(RecordUnreadable):
        merge(installation, last_fours=["4242"])
    with installation.storage.read() as unit:
        assert unit.guests.get(MERGED) is not None
        assert unit.erasures.get(MERGED) is None


def test_an_unreadable_card_of_a_merged_guest_does_not_stop_an_erasure(
    installation: Installation,
) -> None:
    installation.stored_card(guest_id=MERGED)
    merge(installation)
    finish(installation)
    change_by_hand(installation.storage, "UPDATE payment_accounts SET source = 77")
    installation.erase_guest(REMAINING)
    finish(installation)
    assert are_erased(installation)
    assert installation.tokens_at_psp() == frozenset()


def test_a_merge_keeps_the_general_consent_if_both_guests_have_the_same_card(
    installation: Installation,
) -> None:
    kept = installation.stored_card()
    installation.clock.advance(timedelta(minutes=5))
    booked = installation.stored_card(guest_id=MERGED)
    until = installation.clock.now() + DAY
    installation.put_account(replace(booked, keep_until=until, consent_version="booking-2026-11"))

    merge(installation)

    (account,) = installation.accounts(REMAINING)
    assert account.account_id == booked.account_id
    assert (account.keep_until, account.consent_version) == (None, kept.consent_version)
    assert {each.token_id for each in installation.consents(account)} == {
        kept.token_id,
        booked.token_id,
    }
