"""Checks the invariants by comparing what is stored with what clients were told."""

from __future__ import annotations

import json
import struct
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final, TypeAlias

import msgspec

from adapters.fake_psp.cards import TEST_CARDS
from adapters.fake_psp.psp import PspPage
from domain.billing import AvsResult
from domain.guests.guest import Guest
from domain.psps.card import Card
from domain.psps.hosted_page import Consent
from domain.worker.jobs import End, Kind
from entrypoints.worker.reports import Done
from tests.simulation.endpoints import EVERYTHING, Endpoints
from tests.simulation.psp import LASTING_TOKENS, token_of
from tests.simulation.snapshot import (
    AccountRow,
    AgreementRow,
    DeliveryRow,
    DiscardRow,
    EndpointRow,
    SessionRow,
    Snapshot,
    Token,
)
from tests.told_events import Told, lost_and_invented

MAX_CLOCK_SKEW: Final = timedelta(minutes=5)
"""The largest difference between the clocks of two processes in the simulation."""

MAX_ATTEMPTS: Final = 10
"""How often an event is sent to an endpoint that does not accept it."""

_NEXT_STATUS: Final = {
    "open": {"open", "completed", "failed", "expired"},
    "expired": {"expired", "completed"},
}


Version: TypeAlias = tuple[str, int, int]
"""The fingerprint and expiry date of a card."""


def version_of(card: Card | AccountRow) -> Version:
    """Return the details of a card that a bank may change."""
    return card.fingerprint, card.expiry_month, card.expiry_year


_CARD_NUMBERS: Final = tuple(number.encode() for number in TEST_CARDS)

_TREE_PAGES: Final = {2: 12, 5: 12, 10: 8, 13: 8}
"""The header length of a b-tree page by its first byte (SQLite's file format, section 1.6)."""


class Broken(Exception):
    """An invariant does not hold. `invariant` is its name in docs/reliability.md."""

    def __init__(self, invariant: str, what: str) -> None:
        self.invariant = invariant
        super().__init__(f"{invariant}: {what}")


def configuration_of(center_id: str) -> str:
    """Return a name for the payment configuration of a center."""
    return f"configuration of {center_id}"


def require(holds: object, invariant: str, what: str) -> None:
    """Raise Broken with the text `what` unless `holds` is true."""
    if not holds:
        raise Broken(invariant, what)


def require_end(snapshot: Snapshot) -> None:
    """Raise Broken unless all work is done.

    - Every session has ended.
    - The PSP holds exactly the tokens of the active accounts.
    - Every event is delivered unless its endpoint was removed or disabled.
    - Every erasure is done.
    """
    for delivery in snapshot.all_deliveries:
        name = f"event {delivery.event_id} to {delivery.endpoint_id}"
        require(delivery.status != "pending", "I10", f"{name} stays pending")
        is_off = not snapshot.endpoints[delivery.endpoint_id].is_active
        require(delivery.status == "delivered" or is_off, "I10", f"{name} is not delivered")
    for each in snapshot.sessions.values():
        require(each.status != "open", "I4", f"session {each.token_id} stays open")
    require(snapshot.held == snapshot.tokens, "I7", "the PSP holds tokens of no active account")
    for erasure in snapshot.erasures.values():
        guest_id = erasure.guest_id
        require(erasure.done_at, "I12", f"the erasure of {guest_id} is never done")
        if erasure.merged_into is not None:
            # The PSP knows the guest until the remaining guest is erased.
            require(not snapshot.of_guest(guest_id), "I5", f"{guest_id} has a session")
            continue
        is_known = any(
            page.request.guest_id == guest_id and page.guest_reference for page in snapshot.pages
        )
        require(not is_known, "I12", f"the PSP has not forgotten {guest_id}")
        for session in snapshot.of_guest(guest_id):
            name = f"session {session.token_id} of {guest_id}"
            require(
                not session.redirect_uri, "I12", f"{name} still tells where the guest came from"
            )
            has_evidence = any(token_id == session.token_id for token_id, _ in snapshot.evidence)
            require(not has_evidence, "I12", f"{name} still has evidence")


def require_current(snapshot: Snapshot) -> None:
    """Raise Broken unless each card on file has the same details as at the PSP.

    Cards with lasting tokens are not compared. All other cards must have been refreshed before.
    """
    for account in snapshot.accounts.values():
        if account.is_active and account.merchant_account != LASTING_TOKENS:
            (page,) = snapshot.pages_of_card(account)
            is_current = page.card and version_of(page.card) == version_of(account)
            require(is_current, "I13", f"account {account.account_id} is not as the PSP has it")


def require_done(
    before: Snapshot, after: Snapshot, done: Done, *, now: datetime, away: Collection[str]
) -> None:
    """Raise Broken unless the reconciler did and counted everything that was due.

    The endpoints in `away` do not accept events, so the reconciler may try each of them only once.
    """
    due, left = _due(before, now, away), _due(after, now, away)
    require(not any(left.values()), "I4", f"the reconciler leaves what is due: {left}")
    for kind in ("sessions", "events"):
        jobs = done.jobs[kind]
        require(jobs >= due[kind], "I4", f"the reconciler did {jobs} of {due[kind]} {kind}")
    delivered = _delivered(after) - _delivered(before)
    counted = done.ends[End.DELIVERED]
    require(counted == delivered, "I10", f"{delivered} events are delivered, {counted} counted")
    for endpoint_id in away:
        if after.endpoints[endpoint_id].removed_at is not None:
            # Each delivery to a removed endpoint ends without an attempt to send the event.
            continue
        tries = _tries(after, endpoint_id) - _tries(before, endpoint_id)
        require(tries <= 1, "F43", f"endpoint {endpoint_id} is away, and was tried {tries} times")


