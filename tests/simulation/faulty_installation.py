"""An installation in which one call to a port fails, and the checks of its state afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

from typing_extensions import override

from adapters.fake_psp.plugin import NAME as FAKE
from adapters.fake_psp.psp import PspPage
from adapters.psp_suite.samples import GUEST_ID
from domain.cards.account import Account
from domain.centers.card_limit import CardLimit
from domain.errors import Refusal
from domain.identifiers import EndpointId, TokenId
from domain.permissions import Caller
from domain.psps.payment_provider import ProviderUnavailable, WebhookRejected
from domain.sessions.polling import ASK_AGAIN_AFTER
from domain.sessions.session import CardSession
from tests.builders import CENTER_ID, a_guest
from tests.databases import committed
from tests.installation import GOOD_CARD, REDIRECT_URI, Installation
from tests.simulation.endpoints import EVERYTHING, an_endpoint
from tests.simulation.invariants import (
    Invariants,
    Known,
    configuration_of,
    require,
    require_end,
    require_no_card_number,
    require_nothing_personal,
)
from tests.simulation.ports import PSP_CALLS, SEND_EVENT, Moment
from tests.simulation.processes import Killed, Process
from tests.simulation.snapshot import Observer, Snapshot

MAX_ROUNDS_TO_END: Final = 50

Attempt: TypeAlias = Callable[[], object]
"""Calls a use case. Two results that mean the same are equal."""

Situation: TypeAlias = Callable[["FaultyInstallation"], Attempt]
"""Prepares an installation, and returns the call of the use case."""


class Bug(RuntimeError):
    """An error that no port documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFault:
    """How a call to a port fails.

    - `error` returns the error that a call raises. It returns None if the call cannot fail in this
      way.
    - `moment` is whether the call fails before or after its effect.
    - `may_last` is whether faults of this kind can affect all later calls to the same port too.
    - `lasts` is whether this fault does so.
    """

    error: Callable[[str], BaseException | None]
    moment: Moment = Moment.BEFORE
    may_last: bool = False
    lasts: bool = False

    def applies_to(self, call: str) -> bool:
        """Return whether the fault is possible at a call.

        A call can fail after its effect only if it has an effect.
        """
        return self.error(call) is not None and (self.moment is Moment.BEFORE or has_effect(call))


def has_effect(call: str) -> bool:
    """Return whether a call has a lasting effect, such as a commit or an outgoing request."""
    return call in ("write.commit", *PSP_CALLS, SEND_EVENT)


def is_to_psp(call: str) -> bool:
    """Return whether a call is to the PSP."""
    return call.startswith("psp.")


def is_to_endpoint(call: str) -> bool:
    """Return whether a call is to the endpoint of a client."""
    return call == SEND_EVENT


def is_to_storage(call: str) -> bool:
    """Return whether a call is to the storage."""
    return not is_to_psp(call) and not is_to_endpoint(call)


def is_to_same_port(call: str, other: str) -> bool:
    """Return whether two calls are both to the PSP, to an endpoint, or to the storage."""
    return any(is_to(call) and is_to(other) for is_to in (is_to_psp, is_to_endpoint, is_to_storage))


