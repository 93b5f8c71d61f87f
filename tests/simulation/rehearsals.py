"""One use case at a time, over files of its own, with any one of its calls to ports going wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

from typing_extensions import override

from adapters.fake_psp.plugin import NAME as FAKE
from adapters.fake_psp.psp import PspPage
from adapters.psp.contract.samples import GUEST_ID
from domain.card_sessions import CardSession
from domain.errors import Refusal
from domain.identifiers import TokenId
from domain.payment_accounts import PaymentAccount
from domain.permissions import Caller
from domain.ports import ProviderUnavailable, WebhookRejected
from tests.builders import CENTER_ID
from tests.installation import GOOD_CARD, REDIRECT_URI, Installation
from tests.simulation.books import Books, Observer
from tests.simulation.invariants import (
    Invariants,
    Known,
    configuration_of,
    require,
    require_end,
    require_no_card_number,
)
from tests.simulation.ports import PSP_CALLS, Moment
from tests.simulation.processes import Killed, Process
from tests.simulation.run import folder_in_memory

ROUNDS_AT_THE_END: Final = 50

Attempt: TypeAlias = Callable[[], object]
"""Calls a use case; two answers that mean the same are equal."""

Situation: TypeAlias = Callable[["Rehearsal"], Attempt]
"""Brings an installation to where a use case is called, and gives that call."""


class Bug(RuntimeError):
    """What no port may raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mishap:
    """How a call to a port goes wrong: what it raises, before it has acted or after.

    `error` gives None for a call that cannot go wrong in this way. A mishap that lasts befalls
    every later call to the same port, too.
    """

    error: Callable[[str], BaseException | None]
    moment: Moment = Moment.BEFORE
    lasts: bool = False

    def befalls(self, call: str) -> bool:
        """Tell whether a call can go wrong in this way; after it has acted, only one that acts."""
        return self.error(call) is not None and (acts(call) or self.moment is Moment.BEFORE)


def acts(call: str) -> bool:
    """Tell whether a call has an effect that lasts: a commit, and what goes to the PSP."""
    return call == "write.commit" or call in PSP_CALLS


def is_to_psp(call: str) -> bool:
    """Tell whether a call is to the PSP; every other is to the storage."""
    return call.startswith("psp.")


