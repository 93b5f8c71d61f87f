"""What must hold at every moment, told from the files alone and from what was answered before."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from adapters.fake_psp.cards import TEST_CARDS
from adapters.fake_psp.psp import PspPage
from domain.billing import AvsResult
from tests.simulation.books import AccountOnFile, Books, SessionOnFile
from tests.simulation.psp import token_of

FARTHEST_CLOCKS: Final = timedelta(minutes=5)
"""More than the clocks of two processes ever differ here."""

_STEPS: Final = {
    "open": {"open", "completed", "failed", "expired"},
    "expired": {"expired", "completed"},
}


class Broken(Exception):
    """An invariant does not hold. `invariant` is its name in the list of faults."""

    def __init__(self, invariant: str, what: str) -> None:
        self.invariant = invariant
        self.what = what
        super().__init__(f"{invariant}: {what}")


def configuration_of(center_id: str) -> str:
    """Name the configuration of a center."""
    return f"configuration of {center_id}"


def require(holds: object, invariant: str, what: str) -> None:
    """Raise Broken unless it holds."""
    if not holds:
        raise Broken(invariant, what)


def require_end(books: Books) -> None:
    """Raise Broken unless every session has ended, and the PSP holds what we hold."""
    for each in books.sessions.values():
        require(each.status != "open", "I4", f"session {each.token_id} is open for good")
    held = {each.token_at_psp for each in books.accounts.values() if each.is_active}
    require(held == books.tokens, "I7", "the PSP is left with tokens that nobody holds")


def require_no_card_number(files: Mapping[str, bytes]) -> None:
    """Raise Broken if the number of a test card is in a file."""
    for name, content in files.items():
        for number in TEST_CARDS:
            require(number.encode() not in content, "I6", f"a card number is in {name}")


@dataclass
class Known:
    """What is known without a look at the files: what was answered, and what the guests did.

    `asked_for` tells of each session that was answered: guest, center and redirect_uri. No two
    visits share a redirect_uri: `sends` counts their requests by it, `sent_for` names the guests
    they were for, `keyed` holds those with an idempotency key. `typed` says which guest typed on a
    page, by its reference; `late` holds the pages that the PSP will tell of by a webhook alone.
    `places` names all guests, centers and configurations, `there` and `missing` those that were so
    since the last check.
    """

    asked_for: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    sends: Counter[str] = field(default_factory=Counter)
    sent_for: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    keyed: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    typed: dict[str, str] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)
    places: set[str] = field(default_factory=set)
    there: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)


class Invariants:
    """I1 to I8, held against what is on disk whenever it may have changed."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._before: Mapping[str, SessionOnFile] = {}

    def check(self, books: Books, now: datetime) -> None:
        """Raise Broken for the first invariant that does not hold."""
        known = self._known
        known.there |= _present(books)
        known.missing |= known.places - _present(books)
        for check in (
            self._what_was_answered_is_there,
            self._a_request_sent_twice_makes_one_session,
            self._accounts_are_unique,
            self._sessions_take_no_other_way,
            self._every_card_is_where_it_was_typed_for,
            self._every_failure_has_its_reason,
            self._no_token_is_forgotten,
        ):
            check(books)
        for each in books.sessions.values():
            require(
                each.status != "open" or each.due_at,
                "I4",
                f"nobody will ask for open session {each.token_id}",
            )
        _one_page_at_a_time(books, now)
        self._before = books.sessions
        known.there = _present(books)
        known.missing = known.places - known.there

    def _what_was_answered_is_there(self, books: Books) -> None:
        known = self._known
        for token_id, asked_for in known.asked_for.items():
            session = books.sessions.get(token_id)
            require(session, "I1", f"session {token_id} was answered and is not there")
            assert session is not None
            require(
                (session.guest_id, session.center_id, session.redirect_uri) == asked_for,
                "I5",
                f"session {token_id} is not the one that was asked for",
            )
        for account_id in sorted(known.removed):
            account = books.accounts.get(account_id)
            require(
                account and not account.is_active,
                "I1",
                f"the removal of account {account_id} was answered, and it is active",
            )
        for session in books.sessions.values():
            if session.status == "completed":
                self._card_is_on_file(books, session)

    def _card_is_on_file(self, books: Books, session: SessionOnFile) -> None:
        account = books.accounts.get(session.account_id or "")
        require(account, "I8", f"session {session.token_id} is completed and stored no card")
        assert account is not None
        collected = books.collected(session.token_id)
        require(collected, "I8", f"session {session.token_id} is completed, and no card was typed")
        require(
            (account.guest_id, account.center_id, account.merchant_account)
            == (session.guest_id, session.center_id, session.merchant_account),
            "I5",
            f"account {account.account_id} is not of the guest, center and merchant account of "
            f"session {session.token_id}",
        )
        page = collected[-1]
        assert page.card is not None
        assert page.collected_at is not None
        require(
            page.card.fingerprint == account.fingerprint,
            "I5",
            f"account {account.account_id} holds another card than session {session.token_id}",
        )
        newest = account.consented_at >= page.collected_at
        require(newest, "I1", f"what session {session.token_id} stored was undone by older news")
        wrong_address = session.avs and page.avs is AvsResult.MISMATCH
        require(
            not wrong_address, "I5", f"session {session.token_id} stored a card of another address"
        )

    def _a_request_sent_twice_makes_one_session(self, books: Books) -> None:
        made: dict[str, list[datetime]] = {}
        for session in books.sessions.values():
            made.setdefault(session.redirect_uri, []).append(session.created_at)
        for visit, times in made.items():
            if visit in self._known.keyed:
                times.sort()
                day = timedelta(hours=24) - FARTHEST_CLOCKS
                once = all(later - earlier >= day for earlier, later in pairwise(times))
                require(once, "I1", f"{visit} was sent under one key and has several sessions")
            require(
                len(times) <= self._known.sends[visit], "I1", f"{visit} has sessions nobody sent"
            )

    def _accounts_are_unique(self, books: Books) -> None:
        cards = Counter(
            (each.guest_id, each.center_id, each.merchant_account, each.fingerprint)
            for each in books.accounts.values()
            if each.is_active
        )
        for card, times in cards.items():
            require(times == 1, "I2", f"{times} active accounts of one card: {card}")
        sessions = Counter(each.token_id for each in books.accounts.values())
        for token_id, times in sessions.items():
            require(times == 1, "I2", f"session {token_id} has made {times} accounts")

    def _sessions_take_no_other_way(self, books: Books) -> None:
        for token_id, before in self._before.items():
            now = books.sessions.get(token_id)
            require(now, "I1", f"session {token_id} has gone")
            assert now is not None
            if before.is_settled:
                require(now == before, "I3", f"session {token_id} was settled, and has changed")
            else:
                require(
                    now.status in _STEPS[before.status],
                    "I3",
                    f"session {token_id} went from {before.status} to {now.status}",
                )

    def _every_card_is_where_it_was_typed_for(self, books: Books) -> None:
        for account in books.accounts.values():
            session = books.sessions.get(account.token_id)
            require(session, "I5", f"account {account.account_id} belongs to no session")
            assert session is not None
            pages = books.pages_of_token(account)
            require(pages, "I8", f"account {account.account_id} has a card that nobody typed")
            for page in pages:
                self._was_typed_for(books, page, account)
            if session.cards_per_guest == "one" and account.is_active:
                self._is_the_first(books, account)
        for token_id, session in books.sessions.items():
            before = self._before.get(token_id)
            if session.status == "completed" and not (before and before.is_settled):
                gone = {session.guest_id, session.center_id, configuration_of(session.center_id)}
                gone -= self._known.there
                require(
                    not gone, "I5", f"session {token_id} stored a card for {sorted(gone)}, gone"
                )

    def _was_typed_for(self, books: Books, page: PspPage, account: AccountOnFile) -> None:
        assert page.card is not None
        session = books.sessions[page.request.token_id]
        require(
            self._known.typed.get(page.reference) == account.guest_id == session.guest_id,
            "I5",
            f"account {account.account_id} holds a card that another guest typed",
        )
        lasting = token_of(page.request.merchant_account, page.card) != page.card.token
        require(
            lasting or session.center_id == account.center_id,
            "I5",
            f"account {account.account_id} holds a card that was typed for another center",
        )

    def _is_the_first(self, books: Books, account: AccountOnFile) -> None:
        for other in books.accounts.values():
            is_earlier = other.is_active and other.sequence < account.sequence
            at_same_place = (other.guest_id, other.center_id) == (
                account.guest_id,
                account.center_id,
            )
            require(
                not (is_earlier and at_same_place),
                "I5",
                f"account {account.account_id} is a second card where one is allowed",
            )

    def _every_failure_has_its_reason(self, books: Books) -> None:
        known = self._known
        for token_id, session in books.sessions.items():
            before = self._before.get(token_id)
            if session.status != "failed" or (before and before.is_settled):
                continue
            collected = books.collected(token_id)
            require(collected, "I3", f"session {token_id} failed, and no card was typed")
            match session.failure:
                case "Payment method already exists":
                    is_so = any(
                        (each.guest_id, each.center_id) == (session.guest_id, session.center_id)
                        for each in books.accounts.values()
                    )
                case "Guest not found":
                    is_so = session.guest_id in known.missing
                case "Invalid center id":
                    is_so = session.center_id in known.missing
                case "Payment configuration not done":
                    is_so = configuration_of(session.center_id) in known.missing
                case _:
                    is_so = session.avs and collected[-1].avs is AvsResult.MISMATCH
            require(is_so, "I3", f"session {token_id} failed for no reason: {session.failure}")

    def _no_token_is_forgotten(self, books: Books) -> None:
        held = {each.token_at_psp for each in books.accounts.values() if each.is_active}
        for merchant_account, token in sorted(held - books.tokens):
            require(False, "I7", f"{token} at {merchant_account} is held, and was discarded")
        noted = {each.token_at_psp for each in books.discards if each.done_at is None}
        for merchant_account, token in sorted(held & noted):
            require(False, "I7", f"{token} at {merchant_account} is held, and will be discarded")
        asked_for = {
            (
                page.request.merchant_account,
                token_of(page.request.merchant_account, page.card),
            )
            for page in books.pages
            if page.card and (page.reference in self._known.late or _will_be_asked_for(books, page))
        }
        forgotten = books.tokens - held - noted - asked_for
        for merchant_account, token in sorted(forgotten):
            require(False, "I7", f"{token} at {merchant_account} is neither kept nor discarded")


def _will_be_asked_for(books: Books, page: PspPage) -> bool:
    session = books.sessions[page.request.token_id]
    return (
        not session.is_settled
        and session.due_at is not None
        and session.attempt == page.request.attempt
    )


def _one_page_at_a_time(books: Books, now: datetime) -> None:
    alive = Counter(
        page.request.token_id for page in books.pages if not page.is_over and now < page.ends_at
    )
    for token_id, pages in alive.items():
        require(pages == 1, "F20", f"session {token_id} has {pages} pages at the PSP")


def _present(books: Books) -> set[str]:
    return {
        *books.guests,
        *books.centers,
        *map(configuration_of, books.configurations),
    }