def _due(snapshot: Snapshot, now: datetime, away: Collection[str]) -> Mapping[Kind, int]:
    """Return how many jobs of each kind are due, without deliveries to the endpoints in `away`."""
    deliveries = [each for each in snapshot.all_deliveries if each.endpoint_id not in away]
    kinds: Mapping[Kind, Iterable[SessionRow | DiscardRow | AccountRow | DeliveryRow]] = {
        "sessions": snapshot.sessions.values(),
        "discards": snapshot.discards,
        "cards": snapshot.accounts.values(),
        "events": deliveries,
    }
    return {
        kind: sum(each.due_at is not None and each.due_at <= now for each in rows)
        for kind, rows in kinds.items()
    }


def _delivered(snapshot: Snapshot) -> int:
    return sum(each.status == "delivered" for each in snapshot.all_deliveries)


def _tries(snapshot: Snapshot, endpoint_id: str) -> int:
    return sum(each.attempts for each in snapshot.deliveries.get(endpoint_id, {}).values())


def require_in_time(snapshot: Snapshot, now: datetime) -> None:
    """Raise Broken if work is due later than its longest wait allows.

    A wrong clock may cause such a due time.
    """
    soon, later = now + timedelta(hours=1, minutes=5), now + timedelta(hours=24, minutes=17)
    month = now + timedelta(days=31)
    for name, due_at, latest in (
        *(
            (f"session {it.token_id}", it.due_at, max(soon, it.expires_at))
            for it in snapshot.sessions.values()
        ),
        *(("a discard", it.due_at, soon) for it in snapshot.discards),
        *((f"account {it.account_id}", it.due_at, month) for it in snapshot.accounts.values()),
        *((f"the erasure of {it.guest_id}", it.due_at, soon) for it in snapshot.erasures.values()),
        *((f"event {it.event_id}", it.due_at, later) for it in snapshot.all_deliveries),
    ):
        require(due_at is None or due_at <= latest, "F40", f"{name} is due at {due_at}")


def require_nothing_personal(files: Mapping[str, bytes], guests: Collection[Guest]) -> None:
    """Raise Broken if a file contains the name or an address of one of these guests."""
    shown = {name: without_slack(content) for name, content in files.items()} if guests else {}
    for guest in guests:
        first, last = guest.first_name, guest.last_name
        texts = (f"{first} {last}", f"{first}{last}", guest.email, street_of(guest))
        for name, content in shown.items():
            for text in filter(None, texts):
                require(text.encode() not in content, "I12", f"{text!r} is in {name}")


def without_slack(content: bytes) -> bytes:
    """Return a database file with zeros between the pointers and the cells of each page in use.

    When SQLite splits a page, old cells remain in that space, even with `secure_delete`, until the
    page fills up again (`rebuildPage` in SQLite's b-tree). Other files are returned unchanged.
    """
    if not content.startswith(b"SQLite format 3\0"):
        return content
    (size,) = struct.unpack_from(">H", content, 16)
    pages = [bytearray(content[at : at + size]) for at in range(0, len(content), size)]
    for number, page in enumerate(pages):
        header = 100 if number == 0 else 0
        if page[header] in _TREE_PAGES:
            cells, begin = struct.unpack_from(">HH", page, header + 3)
            end = header + _TREE_PAGES[page[header]] + 2 * cells
            if end < begin:
                page[end:begin] = bytes(begin - end)
    return b"".join(pages)


def street_of(guest: Guest) -> str:
    """Return the street of a guest."""
    return f"1 {guest.last_name} Street"


def require_no_card_number(files: Mapping[str, bytes]) -> None:
    """Raise Broken if a file contains the number of a test card."""
    for name, content in files.items():
        is_there = any(number in content for number in _CARD_NUMBERS)
        require(not is_there, "I6", f"a card number is in {name}")


@dataclass(slots=True)
class Click:
    """A guest's click on one of our pages. `digest` is the digest of the text on that page.

    The service handles the click between `began_at` and `ended_at`.
    """

    browser: str
    digest: str
    began_at: datetime
    ended_at: datetime | None = None

    def may_mean(self, consent: Consent, agreed_at: datetime) -> bool:
        """Return whether the guest may have agreed to a consent at `agreed_at` by this click."""
        is_over = self.ended_at is not None and self.ended_at < agreed_at
        return self.digest == consent.digest and self.began_at <= agreed_at and not is_over