class Rehearsal(Installation):
    """An installation whose use cases run in a process of which one call to a port goes wrong.

    Calls to the clock, for identifiers and about postal codes are not counted: they do not fail,
    and a process that ends there leaves behind what it leaves at the next call.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.known = Known(places={GUEST_ID, CENTER_ID, configuration_of(CENTER_ID)})
        self.calls: list[str] = []
        self.seen: list[Books] = []
        self._is_watched = False
        self._mishap: Mishap | None = None
        self._number = 0
        self._observer = Observer(folder, self.psp)
        self._invariants = Invariants(self.known)
        self._process = Process(
            "A",
            folder,
            clock=self.clock,
            ids=self.ids,
            psp=self.psp,
            late=frozenset(),
            watcher=self._hear,
        )
        self._use_process()

    @override
    def close(self) -> None:
        super().close()
        self._process.stop()
        self._observer.close()
        self.psp.close()

    def _use_process(self) -> None:
        self.use_cases = self._process.use_cases
        self.settle = self._process.settle
        self.reconcile = self._process.reconcile
        self.forget_idempotency_keys = self._process.forget_idempotency_keys

    # What people do.

    @override
    def add_card(self, caller: Caller | None = None, **changes: Any) -> CardSession:
        redirect_uri = changes.get("redirect_uri", REDIRECT_URI)
        self.known.sends[redirect_uri] += 1
        if "idempotency_key" in changes:
            self.known.keyed.add(redirect_uri)
        session = super().add_card(caller, **changes)
        self.known.asked_for[session.token_id] = (GUEST_ID, CENTER_ID, redirect_uri)
        return session

    def session_asked_for_in_vain(self) -> CardSession:
        """Have a session whose link was opened while its PSP was away."""
        session = self.add_card()
        psp = self.settle.providers.pop(FAKE)
        with suppress(ProviderUnavailable):
            self.open_page(session)
        self.settle.providers[FAKE] = psp
        return self.session(session.token_id)

    @override
    def type_card(
        self,
        session: CardSession,
        number: str = GOOD_CARD,
        *,
        expiry: tuple[int, int] = (9, 2031),
        zipcode: str = "98101",
    ) -> PspPage:
        page = super().type_card(session, number, expiry=expiry, zipcode=zipcode)
        self.known.typed[page.reference] = session.guest_id
        return page

    def remove(self, account: PaymentAccount) -> None:
        """Have a client remove a card."""
        self.use_cases.remove_account(
            self.caller, guest_id=account.guest_id, account_id=account.account_id
        )
        self.known.removed.add(account.account_id)

    def where_to(self, session: CardSession) -> str:
        """Have the guest open a link; tell where the browser is sent."""
        address = self.open_page(session)
        if address == session.redirect_uri:
            return "the shop"
        page = self.psp.page(address.rpartition("/")[2])
        require(page.request.token_id == session.token_id, "I5", "that is the page of another")
        return "a page that is over" if page.is_over else "a page that takes a card"

    def come_back(self, session: CardSession) -> str:
        """Have the guest come back from the page; give where the browser is sent."""
        return self.use_cases.return_from_hosted_page(
            token_id=session.token_id, parameters={"status": "success"}
        )

    def settled(self, session: CardSession) -> str:
        """Have a session settled; give its status."""
        settled = self.settle(session.token_id)
        assert settled is not None
        return settled.status.value

    # What goes wrong, and what becomes of it.

    def answer(self, attempt: Attempt) -> object:
        """Give what an attempt is answered with, or the kind of error that it is refused with."""
        try:
            return attempt()
        except Killed:
            self._process.stop()
            self._process.start()
            self._use_process()
            return Killed
        except (Refusal, ProviderUnavailable, WebhookRejected, Bug) as refused:
            return type(refused)

    @contextmanager
    def watched(self, mishap: Mishap | None = None, number: int = 0) -> Iterator[None]:
        """Note the calls that are made, and what there is before each; or have one go wrong."""
        self._mishap, self._number, self._is_watched = mishap, number, True
        yield
        self._is_watched = False

    def _hear(self, call: str, moment: Moment, arguments: tuple[Any, ...] = ()) -> None:
        if not self._is_watched:
            return
        if moment is Moment.BEFORE:
            self.calls.append(call)
        if self._mishap is not None:
            self._go_wrong(self._mishap, call, moment)
        elif moment is Moment.BEFORE:
            self.seen.append(self._observer.read())

    def _go_wrong(self, mishap: Mishap, call: str, moment: Moment) -> None:
        over = len(self.calls) - self._number
        is_hit = over == 0 or (
            mishap.lasts and over > 0 and is_to_psp(call) == is_to_psp(self.calls[self._number - 1])
        )
        error = mishap.error(call)
        if is_hit and moment is mishap.moment and error is not None:
            raise error

    def check(self) -> Books:
        """Raise Broken for an invariant that does not hold; give what there is."""
        books = self._observer.read()
        self._invariants.check(books, self.clock.now())
        return books

    def effect(self) -> object:
        """Give what there is, as it can be compared with that of another rehearsal."""
        books, now = self._observer.read(), self.clock.now()
        with self.storage.read() as unit:
            sessions = [
                (
                    each.redirect_uri,
                    each.status,
                    each.failure or "",
                    each.due_at is not None and each.due_at <= now,
                    # That of a session which is settled is of no use.
                    []
                    if each.is_settled
                    else [it.content for it in unit.evidence.of(TokenId(token_id))],
                )
                for token_id, each in books.sessions.items()
            ]
        return (
            sorted(sessions),
            sorted(
                (
                    books.sessions[each.token_id].redirect_uri,
                    each.fingerprint,
                    each.expiry,
                    each.is_active,
                )
                for each in books.accounts.values()
            ),
            sorted(each.done_at is not None for each in books.discards),
            len(books.tokens),
        )

    def come_to_an_end(self) -> None:
        """Have time pass and the reconciler run until nothing is left to do, and nothing is left."""
        books = self.check()
        for _ in range(ROUNDS_AT_THE_END):
            if books.next_due is None:
                break
            self.clock.advance(max(books.next_due - self.clock.now(), timedelta(0)))
            faults = self.reconcile().faults
            require(not faults, "I4", f"the reconciler stumbled over {faults}")
            books = self.check()
        require(books.next_due is None, "I4", "there is no end of work for the reconciler")
        require_end(books)
        require_no_card_number(self._observer.bytes_at_rest())


@contextmanager
def rehearsed(situation: Situation) -> Iterator[tuple[Rehearsal, Attempt]]:
    """Have a new installation come to a situation."""
    with folder_in_memory() as folder:
        rehearsal = Rehearsal(Path(folder))
        try:
            attempt = situation(rehearsal)
            rehearsal.check()
            yield rehearsal, attempt
        finally:
            rehearsal.close()