def is_in_unit(call: str) -> bool:
    """Return whether a call is to a repository, inside a unit of work."""
    return call.startswith(("read.", "write.")) and call != "write.commit"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A closed installation: its time, its source of identifiers, what is known, and its files."""

    now: datetime
    ids: tuple[Any, ...]
    memory: tuple[Known, Invariants]
    files: Mapping[Path, bytes]


class FaultyInstallation(Installation):
    """An installation whose use cases run in a process with a fault at one call to a port.

    Calls to the clock, the source of identifiers and the postal codes are not recorded, because
    they do not fail. A crash at such a call leaves the same state as a crash at the next recorded
    call.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, CARDONFILE_ERASURES_FILE=str(folder / "erasures.txt"))
        self._folder = folder
        self.known = Known(places={GUEST_ID, CENTER_ID, configuration_of(CENTER_ID)})
        self._invariants = Invariants(self.known)
        self._process = Process(
            "A",
            self.database,
            self.container,
            clock=self.clock,
            psp=self.psp,
            endpoints=self.known.endpoints,
            late=frozenset(),
            watcher=self._on_call,
        )
        self._observe()
        self.add_endpoint(EVERYTHING)

    def _observe(self) -> None:
        self.calls: list[str] = []
        self.before_calls: list[Snapshot] = []
        self._is_recording = False
        self._fault: CallFault | None = None
        self._number = 0
        self._observer = Observer(self._folder, self.psp, self.known.endpoints)
        self._use_process()

    @override
    def close(self) -> None:
        super().close()
        self._process.stop()
        self._observer.close()
        self.psp.close()

    def state(self) -> State:
        """Close the installation. Return the state from which `restore` opens it again."""
        self.close()
        return State(
            now=self.clock.now(),
            ids=self.ids._random.getstate(),
            memory=deepcopy((self.known, self._invariants)),
            files={each: each.read_bytes() for each in self._folder.iterdir()},
        )

    def restore(self, state: State) -> None:
        """Open the closed installation in this state, with a new process.

        The same state can be restored several times.
        """
        for file in {*self._folder.iterdir()} - state.files.keys():
            file.unlink()
        for file, content in state.files.items():
            file.write_bytes(content)
        self.clock.advance(state.now - self.clock.now())
        self.ids._random.setstate(state.ids)
        self.known, self._invariants = deepcopy(state.memory)
        self._process.endpoints = self.known.endpoints
        self._process.start()
        self._observe()

    def _use_process(self) -> None:
        self.use_cases = self._process.use_cases
        self.settle = self._process.settle
        # This storage is not watched. It saves another connection, which would read the schema.
        self.storage = self._process.storage

    def has_limits(self, *limits: CardLimit) -> None:
        """Restart the process with these card testing limits."""
        self.container.settings.override(replace(self.settings, card_testing_limits=limits))
        self._process.stop()
        self._process.start()
        self._use_process()

    # Clients and guests.

    @override
    def add_card(self, caller: Caller | None = None, **changes: Any) -> CardSession:
        redirect_uri = changes.get("redirect_uri", REDIRECT_URI)
        self.known.sends[redirect_uri] += 1
        if "idempotency_key" in changes:
            self.known.keyed.add(redirect_uri)
        session = super().add_card(caller, **changes)
        self.known.started[session.token_id] = (session.guest_id, CENTER_ID, redirect_uri)
        return session

    def session_without_page(self) -> CardSession:
        """Open the link of a new session while the PSP is unavailable. Return the session."""
        session = self.add_card()
        psp = self.settle.providers.pop(FAKE)
        with suppress(ProviderUnavailable):
            self.open_page(session)
        self.settle.providers[FAKE] = psp
        self.clock.advance(ASK_AGAIN_AFTER)
        return self.session(session.token_id)

    @override
    def bank_updates(
        self, account: Account, number: str = GOOD_CARD, *, expiry: tuple[int, int] = (9, 2031)
    ) -> None:
        super().bank_updates(account, number, expiry=expiry)
        self.known.reissued.add(account.token)

    def psp_loses(self, account: Account) -> None:
        """Delete the card of an account at the PSP."""
        self.psp.discard(account.merchant_account, account.guest_reference, account.token)
        self.known.lost.add((account.merchant_account, account.token))

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

    def remove(self, account: Account) -> None:
        self.remove_card(account)
        self.known.removed.add(account.account_id)

    def erase(self) -> None:
        """Erase the guest."""
        self.erase_guest()
        self.known.erased.add(GUEST_ID)

    def cancel(self, session: CardSession) -> str:
        """Cancel a session as a client. Return its status and progress."""
        cancelled = self.cancel_session(session)
        self.known.cancelled.add(session.token_id)
        return f"{cancelled.status} {cancelled.progress}"

    def follow_link(self, session: CardSession) -> str:
        """Open the link of a session. Return where it leads."""
        address = self.open_page(session)
        if address == session.redirect_uri:
            return "the shop"
        page = self.psp.page(address.rpartition("/")[2])
        is_own = page.request.token_id == session.token_id
        require(is_own, "I5", "the link leads to the page of another session")
        return "a page that is over" if page.is_over else "a live page"

    def come_back(self, session: CardSession) -> str:
        """Return from the page of a session. Return where the browser is redirected."""
        return self.return_to_shop(session, status="success")

    def status_after_settling(self, session: CardSession) -> str:
        """Settle a session, and return its status."""
        settled = self.settle(session.token_id)
        assert settled is not None
        return settled.status.value

    # Endpoints for events.

    def add_endpoint(self, endpoint_id: EndpointId) -> None:
        """Add an endpoint that takes all events."""
        with committed(self.storage) as unit:
            unit.event_endpoints.add(an_endpoint(endpoint_id, now=self.clock.now()))

    def deliver_to(self, endpoint_id: EndpointId) -> str | None:
        """Deliver a due event to this endpoint, and return the result."""
        deliver = self.container.deliver_event()
        others = self.check().endpoints.keys() - {endpoint_id}
        taken = deliver.take(except_to=[EndpointId(each) for each in others])
        attempt = None if taken is None else deliver(taken)
        return None if attempt is None else attempt.delivery.status.value

    def replay(self, event_id: str) -> int:
        """Replay an event. Return the number of endpoints to which it will be sent."""
        self.known.endpoints.replayed.add(event_id)
        return self.container.replay_event()(event_id)

    def replay_since(self, since: datetime) -> int:
        """Replay all events from the given time on. Return the number of deliveries."""
        self.known.endpoints.replayed.update(
            event_id for of_endpoint in self.check().deliveries.values() for event_id in of_endpoint
        )
        return self.container.replay_events_since()(since).deliveries

    # Faults, and their effects.

    def result_of(self, attempt: Attempt) -> object:
        """Return the result of an attempt, or the class of the error that it raised."""
        try:
            return attempt()
        except Killed:
            self._process.stop()
            self._process.start()
            self._use_process()
            return Killed
        except (Refusal, ProviderUnavailable, WebhookRejected, Bug) as error:
            return type(error)

    @contextmanager
    def recording(self, fault: CallFault | None = None, number: int = 0) -> Iterator[None]:
        """Record the calls, and inject a fault at call `number`.

        Without a fault, take a snapshot before each call instead.
        """
        self._fault, self._number, self._is_recording = fault, number, True
        yield
        self._is_recording = False

    def _on_call(self, call: str, moment: Moment, arguments: tuple[Any, ...] = ()) -> None:
        if not self._is_recording:
            return
        if moment is Moment.BEFORE:
            self.calls.append(call)
            if self._fault is None:
                is_changed = not self.before_calls or has_effect(self.calls[-2])
                self.before_calls.append(
                    self._observer.read() if is_changed else self.before_calls[-1]
                )
        if self._fault is not None and moment is self._fault.moment and self._is_hit(call):
            error = self._fault.error(call)
            if error is not None:
                raise error

    def _is_hit(self, call: str) -> bool:
        later = len(self.calls) - self._number
        if later <= 0 or self._fault is None or not self._fault.lasts:
            return later == 0
        return is_to_same_port(call, self.calls[self._number - 1])

    def check(self) -> Snapshot:
        """Raise Broken if an invariant does not hold. Return what is stored."""
        snapshot = self._observer.read()
        self._invariants.check(snapshot, self.clock.now())
        unknown = self._merged_in_file() - snapshot.merged - self.known.unmerged
        require(not unknown, "I12", f"the file has a merge that is not stored: {unknown}")
        return snapshot

    def _merged_in_file(self) -> Set[str]:
        return self.container.erasure_file().merged().keys()

    def everything_stored(self) -> str:
        """Return everything that is stored, for a comparison with other runs."""
        return self._observer.everything()

    def effect(self, stored: Snapshot) -> object:
        """Return what is stored without the random identifiers.

        Two runs that did the same work have equal effects.
        """
        now = self.clock.now()
        with self.storage.read() as unit:
            sessions = [
                (
                    each.redirect_uri,
                    each.status,
                    # Nobody waits for a settled session.
                    "" if each.is_settled else each.progress,
                    each.cancelled_at is not None,
                    each.failure or "",
                    each.due_at is not None and each.due_at <= now,
                    # A settled session needs no evidence.
                    []
                    if each.is_settled
                    else [it.content for it in unit.evidence.of(TokenId(token_id))],
                )
                for token_id, each in stored.sessions.items()
            ]
        visits = {token_id: each.redirect_uri for token_id, each in stored.sessions.items()}
        accounts = [
            (
                visits.get(each.token_id, "imported"),
                each.fingerprint,
                (each.expiry_month, each.expiry_year),
                each.is_active,
                each.is_default,
                each.is_taken_back,
            )
            for each in stored.accounts.values()
        ]
        agreements = [
            (visits.get(each.token_id, ""), each.ended_at is not None, each.reason or "")
            for each in stored.agreements
        ]
        arrived = {(each.endpoint_id, each.event_id) for each in stored.arrivals}
        events = [
            (
                each.endpoint_id,
                stored.endpoints[each.endpoint_id].is_active,
                each.told.type,
                visits.get(each.told.token_id, "imported"),
                each.told.account_id is not None,
                each.reason or "",
                each.status,
                (each.endpoint_id, each.event_id) in arrived,
            )
            for each in stored.all_deliveries
        ]
        discards = [each.done_at is not None for each in stored.discards]
        refused = sorted(map(sorted, stored.refused_cards.values()))
        return (
            *(sorted(sessions), sorted(accounts), sorted(agreements)),
            *(sorted(events), sorted(discards)),
            [(each.guest_id, each.done_at is not None) for each in stored.erasures.values()],
            # The audit trail may have several entries if an action was repeated.
            *(refused, len(stored.tokens), sorted({each.action for each in stored.audit})),
        )

    def run_to_end(self, stored: Snapshot) -> Snapshot:
        """Move the clock on and run the reconciler until no work is left. Return what is stored."""
        for _ in range(MAX_ROUNDS_TO_END):
            if stored.next_due is None:
                break
            self.clock.advance(max(stored.next_due - self.clock.now(), timedelta(0)))
            faults = self.reconcile().faults
            require(not faults, "I4", f"the reconciler failed: {faults}")
            self.container.finish_erasures()()
            stored = self.check()
        require(stored.next_due is None, "I4", "the reconciler never runs out of work")
        require_end(stored)
        files = self._observer.files()
        require_no_card_number(files)
        require(stored.merged <= self._merged_in_file(), "I12", "the file lacks a merged guest")
        require_nothing_personal(files, [a_guest()] if stored.is_erased(GUEST_ID) else [])
        return stored


class Prepared:
    """An installation that can be restored to a situation, and the call of a use case in it."""

    def __init__(self, folder: Path, situation: Situation) -> None:
        self._installation = FaultyInstallation(folder)
        try:
            self.attempt = situation(self._installation)
            self._installation.check()
            self._state = self._installation.state()
        finally:
            self._installation.close()

    @contextmanager
    def restored(self) -> Iterator[FaultyInstallation]:
        """Provide the installation, restored to the situation."""
        self._installation.restore(self._state)
        try:
            yield self._installation
        finally:
            self._installation.close()