@dataclass
class Known:
    """What the simulated people did and were told. Nothing here is read from the files.

    Sessions:

    - `started`: the guest, center and redirect_uri of each session whose id a client was told.
    - `sends`: how often each redirect_uri was sent. No two visits share a redirect_uri.
    - `sent_for`: each redirect_uri, with the guests of the sessions that sent it.
    - `keyed`: the redirect_uris that were sent with an idempotency key.
    - `cancelled`: the sessions whose cancellation was confirmed, except sessions that had already
      ended.
    - `max_sessions`: how many sessions a guest may have at a center in 24 hours, or None for any
      number.

    Confirmed changes:

    - `removed`: the accounts whose removal was confirmed.
    - `ended`: the agreements whose end was confirmed.
    - `erased`: the guests whose erasure was confirmed.
    - `unmerged`: the guests whose merge the database has lost.

    Cards:

    - `imported`: the tokens of cards that were imported.
    - `reissued`: the tokens of cards that a bank has changed at the PSP.
    - `lost`: the tokens of cards that the PSP has lost.
    - `versions`: for the token of each card, the details that the card had one after another.
    - `typed`: for the reference of each page, the guest who typed a card on it.
    - `late`: the pages whose card the PSP reports only by webhook.
    - `was_late`: all pages that have ever been in `late`.

    Guests, centers and configurations:

    - `places`: all of them.
    - `there`: those that existed at some time since the last check.
    - `missing`: those that did not exist at some time since the last check.

    Endpoints and events:

    - `endpoints`: the event endpoints of clients.
    - `secrets`: for each endpoint, the last two secrets that its owner was told. An endpoint is
      left out if the response to a change of its secret was lost.
    - `read`: the events that a client has read from the list, in order.
    - `position`: the position in the list from which that client continues.

    Consents:

    - `asks`: whether a page of the service asks for the consent.
    - `clicks`: for each session, the clicks of its guest on that page.
    - `texts`: for each session, the texts about a booking that its guest has read.
    - `offered`: for each session, the cards on file that the page has offered.
    """

    started: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    sends: Counter[str] = field(default_factory=Counter)
    sent_for: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    keyed: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    erased: set[str] = field(default_factory=set)
    unmerged: set[str] = field(default_factory=set)
    imported: set[str] = field(default_factory=set)
    reissued: set[str] = field(default_factory=set)
    lost: set[Token] = field(default_factory=set)
    versions: defaultdict[str, list[Version]] = field(default_factory=lambda: defaultdict(list))
    typed: dict[str, str] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)
    was_late: set[str] = field(default_factory=set)
    places: set[str] = field(default_factory=set)
    there: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    max_sessions: int | None = None
    endpoints: Endpoints = field(default_factory=Endpoints)
    secrets: dict[str, list[str]] = field(default_factory=dict)
    asks: bool = False
    texts: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    read: list[str] = field(default_factory=list)
    position: str = "0"
    offered: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    clicks: defaultdict[str, list[Click]] = field(default_factory=lambda: defaultdict(list))


class Invariants:
    """Checks I1 to I13 and S23 of docs/reliability.md after every step."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._before: Mapping[str, SessionRow] = {}
        self._accounts: Mapping[str, AccountRow] = {}
        self._deliveries_told: set[str] = set()
        self._endpoints: Mapping[str, EndpointRow] = {}
        self._deliveries: Mapping[str, Mapping[str, DeliveryRow]] = {}
        self._numbered: Sequence[str] = []
        self._bodies: dict[str, bytes] = {}
        self._arrived: set[tuple[str, str]] = set()
        self._arrivals_checked = 0
        self._once_expired: set[str] = set()
        self._bookings: set[str] = set()
        self._replaces: dict[str, str] = {}
        self._versions: dict[str, int] = {}

    def check(self, snapshot: Snapshot, now: datetime) -> None:
        """Raise Broken for the first invariant that does not hold."""
        known, there = self._known, _places(snapshot)
        self._latest = now + MAX_CLOCK_SKEW
        known.there |= there
        known.missing |= known.places - there
        self._confirmed_work_is_stored(snapshot)
        self._repeated_requests_start_one_session(snapshot)
        self._cards_are_stored_once(snapshot)
        _guests_with_cards_have_one_default(snapshot)
        self._cards_do_not_go_back(snapshot)
        self._sessions_change_only_as_allowed(snapshot)
        self._cancelling_decides_by_the_time(snapshot)
        self._cards_belong_where_they_were_typed(snapshot)
        self._failures_have_a_reason(snapshot)
        self._erased_guests_have_no_card_and_no_link(snapshot)
        self._no_token_is_forgotten(snapshot)
        for each in snapshot.sessions.values():
            is_open = each.status == "open"
            require(not is_open or each.due_at, "I4", f"open session {each.token_id} is never due")
        self._agreements_keep_their_cards(snapshot)
        self._cards_are_replaced_once_another_is_stored(snapshot)
        self._nothing_that_was_taken_back_comes_back(snapshot)
        _what_guests_take_back_is_noted(snapshot)
        _each_session_has_one_page(snapshot, now)
        _each_refused_card_is_counted_once(snapshot)
        self._no_guest_has_too_many_sessions(snapshot)
        self._events_tell_what_happened(snapshot)
        self._events_are_for_endpoints_that_take_them(snapshot)
        self._events_are_listed_in_one_order(snapshot)
        self._what_was_decided_arrives(snapshot)
        self._before, self._accounts = snapshot.sessions, snapshot.accounts
        self._endpoints, self._deliveries = snapshot.endpoints, snapshot.deliveries
        known.there, known.missing = there, known.places - there

    def _agreements_keep_their_cards(self, snapshot: Snapshot) -> None:
        of_account: defaultdict[str, list[AgreementRow]] = defaultdict(list)
        for agreement in snapshot.agreements:
            name = f"agreement {agreement.agreement_id}"
            account = snapshot.accounts.get(agreement.account_id)
            if account is None or account.guest_id != agreement.guest_id:
                raise Broken("I5", f"{name} is at another guest than its card")
            texts = self._known.texts[agreement.token_id]
            require(agreement.text in texts, "I11", f"the guest of {name} read another text")
            of_account[agreement.account_id].append(agreement)
        for agreement_id in sorted(self._known.ended):
            is_ended = any(
                each.agreement_id == agreement_id and each.ended_at for each in snapshot.agreements
            )
            require(is_ended, "I1", f"agreement {agreement_id} goes on after its end")
        for session in self._just_ended(snapshot, "completed"):
            given = sum(each.token_id == session.token_id for each in snapshot.agreements)
            has_agreed = session.has_agreement and session.clicks > 0
            is_whole = given == (session.bookings if has_agreed else 0)
            require(is_whole, "I11", f"session {session.token_id} lost an agreement")
        for account in snapshot.accounts.values():
            if account.is_active and account.keep_until is not None:
                latest = self._kept_until(account, of_account[account.account_id])
                is_right = account.keep_until == latest
                require(is_right, "I8", f"account {account.account_id} is kept for another time")
        for told in snapshot.deliveries.get(EVERYTHING, {}).values():
            about = (told.told.type, told.reason)
            is_known = told.event_id in self._deliveries_told
            if is_known or about != ("account.removed", "agreement_ended"):
                continue
            self._deliveries_told.add(told.event_id)
            before = self._accounts.get(told.told.account_id or "")
            is_over = before and before.keep_until and before.keep_until < self._latest
            require(is_over, "I1", f"account {told.told.account_id} was removed before its time")

    def _kept_until(
        self, account: AccountRow, agreements: Sequence[AgreementRow]
    ) -> datetime | None:
        """Return the time until which the agreements of an account keep its card."""
        if account.is_taken_back:
            agreements = [each for each in agreements if self._may_run(each)]
            if not agreements and account.keep_until and account.keep_until <= self._latest:
                # The card is due to be removed.
                return account.keep_until
        return max((each.keeps_card_until for each in agreements), default=None)

    def _may_run(self, agreement: AgreementRow) -> bool:
        """Return whether a card may be charged under the agreement, by the clock of any process."""
        return agreement.reason is None and self._latest < agreement.kept_until

    def _cards_are_replaced_once_another_is_stored(self, snapshot: Snapshot) -> None:
        sessions, agreements = snapshot.sessions, snapshot.agreements
        self._replaces |= {key: each.replaces for key, each in sessions.items() if each.replaces}
        new_cards = {
            (self._replaces[key], each.account_id)
            for key, each in sessions.items()
            if key in self._replaces and each.status == "completed"
        }
        every = snapshot.deliveries.get(EVERYTHING, {})
        for event_id in every.keys() - self._deliveries.get(EVERYTHING, {}).keys():
            event = every[event_id]
            about = (event.told.type, event.reason, event.by)
            if about != ("account.removed", "replaced", "guest"):
                continue
            former, name = event.told.account_id, f"account {event.told.account_id}, replaced,"
            has_other = any(old == former != new for old, new in new_cards)
            require(has_other, "I8", f"{name} was removed before another card was stored")
            is_needed = any(
                each.account_id == former and self._may_run(each) for each in agreements
            )
            require(not is_needed, "I1", f"{name} was removed before the end of its booking")
        for session in self._just_ended(snapshot, "completed"):
            account = snapshot.accounts.get(self._replaces.get(session.token_id, ""))
            if account is not None and account.account_id != session.account_id:
                is_taken_back = not account.is_active or account.is_taken_back
                name = f"account {account.account_id}"
                require(is_taken_back, "I11", f"{name} is kept, although its guest replaced it")

    def _nothing_that_was_taken_back_comes_back(self, snapshot: Snapshot) -> None:
        for account in snapshot.accounts.values():
            before = self._accounts.get(account.account_id)
            name = f"account {account.account_id}"
            if before is not None and not before.is_active:
                require(not account.is_active, "I1", f"{name} is active again")
            if not account.is_active or account.keep_until is not None:
                continue
            if before is None:
                withdrawals = [
                    other.withdrawn_at
                    for other in snapshot.accounts.values()
                    if other.is_same_card(account) and not other.is_active
                ]
            else:
                withdrawals = [before.withdrawn_at] if before.is_taken_back else []
            withdrawn_at = max(filter(None, withdrawals), default=None)
            if withdrawn_at is None or account.token in self._known.reissued:
                continue
            # The newer consent may be stored with another account of the same card.
            agreed_at = [
                consent.agreed_at
                for consent in snapshot.consents.values()
                if snapshot.accounts[consent.account_id].is_same_card(account)
            ]
            is_newer = any(withdrawn_at < each for each in agreed_at)
            require(is_newer, "I11", f"{name} is kept without a consent since the withdrawal")

    def _confirmed_work_is_stored(self, snapshot: Snapshot) -> None:
        for token_id, started in self._known.started.items():
            session = snapshot.sessions.get(token_id)
            if session is None:
                raise Broken("I1", f"a client was told of session {token_id}, which is lost")
            redirect_uri = session.redirect_uri
            if snapshot.is_erased(session.guest_id):
                redirect_uri = redirect_uri or started[2]
            asked_for = (snapshot.heir_of(started[0]), *started[1:])
            is_same = (session.guest_id, session.center_id, redirect_uri) == asked_for
            require(is_same, "I5", f"session {token_id} is not what the client asked for")
        for account_id in sorted(self._known.removed):
            account = snapshot.accounts.get(account_id)
            is_removed = account and not account.is_active
            require(is_removed, "I1", f"account {account_id} is active after its removal")
        for session in snapshot.sessions.values():
            if session.status == "completed" and not snapshot.is_erased(session.guest_id):
                _require_card_of(session, snapshot, self._known)

    def _repeated_requests_start_one_session(self, snapshot: Snapshot) -> None:
        started: dict[str, list[datetime]] = {}
        for session in snapshot.sessions.values():
            if session.redirect_uri or not snapshot.is_erased(session.guest_id):
                started.setdefault(session.redirect_uri, []).append(session.created_at)
        for visit, times in started.items():
            if visit in self._known.keyed:
                times.sort()
                day = timedelta(hours=24) - MAX_CLOCK_SKEW
                once = all(later - earlier >= day for earlier, later in pairwise(times))
                require(once, "I1", f"{visit}, sent with one key, has several sessions")
            require(len(times) <= self._known.sends[visit], "I1", f"{visit} has too many sessions")

    def _cards_are_stored_once(self, snapshot: Snapshot) -> None:
        accounts = snapshot.accounts.values()
        cards = Counter(
            (each.guest_id, each.center_id, each.merchant_account, each.fingerprint)
            for each in accounts
            if each.is_active
        )
        for card, times in cards.items():
            require(times == 1, "I2", f"{times} active accounts of one card: {card}")
        for consent in snapshot.consents.values():
            session = snapshot.sessions[consent.token_id]
            is_of_it = session.account_id == consent.account_id
            require(is_of_it, "I11", f"session {session.token_id} has a consent and no card")
        for token_id, times in Counter(each.token_id for each in accounts).items():
            require(times == 1, "I2", f"session {token_id} has {times} accounts")

    def _cards_do_not_go_back(self, snapshot: Snapshot) -> None:
        for account in snapshot.accounts.values():
            versions = self._known.versions.get(account.token)
            if (
                not account.is_active
                or versions is None
                or account.merchant_account == LASTING_TOKENS
            ):
                continue
            name = f"account {account.account_id}"
            require(version_of(account) in versions, "I13", f"{name} is as no bank has made it")
            version = versions.index(version_of(account))
            before = self._versions.get(account.token, 0)
            require(version >= before, "I13", f"{name} has gone back to an earlier card")
            self._versions[account.token] = version

    def _sessions_change_only_as_allowed(self, snapshot: Snapshot) -> None:
        for token_id, before in self._before.items():
            now = snapshot.sessions.get(token_id)
            if now is None:
                raise Broken("I1", f"session {token_id} is lost")
            heir = snapshot.heir_of(before.guest_id)
            before = msgspec.structs.replace(before, guest_id=heir)  # noqa: PLW2901 - a merge may do that
            if snapshot.is_erased(now.guest_id) and not now.redirect_uri:
                before = msgspec.structs.replace(before, redirect_uri="")  # noqa: PLW2901 - only that may go
            if snapshot.is_erased(now.guest_id):
                before = msgspec.structs.replace(  # noqa: PLW2901 - the terms may go too
                    before,
                    has_agreement=now.has_agreement,
                    clicks=now.clicks,
                    agreement_ends_at=now.agreement_ends_at,
                    bookings=now.bookings,
                    replaces=now.replaces,
                    former=now.former,
                )
            if before.is_settled:
                # A settled session may become due, so that the PSP is asked about an earlier page.
                before = msgspec.structs.replace(before, due_at=now.due_at)  # noqa: PLW2901 - as above
                require(now == before, "I3", f"settled session {token_id} has changed")
            else:
                is_allowed = now.status in _NEXT_STATUS[before.status]
                step = f"from {before.status} to {now.status}"
                require(is_allowed, "I3", f"session {token_id} went {step}")

    def _is_lost(self, page: PspPage) -> bool:
        """Return whether the PSP has lost the card of a page."""
        account = page.request.merchant_account
        return page.card is not None and (account, token_of(account, page.card)) in self._known.lost

    def _cancelling_decides_by_the_time(self, snapshot: Snapshot) -> None:
        for token_id in sorted(self._known.cancelled):
            is_noted = snapshot.sessions[token_id].cancelled_at
            require(is_noted, "I1", f"the cancellation of session {token_id} is lost")
        for session in snapshot.sessions.values():
            cancelled_at = session.cancelled_at
            if cancelled_at is None:
                continue
            name = f"session {session.token_id}, which was cancelled,"
            before = self._before.get(session.token_id)
            require(session.expires_at <= cancelled_at, "I3", f"{name} goes on")
            if before and before.cancelled_at:
                is_same = (before.cancelled_at, before.attempt) == (cancelled_at, session.attempt)
                require(is_same, "I3", f"{name} has changed")
            for page in snapshot.pages_with_card(session.token_id):
                if page.request.attempt != session.attempt or page.collected_at is None:
                    continue
                if page.collected_at > cancelled_at:
                    require(session.status != "completed", "I3", f"{name} stored a later card")
                elif session.status == "expired" and (before is None or before.status == "open"):
                    is_excused = page.reference in self._known.was_late or _is_dead(page, snapshot)
                    is_excused = is_excused or _was_taken_back(page, session, snapshot)
                    is_there = not is_excused and not self._is_lost(page)
                    require(not is_there, "I3", f"{name} lost an earlier card")

    def _cards_belong_where_they_were_typed(self, snapshot: Snapshot) -> None:
        heirs = snapshot.heirs
        for account in snapshot.accounts.values():
            name = f"account {account.account_id}"
            if account.token in self._known.imported:
                continue
            session = snapshot.sessions.get(account.token_id)
            if session is None:
                raise Broken("I5", f"{name} belongs to no session")
            pages = snapshot.pages_of_card(account)
            if snapshot.is_erased(account.guest_id):
                continue
            require(pages, "I8", f"{name} has a card that nobody typed")
            for page in pages:
                self._require_typed_for(account, page, snapshot)
            # After a merge, the remaining guest may have a card from each of the two guests.
            is_one = session.cards_per_guest == "one" and account.guest_id not in heirs
            if is_one and account.is_active:
                is_first = not any(
                    other.is_active
                    and other.sequence < account.sequence
                    and (other.guest_id, other.center_id) == (account.guest_id, account.center_id)
                    for other in snapshot.accounts.values()
                )
                require(is_first, "I5", f"{name} is a second card where one is allowed")
        for session in self._just_ended(snapshot, "completed"):
            needed = {session.guest_id, session.center_id, configuration_of(session.center_id)}
            for page in snapshot.pages_with_card(session.token_id):
                is_stored = page.request.attempt == session.attempt
                is_accepted = not page.card or page.card.funding not in (
                    json.loads(session.refuse_funding or "[]")
                )
                require(
                    is_accepted or not is_stored,
                    "I5",
                    f"session {session.token_id} stored a card that the center does not accept",
                )
            gone = sorted(needed - self._known.there)
            require(not gone, "I5", f"session {session.token_id} stored a card, but {gone} is gone")

    def _require_typed_for(self, account: AccountRow, page: PspPage, snapshot: Snapshot) -> None:
        name = f"account {account.account_id}"
        session = snapshot.sessions[page.request.token_id]
        typed_by = snapshot.heir_of(self._known.typed.get(page.reference))
        is_theirs = snapshot.heir_of(typed_by) == account.guest_id == session.guest_id
        require(is_theirs, "I5", f"{name} holds a card that another guest typed")
        # A lasting token does not differ between the centers of a merchant account.
        lasts = page.card and account.token != page.card.token
        is_there = lasts or session.center_id == account.center_id
        require(is_there, "I5", f"{name} holds a card that was typed for another center")

    def _just_ended(self, snapshot: Snapshot, status: str) -> list[SessionRow]:
        return [
            session
            for token_id, session in snapshot.sessions.items()
            if session.status == status
            and not (token_id in self._before and self._before[token_id].is_settled)
        ]

    def _failures_have_a_reason(self, snapshot: Snapshot) -> None:
        missing = self._known.missing
        for session in self._just_ended(snapshot, "failed"):
            if snapshot.is_erased(session.guest_id):
                continue
            collected = snapshot.pages_with_card(session.token_id)
            require(collected, "I3", f"session {session.token_id} failed, and no card was typed")
            match session.failure:
                case "Payment method already exists":
                    is_true = any(
                        (each.guest_id, each.center_id) == (session.guest_id, session.center_id)
                        for each in snapshot.accounts.values()
                    )
                case "Payment method not accepted":
                    is_true = session.refuse_funding is not None
                case "Agreement ended":
                    ends_at = session.agreement_ends_at
                    is_true = ends_at is not None and ends_at <= self._latest
                    # A booking of the replaced card may be over, or its agreement may have ended.
                    is_true |= any(
                        each.agreement_id in session.former
                        and (each.reason is not None or each.ends_at <= self._latest)
                        for each in snapshot.agreements
                    )
                case "Guest not found":
                    is_true = session.guest_id in missing
                case "Invalid center id":
                    is_true = session.center_id in missing
                case "Payment configuration not done":
                    is_true = configuration_of(session.center_id) in missing
                case _:
                    is_true = session.avs and collected[-1].avs is AvsResult.MISMATCH
            reason = f"session {session.token_id} failed with a wrong reason: {session.failure}"
            require(is_true, "I3", reason)

    def _erased_guests_have_no_card_and_no_link(self, snapshot: Snapshot) -> None:
        for guest_id in sorted(self._known.erased):
            require(snapshot.is_erased(guest_id), "I1", f"the erasure of {guest_id} is lost")
        for guest_id in snapshot.erasures:
            require(guest_id not in snapshot.guests, "I12", f"{guest_id} is back")
            for session in snapshot.of_guest(guest_id):
                is_ending = session.status != "open" or session.cancelled_at
                require(is_ending, "I12", f"session {session.token_id} of {guest_id} goes on")
        for account in snapshot.accounts.values():
            is_erased = account.is_active and snapshot.is_erased(account.guest_id)
            require(not is_erased, "I12", f"account {account.account_id} outlives its guest")

    def _no_guest_has_too_many_sessions(self, snapshot: Snapshot) -> None:
        most = self._known.max_sessions
        if most is None:
            return
        times = defaultdict(list)
        for session in snapshot.sessions.values():
            times[session.guest_id, session.center_id].append(session.created_at)
        # A remaining guest may have the sessions of several guests, which may exceed the limit.
        heirs = snapshot.heirs
        for (guest_id, _), all_times in times.items():
            if guest_id in heirs:
                continue
            all_times.sort()
            window = timedelta(hours=24) - MAX_CLOCK_SKEW
            for first, one_too_many in zip(all_times, all_times[most:], strict=False):
                is_later = one_too_many - first >= window
                require(is_later, "S23", f"guest {guest_id} has too many sessions in 24 hours")

    def _events_tell_what_happened(self, snapshot: Snapshot) -> None:
        self._once_expired |= {
            token_id for token_id, each in snapshot.sessions.items() if each.status == "expired"
        }
        self._bookings |= {
            token_id for token_id, each in snapshot.sessions.items() if each.has_agreement
        }
        lost, invented = lost_and_invented(
            [
                # An event keeps the id of a guest who was merged later.
                msgspec.structs.replace(each.told, guest_id=snapshot.heir_of(each.told.guest_id))
                for each in snapshot.deliveries.get(EVERYTHING, {}).values()
            ],
            [each for each in snapshot.sessions.values() if not each.used_card_on_file],
            snapshot.accounts.values(),
            once_expired=self._once_expired,
            bookings=self._bookings,
        )
        require(not lost, "I10", f"no event tells of it: {lost}")
        require(not invented, "I10", f"an event tells of what did not happen: {invented}")

    def _events_are_for_endpoints_that_take_them(self, snapshot: Snapshot) -> None:
        every, before = snapshot.deliveries.get(EVERYTHING, {}), self._deliveries
        new = [each for each in every if each not in before.get(EVERYTHING, {})]
        replayed = self._known.endpoints.replayed
        for endpoint_id, endpoint in snapshot.endpoints.items():
            was = self._endpoints.get(endpoint_id)
            deliveries = snapshot.deliveries.get(endpoint_id, {})
            if was and was.is_active and endpoint.is_active:
                for event_id in new:
                    is_right = (event_id in deliveries) == endpoint.takes(every[event_id].told)
                    require(is_right, "I10", f"event {event_id} is not where it belongs")
            for event_id, each in deliveries.items():
                name = f"event {event_id} to {endpoint.url}"
                require(event_id in every, "I10", f"{name} was not decided")
                is_same = each.told == every[event_id].told
                require(is_same and endpoint.takes(each.told), "I10", f"{name} is for another")
                if event_id not in before.get(endpoint_id, {}):
                    may_be = was is None or was.is_active
                    require(may_be, "I10", f"{name} was decided after the endpoint's end")
                    is_due = was is None or event_id in new or event_id in replayed
                    require(is_due, "I10", f"{name} was sent again, and nobody asked for it")

    def _events_are_listed_in_one_order(self, snapshot: Snapshot) -> None:
        numbered, read = snapshot.numbered, self._known.read
        decided = snapshot.deliveries.get(EVERYTHING, {}).keys()
        is_whole = {*numbered, *snapshot.unnumbered} == decided and len({*numbered}) == len(
            numbered
        )
        require(is_whole, "I10", "the list of events lacks an event, or has one twice")
        is_same = numbered[: len(self._numbered)] == self._numbered
        require(is_same, "I10", "the order of the list of events has changed")
        require(numbered[: len(read)] == read, "I10", "a client read another list of events")
        self._numbered = numbered

    def _what_was_decided_arrives(self, snapshot: Snapshot) -> None:
        known = self._known
        for each in snapshot.arrivals[self._arrivals_checked :]:
            name = f"event {each.event_id} at {each.endpoint_id}"
            delivery = snapshot.deliveries.get(each.endpoint_id, {}).get(each.event_id)
            body = msgspec.json.decode(each.body)
            told = msgspec.convert({"type": body["type"], **body["data"]}, Told)
            require(delivery and delivery.told == told, "I10", f"{name} was not decided")
            is_same = self._bodies.setdefault(each.event_id, each.body) == each.body
            require(is_same, "I10", f"{name} has changed")
            accepted = known.secrets.get(each.endpoint_id)
            is_accepted = accepted is None or set(accepted).intersection(each.secrets)
            require(is_accepted, "I10", f"{name} is signed with a secret that its owner lacks")
            self._arrived.add((each.endpoint_id, each.event_id))
        self._arrivals_checked = len(snapshot.arrivals)
        require(
            not known.endpoints.sent_at_once,
            "I10",
            f"two processes sent one event at once: {known.endpoints.sent_at_once}",
        )
        for delivery in snapshot.all_deliveries:
            name = f"event {delivery.event_id} to {delivery.endpoint_id}"
            is_pending = delivery.status == "pending"
            require(is_pending == bool(delivery.due_at), "I10", f"{name} is never due")
            if delivery.status == "delivered":
                has_arrived = (delivery.endpoint_id, delivery.event_id) in self._arrived
                require(has_arrived, "I10", f"{name} is delivered, and has not arrived")
            elif delivery.status == "failed":
                is_off = not snapshot.endpoints[delivery.endpoint_id].is_active
                is_given_up = delivery.attempts >= MAX_ATTEMPTS
                require(is_off or is_given_up, "I10", f"{name} was given up too early")

    def _no_token_is_forgotten(self, snapshot: Snapshot) -> None:
        held, tokens = snapshot.held, snapshot.tokens
        to_discard = {
            (each.merchant_account, each.token)
            for each in snapshot.discards
            if each.done_at is None
        }
        to_ask_about = {
            (page.request.merchant_account, token_of(page.request.merchant_account, page.card))
            for page in snapshot.pages
            if page.card
            and (page.reference in self._known.late or _will_be_asked_about(page, snapshot))
        }
        for found, what in (
            (held - tokens - self._known.lost, "is held by an account, and was discarded"),
            (held & to_discard, "is held by an account, and will be discarded"),
            (tokens - held - to_discard - to_ask_about, "is neither kept nor discarded"),
        ):
            for merchant_account, token in sorted(found):
                raise Broken("I7", f"{token} at {merchant_account} {what}")


def _what_guests_take_back_is_noted(snapshot: Snapshot) -> None:
    """Raise Broken unless audit entries and events record everything that guests took back.

    Each removal of a card or withdrawal of a consent by a guest has an audit entry and an event.
    Each agreement has an event when it is added, and an event when it ends.
    """
    every = snapshot.deliveries.get(EVERYTHING, {}).values()
    actions = {"account.removed": "card.removed", "consent.withdrawn": "consent.withdrawn"}
    told = Counter(
        (actions[each.told.type], each.told.account_id or "")
        for each in every
        if each.by == "guest" and each.told.type in actions
    )
    difference = (told - snapshot.taken_back) + (snapshot.taken_back - told)
    require(
        not difference, "I10", f"an event or an entry of the audit trail is missing: {difference}"
    )
    of_agreements = Counter((each.told.type, each.agreement_id) for each in every)
    for each in snapshot.agreements:
        name = f"agreement {each.agreement_id}"
        added = of_agreements["agreement.added", each.agreement_id]
        ended = of_agreements["agreement.ended", each.agreement_id]
        require(added == 1, "I10", f"{added} events tell of {name}")
        # An erasure ends agreements without an event.
        is_told = ended == (each.ended_at is not None) or snapshot.is_erased(each.guest_id)
        require(is_told and ended <= 1, "I10", f"{ended} events tell of the end of {name}")


def _guests_with_cards_have_one_default(snapshot: Snapshot) -> None:
    defaults: Counter[tuple[str, str]] = Counter()
    for account in snapshot.accounts.values():
        if account.is_active:
            defaults[account.guest_id, account.center_id] += account.is_default
        else:
            require(
                not account.is_default, "I9", f"removed account {account.account_id} is default"
            )
    for (guest_id, center_id), times in defaults.items():
        require(times == 1, "I9", f"{guest_id} has {times} default cards at {center_id}")


def _require_card_of(session: SessionRow, snapshot: Snapshot, known: Known) -> None:
    """Raise Broken unless the account of a completed session holds the card that was typed.

    If a bank reissues a card, the card at the PSP differs from the account's card until the service
    reads the new card. The card that renewed the account may also be a reissued card.
    """
    name = f"session {session.token_id}"
    account = snapshot.accounts.get(session.account_id or "")
    if account is None:
        raise Broken("I8", f"{name} is completed, and stored no card")
    if session.used_card_on_file:
        is_offered = account.account_id in known.offered[session.token_id]
        is_at_home = (account.guest_id, account.center_id) == (session.guest_id, session.center_id)
        is_proved = session.token_id in snapshot.consents and session.clicks
        require(is_offered and is_at_home, "I5", f"{name} used a card that its guest was not shown")
        require(is_proved, "I11", f"{name} is completed without the consent of its guest")
        return
    collected = snapshot.pages_with_card(session.token_id)
    require(collected, "I8", f"{name} is completed, and no card was typed")
    page = collected[-1]
    is_at_home = (account.guest_id, account.center_id, account.merchant_account) == (
        session.guest_id,
        session.center_id,
        session.merchant_account,
    )
    require(is_at_home, "I5", f"the card of {name} is at another guest, center or merchant account")
    is_same = page.card and (
        page.card.fingerprint == account.fingerprint
        or {page.card.token, account.token} & known.reissued
    )
    require(is_same, "I5", f"account {account.account_id} holds another card than {name}")
    is_newest = page.collected_at and account.consented_at >= page.collected_at
    require(is_newest, "I1", f"a stale result undid what {name} stored")
    consent = snapshot.consents.get(session.token_id)
    shown = page.request.consent
    if session.has_agreement and session.clicks:
        # The consent has the text about the booking, or the general text if the guest ticked a box.
        is_proved = consent is not None and consent.account_id == account.account_id
        require(is_proved, "I11", f"{name} is completed without the consent of its guest")
        return
    is_proved = (
        consent is not None
        and (account.account_id, shown.language, shown.text)
        == (consent.account_id, consent.language, consent.text)
        and (
            any(
                click.may_mean(shown, consent.agreed_at) for click in known.clicks[session.token_id]
            )
            if known.asks
            else consent.agreed_at == page.collected_at
        )
    )
    require(is_proved, "I11", f"{name} is completed without the consent of its guest")
    is_mismatch = session.avs and page.avs is AvsResult.MISMATCH
    require(not is_mismatch, "I5", f"{name} stored a card with a wrong billing address")


def _was_taken_back(page: PspPage, session: SessionRow, snapshot: Snapshot) -> bool:
    """Return whether the guest took back the card of a page after the session began.

    The card that the guest took back may have been a different card at that time. It became the
    same card when the bank reissued one of the two later.
    """
    return page.card is not None and any(
        (account.guest_id, account.center_id) == (session.guest_id, session.center_id)
        and account.merchant_account == page.request.merchant_account
        and account.fingerprint == page.card.fingerprint
        and account.withdrawn_at is not None
        and account.withdrawn_at >= session.created_at
        for account in snapshot.accounts.values()
    )


def _is_dead(page: PspPage, snapshot: Snapshot) -> bool:
    """Return whether the token of a page was discarded because of another session.

    If the card was typed once more after that, an account has the token, and the discard is
    deleted.
    """
    account = page.request.merchant_account
    tokens = {each.token for each in snapshot.discards if each.merchant_account == account}
    tokens |= {
        each.token for each in snapshot.accounts.values() if each.merchant_account == account
    }
    return (
        account == LASTING_TOKENS
        and page.card is not None
        and (token_of(account, page.card) in tokens)
    )


def _will_be_asked_about(page: PspPage, snapshot: Snapshot) -> bool:
    session = snapshot.sessions[page.request.token_id]
    is_current = session.attempt == page.request.attempt
    is_left = session.used_card_on_file
    return session.due_at is not None and ((is_current and not session.is_settled) or is_left)


def _each_session_has_one_page(snapshot: Snapshot, now: datetime) -> None:
    live = Counter(
        page.request.token_id for page in snapshot.pages if not page.is_over and now < page.ends_at
    )
    for token_id, pages in live.items():
        require(pages == 1, "F20", f"session {token_id} has {pages} live pages at the PSP")


def _each_refused_card_is_counted_once(snapshot: Snapshot) -> None:
    refused: dict[tuple[str, int], int] = {
        (page.request.token_id, page.request.attempt): page.refused_cards for page in snapshot.pages
    }
    for (token_id, attempt), numbers in snapshot.refused_cards.items():
        by_page = numbers - {0}
        is_dense = by_page == set(range(1, len(by_page) + 1))
        is_true = is_dense and len(by_page) <= refused.get((token_id, attempt), 0)
        require(is_true, "S23", f"cards of session {token_id} are counted that nobody refused")
    counted = {key for key, numbers in snapshot.refused_cards.items() if 0 in numbers}
    failed = {
        (each.token_id, each.attempt)
        for each in snapshot.sessions.values()
        if each.status == "failed"
    }
    require(failed <= counted, "S23", "a session failed, and its card does not count as refused")
    for token_id, _ in counted - failed:
        refuses = snapshot.sessions[token_id].refuse_funding
        require(refuses, "S23", f"a card of session {token_id} counts that the center accepts")


def _places(snapshot: Snapshot) -> set[str]:
    configurations = map(configuration_of, snapshot.configurations)
    return {*snapshot.guests, *snapshot.centers, *configurations}
