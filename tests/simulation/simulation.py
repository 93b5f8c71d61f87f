"""Simulates an installation and all its users. Random choices decide what happens and fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec
from dependency_injector import providers
from structlog.testing import capture_logs

from adapters.catalogs import shipped_reservation_texts
from adapters.fake_psp import signatures
from adapters.fake_psp.cards import TEST_CARDS, WRONG_ZIPCODE, CardEntry
from adapters.fake_psp.plugin import NAME as FAKE
from adapters.fake_psp.psp import REISSUED, CardEvent, Event, FakePsp, OutOfOrder, PageState, batch
from adapters.psp_suite.clock import SettableClock
from adapters.psp_suite.ids import SeededIds
from adapters.psp_suite.samples import a_uuid
from adapters.sqlite.storage import SqliteStorage
from domain.audit.entry import GUEST
from domain.cards.account import Account
from domain.cards.end_agreements import STATED
from domain.centers.center import Center, CenterNotFound
from domain.centers.payment_configuration import CardsPerGuest, PaymentConfiguration
from domain.consents.consent_text import ConsentText
from domain.errors import IdempotencyKeyReused, Refusal, ServiceUnavailable, SessionNotFound
from domain.events.add_event_endpoint import TooManyEndpoints
from domain.events.event import ENDPOINT_TYPES, EventEndpoint
from domain.events.find_endpoint import EndpointNotFound
from domain.guests.guest import Guest
from domain.guests.put_guest import put_unless_erased
from domain.hosted_payments.link import (
    ClickNeeded,
    LinkCancelled,
    LinkExpired,
    LinkPaused,
    LinkUnknown,
)
from domain.identifiers import CallerName, CenterId, GuestId, TokenId
from domain.pagination import PageRequest
from domain.permissions import Caller, Permission
from domain.portal.change_card import CardChange
from domain.portal.find_portal import PortalEnded, PortalExpired, PortalUnknown
from domain.psps.card import Funding
from domain.psps.payment_provider import ProviderUnavailable, WebhookRejected
from domain.psps.webhook import WebhookDelivery
from domain.sessions.request import AddCardRequest
from domain.sessions.session import CardSession
from domain.storage import WriteUnit
from entrypoints.container import build
from entrypoints.settings import OFF, Settings
from entrypoints.worker.reports import Done
from tests.bank import update_card
from tests.databases import make_database, transaction_of
from tests.installation import BASE_URL, psps_that
from tests.simulation.endpoints import EVERYTHING, EndpointTrouble, an_endpoint
from tests.simulation.faults import Fault, Faults, Step
from tests.simulation.invariants import (
    MAX_CLOCK_SKEW,
    Click,
    Invariants,
    Known,
    configuration_of,
    require,
    require_current,
    require_done,
    require_end,
    require_in_time,
    require_no_card_number,
    require_nothing_personal,
    street_of,
    version_of,
)
from tests.simulation.ports import PSP_CALLS, Moment
from tests.simulation.processes import Killed, Process
from tests.simulation.psp import LASTING_TOKENS, NEW_TOKENS, pages_at, token_of
from tests.simulation.snapshot import AccountRow, Observer

GUESTS: Final = (
    Guest(id=GuestId(a_uuid(11)), first_name="Ada", last_name="Lima", email="ada@guests.example"),
    Guest(id=GuestId(a_uuid(12)), first_name="Ben", last_name="Moss"),
    Guest(id=GuestId(a_uuid(13)), first_name="Cleo", last_name="Nash"),
)

HARBOR: Final = Center(id=CenterId(a_uuid(1)), name="Harbor")
GARDEN: Final = Center(id=CenterId(a_uuid(2)), name="Garden")
SUMMIT: Final = Center(id=CenterId(a_uuid(3)), name="Summit")
CENTERS: Final = (HARBOR, GARDEN, SUMMIT)

OWN_PAGE: Final = f"{BASE_URL}/hosted-payments/portal"
"""The address of the guest's own page, to which a session that replaces a card leads back."""

BROWSERS: Final = ("phone", "laptop")
LONG_LINK_MINUTES: Final = 2 * 24 * 60

CONFIGURATIONS: Final[Mapping[CenterId, PaymentConfiguration]] = {
    HARBOR.id: PaymentConfiguration(
        provider=FAKE, merchant_account=NEW_TOKENS, link_minutes=LONG_LINK_MINUTES
    ),
    GARDEN.id: PaymentConfiguration(provider=FAKE, merchant_account=LASTING_TOKENS, avs=True),
    SUMMIT.id: PaymentConfiguration(
        provider=FAKE,
        merchant_account=LASTING_TOKENS,
        cards_per_guest=CardsPerGuest.ONE,
        session_minutes=15,
        refuse_funding=frozenset({Funding.PREPAID}),
        acquirer_agreed=True,
    ),
}

SHOP: Final = Caller(name=CallerName("shop"), permissions=frozenset(Permission))
APP: Final = Caller(name=CallerName("app"), permissions=frozenset(Permission))
KIOSK: Final = Caller(
    name=CallerName("kiosk"), permissions=frozenset(Permission), centers=frozenset({HARBOR.id})
)

ADDRESS: Final = {"country_code": "US", "zipcode": "98101"}
EXPIRIES: Final = ((9, 2031), (3, 2034))
GOOD_CARD: Final = "4242424242424242"
GOOD_NUMBERS: Final = (GOOD_CARD, "5555555555554444")

CARD_TESTING_LIMITS: Final = "guest=6/3,guest-everywhere=off/5,caller=off/off,center=off/off"
"""The limits in the runs of every second seed. The other runs have no limits."""

MAX_SESSIONS: Final = 6
"""How many sessions these limits allow a guest at a center in 24 hours."""

CALLS_UNTIL_FAULT: Final = 16
"""A step has a fault within this many calls to ports, unless it ends earlier."""

SECONDS_AHEAD: Final = (0, 1, 60, 120)
"""By how many seconds the clock of a process may be ahead. The clock of the PSP is right."""

JUMPS: Final = (
    *(timedelta(minutes=1), timedelta(days=1), timedelta(days=365)),
    *(timedelta(minutes=-1), timedelta(days=-1), timedelta(days=-365)),
)
"""By how much the clock of a process may jump for a moment."""

KEYS_LAST: Final = timedelta(hours=24) - MAX_CLOCK_SKEW

MAX_TIME_TO_END: Final = timedelta(days=3)
"""Without faults, all open work is done within this time."""

MAX_ROUNDS_TO_END: Final = 200
PUNCTUAL_ROUNDS: Final = 20
"""At the end of a run, the reconciler runs this many times at the moment when work is due. After
that, it runs once an hour at most.
"""

STEPS_PER_FILE_CHECK: Final = 10

NAMES: Final[Mapping[str, str]] = {
    **{each.id: each.first_name for each in GUESTS},
    **{each.id: each.name for each in CENTERS},
}

Returned = TypeVar("Returned")
Thing = TypeVar("Thing")

ERRORS: Final = (
    *(Refusal, ClickNeeded, LinkUnknown, LinkCancelled, LinkExpired, LinkPaused),
    *(ProviderUnavailable, WebhookRejected),
    *(CenterNotFound, EndpointNotFound, TooManyEndpoints),
    *(PortalEnded, PortalExpired, PortalUnknown),
)
"""The errors that a use case may raise."""


@dataclass(slots=True)
class Visit:
    """A request to add a card, which may be sent several times. Its redirect_uri is unique."""

    number: int
    caller: Caller
    guest: Guest
    center: Center
    request: AddCardRequest
    session: CardSession | None = None

    @property
    def redirect_uri(self) -> str:
        return str(self.request.redirect_uri)

    @property
    def link_key(self) -> str | None:
        return self.session.link_key if self.session else None


class Simulation:
    """Two processes with one database, a PSP, three guests, three centers and three callers.

    Each step makes random `choices`, adds lines to `history` and finally checks the invariants. A
    step raises Broken if an invariant does not hold.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.history: list[str] = []
        self.steps = 0
        self._clock = SettableClock()
        ids = SeededIds(seed)
        database = folder / "cards.db"
        make_database(database)
        settings = Settings.read(
            {
                "CARDONFILE_DATABASE_URL": f"sqlite:///{database}",
                "CARDONFILE_PUBLIC_BASE_URL": BASE_URL,
                "CARDONFILE_CARD_TESTING_LIMITS": CARD_TESTING_LIMITS if seed % 2 else OFF,
                "CARDONFILE_ERASURES_FILE": str(folder / "erasures.txt"),
            }
        )
        # For every third seed, the PSP's page does not show the consent.
        asks = seed % 3 == 0
        settings = replace(settings, psps=psps_that(settings.psps, shows_consent=not asks))
        self._psp = FakePsp(folder / "psp.db", base_url=BASE_URL, clock=self._clock, ids=ids)
        self._faults = Faults(log=self._log, interrupt=self._interrupt, has_page=self._has_page)
        self._known = Known(
            places={*NAMES, *map(configuration_of, CONFIGURATIONS)},
            max_sessions=MAX_SESSIONS if seed % 2 else None,
            asks=asks,
        )
        self._processes = []
        for name in ("A", "B"):
            container = build(settings)
            container.ids.override(providers.Object(ids))
            self._processes.append(
                Process(
                    name,
                    database,
                    container,
                    clock=self._clock,
                    psp=self._psp,
                    endpoints=self._known.endpoints,
                    late=self._known.late,
                    watcher=self._faults.on_call,
                )
            )
        self._operator = SqliteStorage(database)
        self._operate(_restore_everything)
        every = an_endpoint(EVERYTHING, now=self._clock.now())
        self._operate(lambda unit: unit.event_endpoints.add(every))
        self._known.secrets[EVERYTHING] = [every.secrets.current]
        self._rolls = 0
        self._invariants = Invariants(self._known)
        self._observer = Observer(folder, self._psp, self._known.endpoints)
        self._stored = self._observer.read()
        self._ends = ExitStack()
        self._log_lines = self._ends.enter_context(capture_logs())
        self._unlogged = Counter[tuple[str, str]]()
        self._cookies: dict[tuple[str, str], str] = {}
        self._visits: list[Visit] = []
        self._visit_of: dict[TokenId, Visit] = {}
        self._pages: list[tuple[TokenId, str]] = []
        self._names = {**NAMES, EVERYTHING: "the endpoint of everything"}

    def close(self) -> None:
        self._ends.close()
        for process in self._processes:
            process.stop()
        self._operator.close()
        self._observer.close()
        self._psp.close()

    def take(self, rule: str, choices: Random, number: int) -> None:
        """Do the step with this number, including the steps that interrupt it."""
        self.steps = number
        self._do(rule, choices)
        if self.steps % STEPS_PER_FILE_CHECK == 0:
            require_no_card_number(self._observer.files())

    def end(self, choices: Random) -> None:
        """Stop injecting faults, and move the clock on until no work is left."""
        self._faults.have_stopped = True
        self._known.endpoints.troubles.clear()
        self._log("no more faults from here on")
        for _ in range(choices.randrange(5)):
            self._do("a_webhook_comes", choices)
        self._do("the_psp_sends_late_webhooks", choices)
        self._do("an_operator_replays_what_was_given_up", choices)
        started_at = self._clock.now()
        rounds = 0
        self._operate(_make_all_cards_due)
        self._do("the_reconciler_runs", choices)
        while due_at := self._next_due(readings_until=started_at + timedelta(hours=12)):
            rounds += 1
            in_time = due_at - started_at < MAX_TIME_TO_END and rounds < MAX_ROUNDS_TO_END
            require(in_time, "I4", "the reconciler never runs out of work")
            # A session may be due every ten minutes for a day.
            pause = timedelta(0) if rounds < PUNCTUAL_ROUNDS else timedelta(hours=1)
            self._clock.advance(max(due_at - self._clock.now(), pause))
            self._do("the_reconciler_runs", choices)
        require_end(self._stored)
        require_current(self._stored)
        require_no_card_number(self._observer.files())
        # A merged guest is erased with the remaining guest.
        heirs = {each.id: self._stored.heir_of(each.id) for each in GUESTS}
        erased = [
            each
            for each in GUESTS
            if self._stored.is_erased(each.id)
            and (heirs[each.id] == each.id or self._stored.is_erased(f"{heirs[each.id]}"))
        ]
        require_nothing_personal(self._observer.files(), erased)
        file = self._processes[0].container.erasure_file()
        noted, merged = file.erased().keys(), file.merged().keys()
        require(self._stored.erasures.keys() <= noted, "I12", "the file lacks an erased guest")
        require(merged <= self._stored.merged, "I12", "the file has a merge that is not stored")

    def story(self, broken: Exception | None = None) -> str:
        """Return the history as text, with names in place of identifiers.

        If something broke, the last line says what.
        """
        end = ["", f"{type(broken).__name__}: {broken}"] if broken else []
        text = "\n".join([*self.history, *end])
        for identifier, name in self._names.items():
            for kind in ("session ", "account ", "agreement ", "event ", ""):
                text = text.replace(f"{kind}{identifier}", name)
        return text

    # Clients and guests.

    def a_client_adds_a_card(self, process: Process, choices: Random) -> None:
        guest, center = choices.choice(GUESTS), choices.choice(CENTERS)
        if self._visits and choices.randrange(4):
            guest, center = self._visits[-1].guest, self._visits[-1].center
        self._ask_to_add(process, choices, guest, center)

    def _ask_to_add(
        self, process: Process, choices: Random, guest: Guest, center: Center
    ) -> CardSession | None:
        number = len(self._visits) + 1
        request = AddCardRequest(
            guest_id=guest.id,
            center_id=center.id,
            redirect_uri=f"https://shop.example/cards?visit={number}",
            billing_info=_address_of(guest) if choices.randrange(6) < 5 else None,
            link_minutes=choices.choice((None, LONG_LINK_MINUTES)) if center == HARBOR else None,
            locale=choices.choice((None, "de", "ja")),
            idempotency_key=f"visit-{number}" if choices.randrange(3) else None,
            agreement=self._booking(choices, number) if center == GARDEN else None,
        )
        caller = choices.choice((SHOP, SHOP, APP, APP, SHOP, KIOSK))
        visit = Visit(number, caller, guest, center, request)
        if request.idempotency_key:
            self._known.keyed.add(visit.redirect_uri)
        self._visits.append(visit)
        self._send(process, visit)
        return visit.session

    def _booking(self, choices: Random, number: int) -> object:
        """Return the agreement that a request asks for, or None."""
        ahead = choices.choice((None, timedelta(hours=1), timedelta(days=2), timedelta(days=300)))
        if ahead is None:
            return None
        starts_at = self._clock.now() + ahead
        return {
            "reference": f"booking-{number}",
            "description": "2 × massage",
            "starts_at": starts_at.isoformat(),
            "ends_at": (starts_at + timedelta(hours=1)).isoformat(),
            "no_show": {"amount": "80.00", "currency": "EUR"},
            "reuse": choices.choice(("never", "offer", "offer")),
        }

    def a_client_sends_again(self, process: Process, choices: Random) -> None:
        """Repeat an earlier request, or send a different request with the same key."""
        if not self._visits:
            self.a_client_adds_a_card(process, choices)
            return
        visit = _recent(choices, self._visits)
        if visit.request.idempotency_key and choices.randrange(4) == 3:
            self._send(process, visit, choices.choice(GUESTS))
        else:
            self._send(process, visit)

    def a_client_looks(self, process: Process, choices: Random) -> None:
        """Read a session, or list the cards of a guest."""
        caller, guest = choices.choice((SHOP, KIOSK)), choices.choice(GUESTS)
        if not self._visit_of or choices.randrange(2):
            self._list_cards(process, caller, guest)
            return
        token_id, visit = _recent(choices, list(self._visit_of.items()))
        guest = guest if choices.randrange(4) == 3 else visit.guest
        result = self._call(
            f"{caller.name} reads {self._names[token_id]} of {guest.first_name}",
            process,
            lambda: process.use_cases.read_session(caller, guest_id=guest.id, token_id=token_id),
            lambda found: found.session.status.value,
        )
        if not isinstance(result, ServiceUnavailable):
            # The guest may have been merged before the request or during it.
            owners = {
                each.heir_of(visit.guest.id) for each in (self._stored, self._observer.read())
            }
            sees, is_shown = caller.sees(visit.center.id), not isinstance(result, SessionNotFound)
            is_right = is_shown == (sees and guest.id in owners)
            require(is_right or (sees and len(owners) > 1), "I5", "the wrong session was shown")

    def a_client_reads_events(self, process: Process, choices: Random) -> None:
        """Read events from the last position on. Sometimes the response is lost."""
        known, size = self._known, 1 + choices.randrange(20)
        before = known.position
        found = self._call(
            "a client reads events",
            process,
            lambda: process.use_cases.list_events(SHOP, afters=[before], size=size),
            lambda found: f"{len(found.events)}",
        )
        # Another process of the client may have continued from this position in the meantime.
        is_taken = bool(choices.randrange(4)) and known.position == before
        if not isinstance(found, Exception) and is_taken:
            known.read += [each.event_id for each in found.events]
            known.position = str(found.next)

    def a_client_removes_a_card(self, process: Process, choices: Random) -> None:
        if not self._stored.accounts:
            return
        accounts = list(self._stored.accounts.values())
        active = [each for each in accounts if each.is_active]
        of_several = self._cards_of_several()
        cards = choices.choice((of_several or active, active, accounts)) or accounts
        account = _recent(choices, cards)
        result = self._change_card(
            "removes", process, choices, account, process.use_cases.remove_account
        )
        if not isinstance(result, Exception):
            self._known.removed.add(account.account_id)

    def a_client_chooses_a_default_card(self, process: Process, choices: Random) -> None:
        """Choose a default card. If no guest has several cards at a center, add a card instead."""
        accounts = list(self._stored.accounts.values())
        of_several = self._cards_of_several()
        if not of_several:
            self.a_client_adds_a_card(process, choices)
            self.a_guest_opens_a_link(process, choices)
            self.a_guest_types_a_card(process, choices)
            return
        account = _recent(choices, choices.choice((of_several, of_several, accounts)))
        self._change_card(
            "makes the default", process, choices, account, process.use_cases.choose_default_card
        )

    def a_guest_changes_a_card_on_the_own_page(self, process: Process, choices: Random) -> None:
        """Remove a card, withdraw its consent or make it the default.

        The card may already have been removed.
        """
        if not self._stored.accounts:
            return
        account = _recent(choices, list(self._stored.accounts.values()))
        change = choices.choice(list(CardChange))

        def act() -> Account | None:
            cookie = self._cookie(process, choices, account)
            return process.container.change_card()(cookie, account.account_id, change)

        result = self._call(
            f"{NAMES[account.guest_id]} asks the own page to {change}: {self._names[account.account_id]}",
            process,
            act,
        )
        if isinstance(result, Account) and result.removed_at is not None:
            self._known.removed.add(account.account_id)

    def a_guest_replaces_a_card_on_the_own_page(self, process: Process, choices: Random) -> None:
        """Press Replace once or twice, and then type a card or leave.

        The card to be replaced may already have been removed.
        """
        accounts = list(self._stored.accounts.values())
        active = [each for each in accounts if each.is_active]
        if not active:
            self.a_guest_books_again(process, choices)
            self.a_guest_types_a_card(process, choices)
            return
        with_booking = {each.account_id for each in self._stored.agreements if not each.ended_at}
        booked = [each for each in active if each.account_id in with_booking]
        cards = choices.choice((booked, booked, booked, active, active, accounts)) or active
        account = _recent(choices, cards)
        session = None
        for _ in range(choices.choice((1, 1, 2))):
            session = self._press_replace(process, choices, account) or session
        if session is not None and choices.randrange(4):
            if choices.randrange(2):
                # The guest books once more, perhaps with the card that is being replaced.
                self._book(process, choices, self._visit_of[session.token_id].guest)
            page = self._open_link(process, choices, session.token_id)
            if page is not None and choices.randrange(4):
                same = _number_ending(account.last_four)
                number = choices.choice((same, None, *GOOD_NUMBERS, *GOOD_NUMBERS))
                self._type_card(process, choices, session.token_id, page, number)

    def _press_replace(
        self, process: Process, choices: Random, account: AccountRow
    ) -> CardSession | None:
        guest = next(each for each in GUESTS if each.id == account.guest_id)
        center = next(each for each in CENTERS if each.id == account.center_id)
        # All sessions that replace a card lead back to the same page.
        self._known.sends[OWN_PAGE] += 1
        # The newest session is used, so no two sessions may be created at the same time.
        self._clock.advance(timedelta(seconds=1))

        def press() -> str:
            cookie = self._cookie(process, choices, account)
            return process.container.replace_card()(cookie, account.account_id)

        link = self._call(
            f"{guest.first_name} asks the own page to replace {self._names[account.account_id]}",
            process,
            press,
            lambda link: f"session {parse_qs(urlsplit(link).query)['token_id'][0]}",
        )
        if isinstance(link, Exception):
            return None
        (token_id,) = parse_qs(urlsplit(link).query)["token_id"]
        with self._operator.read() as unit:
            session = unit.sessions.get(TokenId(token_id))
        assert session is not None
        if session.link_key is None:
            # The guest was erased in the meantime.
            return None
        request = AddCardRequest(guest_id=guest.id, center_id=center.id, redirect_uri=OWN_PAGE)
        self._visit_of[session.token_id] = Visit(0, SHOP, guest, center, request, session)
        self._known.started[session.token_id] = (guest.id, center.id, OWN_PAGE)
        self._check()
        return session

    def _cookie(self, process: Process, choices: Random, account: AccountRow) -> str:
        """Return the cookie of a new or earlier visit to the own page. The visit may have ended."""
        whose = (account.guest_id, account.center_id)
        if whose not in self._cookies or choices.randrange(2):
            opened = process.container.open_portal()(
                SHOP,
                access_token="a.json.token",
                guest_id=account.guest_id,
                center_id=account.center_id,
                return_uri="https://shop.example/",
                locale=None,
            )
            self._cookies[whose] = process.container.enter_portal()(opened.secret)
        return self._cookies[whose]

    def a_guest_books_again(self, process: Process, choices: Random) -> None:
        """Book once or twice for a guest who may use a card on file, and open the links."""
        there = [
            each
            for each in self._stored.accounts.values()
            if each.is_active and each.center_id == GARDEN.id
        ]
        if there:
            of = _recent(choices, there).guest_id
            guest = next(each for each in GUESTS if each.id == of)
        else:
            guest = choices.choice(GUESTS)
        self._book(process, choices, guest)

    def _book(self, process: Process, choices: Random, guest: Guest) -> None:
        for _ in range(choices.choice((1, 2, 2))):
            session = self._ask_to_add(process, choices, guest, GARDEN)
            if session is not None:
                self._open_link(process, choices, session.token_id)

    def a_client_ends_an_agreement(self, process: Process, choices: Random) -> None:
        """End an agreement.

        The booking may be over, and a replacement of the card may be in progress.
        """
        agreements = self._stored.agreements
        if not agreements:
            self.a_guest_books_again(process, choices)
            return
        going_on = [each for each in agreements if each.ended_at is None]
        agreement = _recent(choices, choices.choice((going_on, going_on, agreements)) or agreements)
        caller, reason = choices.choice((SHOP, SHOP, KIOSK)), choices.choice(STATED)
        result = self._call(
            f"{caller.name} ends {self._names[agreement.agreement_id]} of "
            f"{NAMES[agreement.guest_id]}: {reason}",
            process,
            lambda: process.container.end_agreement()(
                caller,
                guest_id=agreement.guest_id,
                agreement_id=agreement.agreement_id,
                reasons=[reason],
                ats=[],
            ),
        )
        if not isinstance(result, Exception):
            require(caller is SHOP, "I5", "a client ended an agreement that it may not see")
            self._known.ended.add(agreement.agreement_id)

    def a_client_cancels_a_session(self, process: Process, choices: Random) -> None:
        """Cancel a session.

        The session may be unopened, have a card on its page, be cancelled already or have ended.
        """
        sessions = list(self._visit_of.items())
        if not sessions:
            return
        under_way = self._under_way(sessions)
        token_id, visit = _recent(choices, choices.choice((under_way, sessions)) or sessions)
        caller = choices.choice((SHOP, SHOP, KIOSK))
        guest = choices.choice(GUESTS) if choices.randrange(4) == 3 else visit.guest
        began_at = self._clock.now()
        was_cancelled = self._stored.sessions[token_id].cancelled_at is not None
        result = self._call(
            f"{caller.name} cancels {self._names[token_id]} of {guest.first_name}",
            process,
            lambda: process.use_cases.cancel_session(caller, guest_id=guest.id, token_id=token_id),
            lambda session: f"{session.status}, {session.progress}",
        )
        if isinstance(result, Exception):
            return
        owner = self._observer.read().heir_of(visit.guest.id)
        may = guest.id in (visit.guest.id, owner) and caller.sees(visit.center.id)
        require(may, "I5", "a client cancelled a session that it may not see")
        require(result.cancelled_at or result.status != "open", "I3", "it was not cancelled")
        if result.cancelled_at:
            self._known.cancelled.add(token_id)
            is_now = began_at <= result.cancelled_at <= self._clock.now() + MAX_CLOCK_SKEW
            require(is_now or was_cancelled, "I3", "it was cancelled at a wrong time")
        if result.status == "open":
            # The PSP has not closed the page yet, and the guest may still type a card on it.
            self._clock.advance(timedelta(minutes=choices.randrange(4)))
            for page in [page for opened, page in self._pages if opened == token_id][-1:]:
                self._type_card(process, choices, token_id, page)

    def a_client_erases_a_guest(self, process: Process, choices: Random) -> None:
        """Erase a guest, often a guest who is adding a card. Keep at least one guest."""
        if len(self._stored.erasures) + 1 >= len(GUESTS):
            return
        caller, guest = choices.choice((SHOP, SHOP, KIOSK)), choices.choice(GUESTS)
        if self._visits and choices.randrange(4):
            guest = self._visits[-1].guest
        erase = process.container.erase_guest()
        result = self._call(
            f"{caller.name} erases {guest.first_name}",
            process,
            lambda: erase(caller, guest_id=guest.id),
        )
        if not isinstance(result, Exception):
            require(caller is SHOP, "I5", "a client erased a guest without the permission to")
            self._known.erased.add(guest.id)
            self._known.missing.add(guest.id)

    def a_client_merges_two_guests(self, process: Process, choices: Random) -> None:
        """Merge two guests, but keep at least one guest.

        The last digits of their cards, which the client confirms, were read before the request.
        """
        if len(self._stored.erasures) + 1 >= len(GUESTS):
            return
        merged, remaining = choices.sample(GUESTS, 2)
        last_fours = [
            account.last_four
            for account in self._stored.accounts.values()
            if account.is_active and account.guest_id in (merged.id, remaining.id)
        ]
        caller = choices.choice((SHOP, SHOP, KIOSK))
        result = self._call(
            f"{caller.name} merges {merged.first_name} into {remaining.first_name}",
            process,
            lambda: process.use_cases.merge_guests(
                caller, guest_id=remaining.id, merged_id=merged.id, last_fours=last_fours
            ),
        )
        if not isinstance(result, Exception):
            require(caller is SHOP, "I5", "a client merged guests without the permission to")
            self._known.missing.add(merged.id)

    def a_guest_adds_a_removed_card_again(self, process: Process, choices: Random) -> None:
        """Remove a card, and then add a card, which may get the token that is being discarded."""
        self.a_client_removes_a_card(process, choices)
        self.a_client_adds_a_card(process, choices)
        self.a_guest_opens_a_link(process, choices)
        self.a_guest_types_a_card(process, choices)

    def a_guest_opens_a_link(self, process: Process, choices: Random) -> None:
        """Open a link for the first time, once more, in another browser, or too late."""
        sessions = list(self._visit_of.items())
        under_way = self._under_way(sessions)
        if not under_way:
            self.a_client_adds_a_card(process, choices)
            return
        token_id, _ = _recent(choices, choices.choice((under_way, under_way, sessions)))
        self._open_link(process, choices, token_id)

    def _open_link(self, process: Process, choices: Random, token_id: TokenId) -> str | None:
        """Open a link. Return the PSP's page to which the link leads, or None."""
        visit = self._visit_of[token_id]
        damage = choices.choice(("", "", "", "", ".", "&amp;redirect_uri=https://evil.example/"))
        by_click = choices.randrange(4) > 0
        browser = choices.choice(BROWSERS)
        agreed, card = self._read_consent(process, token_id, browser) if by_click else (None, None)
        if choices.randrange(4) == 0:
            card = None
        click = Click(browser, agreed or "", self._clock.now())
        self._known.clicks[token_id] += [click] if agreed else []
        keeps = choices.randrange(4) == 0
        result = self._call(
            f"{visit.guest.first_name} opens {self._names[token_id]}{', damaged' * bool(damage)}",
            process,
            lambda: process.use_cases.open_hosted_page(
                key=f"{visit.link_key}{damage}",
                by_click=by_click,
                agreed=agreed,
                keeps=keeps,
                card=card,
                browser=browser,
            ),
            lambda address: "the shop" if address == visit.redirect_uri else "a page of the PSP",
        )
        # The clock of the process may have changed during the request.
        click.ended_at = self._clock.now() + MAX_CLOCK_SKEW
        if isinstance(result, Exception) or result == visit.redirect_uri:
            return None
        page = result.rpartition("/")[2]
        request = self._psp.page(page).request
        whose = request.token_id
        require(whose == token_id, "I5", f"a guest was sent to the page of session {whose}")
        clicks = {(each.browser, each.digest) for each in self._known.clicks[token_id]}
        has_agreed = (browser, request.consent.digest) in clicks or not self._known.asks
        if self._stored.sessions[token_id].has_agreement:
            has_agreed = any(each == browser for each, _ in clicks)
        require(has_agreed, "I11", f"a browser came to session {whose} without an agreement")
        self._pages.append((token_id, page))
        return page

    def _read_consent(
        self, process: Process, token_id: TokenId, browser: str
    ) -> tuple[str | None, str | None]:
        """Read the text on cardonfile's page. Return its digest and the name of an offered card."""
        page_content = self._call(
            f"{self._visit_of[token_id].guest.first_name} reads our page",
            process,
            lambda: process.container.find_page_content()(
                key=self._visit_of[token_id].link_key, browser=browser
            ),
        )
        if (
            isinstance(page_content, Exception)
            or page_content is None
            or page_content.consent is None
        ):
            return None, None
        if page_content.agreement is None:
            return page_content.consent.digest, None
        self._known.texts[token_id].update(page_content.agreement.texts)
        if page_content.card is not None:
            self._known.offered[token_id].add(page_content.card.account_id)
        return page_content.agreement.digest, page_content.card_name

    def a_guest_types_a_card(self, process: Process, choices: Random) -> None:
        """Type a card on a page. The guest may answer a challenge and may return."""
        live = [each for each in self._pages if not self._psp.page(each[1]).is_over]
        if not live:
            self.a_guest_opens_a_link(process, choices)
            return
        self._type_card(
            process, choices, *_recent(choices, choices.choice((live, live, live, self._pages)))
        )

    def _type_card(
        self,
        process: Process,
        choices: Random,
        token_id: TokenId,
        page: str,
        number: str | None = None,
    ) -> None:
        guest = self._visit_of[token_id].guest
        number = number or choices.choice((*[GOOD_CARD] * 4, *sorted(TEST_CARDS)))
        expiry = choices.choice(EXPIRIES)
        zipcode = WRONG_ZIPCODE if choices.randrange(8) == 7 else ADDRESS["zipcode"]
        self._log(
            f"{guest.first_name} types {number[-4:]}, {expiry[0]:02}/{expiry[1]}, {zipcode} on the "
            f"page of {self._names[token_id]}"
        )
        self._known.typed[page] = guest.id
        try:
            tried = self._psp.try_card(
                page,
                CardEntry(
                    number=number, expiry_month=expiry[0], expiry_year=expiry[1], zipcode=zipcode
                ),
            )
            if tried.state is PageState.CHALLENGED and choices.randrange(2):
                tried = self._psp.answer_challenge(page, confirmed=choices.randrange(3) < 2)
        except OutOfOrder as refused:
            self._log_result(type(refused).__name__)
            return
        self._log_result(f"{tried.state}{f', {tried.refusal}' if tried.refusal else ''}")
        if not choices.randrange(3):
            self._come_back(process, token_id)

    def a_browser_comes_back(self, process: Process, choices: Random) -> None:
        """Return from a page, with or without a card."""
        if not self._pages:
            self.a_guest_opens_a_link(process, choices)
            return
        under_way = self._under_way(self._pages) or self._pages
        token_id, page = _recent(choices, choices.choice((under_way, under_way, self._pages)))
        self._psp.answer_challenge(page, confirmed=choices.randrange(3) < 2)
        self._come_back(process, token_id, cancels=choices.randrange(4) == 3)

    # The PSP.

    def a_webhook_comes(self, process: Process, choices: Random) -> None:
        """Deliver the webhook about any event of the PSP.

        It may come late, twice or out of order. It may be altered or have an old signature.
        """
        events = self._events()
        if not events:
            return
        is_altered, is_old = choices.choice(((True, False), (False, True), *[(False, False)] * 6))
        self._deliver(process, _recent(choices, events), is_altered=is_altered, is_old=is_old)

    def a_bank_changes_a_card(self, process: Process, choices: Random) -> None:
        """Let the bank reissue a card, or let the PSP lose it. Usually send a webhook about it.

        The session of the card may not be settled yet.
        """
        there = [
            page
            for page in self._stored.pages
            if page.card and page.state is PageState.COMPLETED and self._psp.holds(page.card.token)
        ]
        if not there:
            return
        page = _recent(choices, there)
        # Two cards of a guest may become the same card.
        several = [each for each in self._cards_of_several() if each.merchant_account == NEW_TOKENS]
        twins = several if choices.randrange(3) else []
        if twins:
            (page,) = self._stored.pages_of_card(choices.choice(twins))
        card, at = page.card, page.request.merchant_account
        assert card is not None
        token = token_of(at, card)
        if not twins and (at, token) in self._stored.held and not choices.randrange(3):
            lost = [each for each in there if each.card and token_of(at, each.card) == token]
            for each in lost:
                if each.card is not None:
                    self._psp.discard(at, each.guest_reference, each.card.token)
            self._known.lost.add((at, token))
            self._log(f"the PSP loses {self._names[token]}")
        else:
            # A lasting token belongs to a card number, so the number must not change.
            numbers: Sequence[str] = (
                GOOD_NUMBERS if at == NEW_TOKENS else [_number_ending(card.last_four)]
            )
            numbers = [_number_ending(each.last_four) for each in twins] or numbers
            month, _ = choices.choice(EXPIRIES)
            number, versions = choices.choice(numbers), self._known.versions[token]
            versions = versions or [version_of(card)]
            # Each version expires later than all earlier versions, so no two versions are equal.
            year = 2036 + len(versions)
            entry = CardEntry(number=number, expiry_month=month, expiry_year=year, zipcode="98101")
            updated = update_card(self._psp, card.token, entry)
            self._known.versions[token] = [*versions, version_of(updated)]
            self._known.reissued |= {card.token, token}
            self._log(f"the bank reissues {self._names[token]} as {number[-4:]} {month}/{year}")
        if choices.randrange(3):
            event = CardEvent(
                id="event_of_a_card", type=REISSUED, created=0, merchant_account=at, card=token
            )
            self._call(
                f"a webhook comes: {self._names[token]} was changed",
                process,
                lambda: process.use_cases.receive_webhook(
                    FAKE, self._signed(event, self._clock.now())
                ),
            )

    def the_psp_sends_late_webhooks(self, process: Process, _choices: Random) -> None:
        """Deliver the webhooks about all late pages without injecting a fault into this step."""
        self._faults.steps[-1].calls_left = 0
        for event in self._events():
            if event.page in self._known.late:
                self._known.late.remove(event.page)
                self._deliver(process, event)

    def the_psp_has_trouble(self, _process: Process, choices: Random) -> None:
        """Start or end failures of calls, close a page, or report a card late."""
        what = choices.randrange(5)
        if what == 0 and self._pages:
            token_id, page = _recent(choices, self._pages)
            self._psp.close_page(page)
            self._log(f"the PSP closes the page of {self._names[token_id]}")
        elif what == 1 and self._pages:
            token_id, page = _recent(choices, self._pages)
            self._known.late.add(page)
            self._known.was_late.add(page)
            self._log(f"the PSP reports a card on the page of {self._names[token_id]} late")
        elif what < 4:
            self._faults.lasting = {}
            self._log("the PSP is well")
        else:
            calls = [each for each in PSP_CALLS if choices.randrange(2)]
            moment, fault = choices.choice(
                (
                    (Moment.BEFORE, Fault.SILENT),
                    (Moment.AFTER, Fault.SILENT),
                    (Moment.BEFORE, Fault.REFUSED),
                )
            )
            self._faults.lasting = dict.fromkeys(calls, (moment, fault))
            self._log(f"from now on, {moment} {', '.join(calls) or 'no call'}: {fault}")

    # The reconciler, time, and operators.

    def the_reconciler_runs(self, process: Process, _choices: Random) -> None:
        """Do all due work and the periodic tasks."""

        step = self._faults.steps[-1]

        def work() -> Done:
            before = self._observer.read()
            done = process.reconcile()
            require(not step.lacked_storage, "F8", "the reconciler hides that the storage is down")
            if not step.had_fault:
                troubles = self._known.endpoints.troubles
                away = [each for each in troubles if troubles[each] is not EndpointTrouble.GONE]
                stored, now = self._observer.read(), process.clock.now()
                require_done(before, stored, done, now=now, away=away)
            process.forget_idempotency_keys()
            process.container.finish_erasures()()
            process.container.complete_agreements()()
            process.container.notice_unopened()()
            process.container.end_agreements()()
            process.container.remove_ended_cards()()
            return done

        result = self._call(
            "the reconciler runs",
            process,
            work,
            lambda done: (
                f"{done.jobs['sessions']} sessions, {done.jobs['discards']} discards, {done.jobs['events']} events"
            ),
        )
        if not isinstance(result, Exception) and result.faults:
            raise result.faults[0]

    def time_passes(self, process: Process, choices: Random) -> None:
        """Move the clock on a little, a lot, or to the time when a session expires or work is due.

        In half of the cases, run the reconciler afterwards.
        """
        now = process.clock.now()
        marks = {each.due_at for each in self._stored.all_deliveries}
        for each in self._stored.sessions.values():
            if not each.is_settled:
                marks |= {each.due_at, each.expires_at}
        later = sorted(mark for mark in marks if mark and mark > now)
        match choices.randrange(8):
            case 0 | 1 | 2 if later:
                by = choices.choice(later[:6]) - now + timedelta(seconds=choices.randrange(7) - 3)
            case 3:
                by = timedelta(minutes=1 + choices.randrange(40))
            case 4 if len(self._faults.steps) == 1:
                by = timedelta(hours=1 + choices.randrange(30))
            case _:
                by = timedelta(seconds=1 + choices.randrange(60))
        by = max(by, timedelta(seconds=1))
        self._clock.advance(by)
        self._log(f"{by} later")
        if choices.randrange(2):
            self.the_reconciler_runs(process, choices)

    def a_process_has_a_mishap(self, process: Process, choices: Random) -> None:
        """Kill a process between two requests, or set its clock wrong."""
        if choices.randrange(2):
            seconds = choices.choice(SECONDS_AHEAD)
            process.clock.ahead = timedelta(seconds=seconds)
            self._log(f"the clock of {process.name} is {seconds} s ahead")
        else:
            process.is_dead = True
            self._log(f"{process.name} is killed")

    def a_clock_is_wrong_while_the_network_is_away(self, process: Process, choices: Random) -> None:
        """Let the clock of a process jump while it attempts due work and clients repeat requests.

        Neither the PSP nor an endpoint responds during that time.
        """
        if len(self._faults.steps) > 1:
            # The steps in progress expect that the clocks of the processes hardly differ.
            return
        endpoints = self._known.endpoints
        self._faults.steps[-1].calls_left = 0
        self._faults.lasting = dict.fromkeys(PSP_CALLS, (Moment.BEFORE, Fault.SILENT))
        endpoints.troubles = dict.fromkeys(self._stored.endpoints, EndpointTrouble.SILENT)
        process.clock.jump = choices.choice(JUMPS)
        self._log(f"the clock of {process.name} jumps by {process.clock.jump}, without network")
        try:
            self.the_reconciler_runs(process, choices)
            for visit in self._visits[-5:]:
                started = visit.session and self._clock.now() - visit.session.created_at
                if visit.request.idempotency_key and started and started < KEYS_LAST:
                    self._send(process, visit)
        finally:
            process.clock.jump = timedelta(0)
            endpoints.troubles, self._faults.lasting = {}, {}
        self._log(f"the clock of {process.name} is set right, and the network is back")
        self.the_reconciler_runs(process, choices)
        require_in_time(self._observer.read(), self._clock.now())

    def an_operator_changes_something(self, _process: Process, choices: Random) -> None:
        """Remove a guest, a center or a configuration, change a configuration, or set a text.

        Often, restore everything instead.
        """
        guest, center = choices.choice(GUESTS), choices.choice(CENTERS)
        gone: str | None = None
        match choices.randrange(9):
            case 0:
                what, gone = f"removes {guest.first_name}", guest.id
                self._operate(lambda unit: _delete(unit, "guests", guest.id))
            case 1:
                what, gone = f"removes {center.name}", center.id
                self._operate(lambda unit: _delete(unit, "centers", center.id))
            case 2:
                what, gone = f"unconfigures {center.name}", configuration_of(center.id)
                self._operate(lambda unit: unit.configurations.remove(center.id))
            case 3:
                configuration = replace(
                    CONFIGURATIONS[center.id],
                    merchant_account=choices.choice((NEW_TOKENS, LASTING_TOKENS)),
                    avs=not CONFIGURATIONS[center.id].avs,
                )
                what = f"has {center.name} take cards at {configuration.merchant_account}"
                self._operate(lambda unit: unit.configurations.put(center.id, configuration))
                self._known.there.add(configuration_of(center.id))
            case 4:
                version = f"own-{choices.randrange(3)}"
                text = ConsentText(language="de", version=version, text=f"{version}: {{center}}")
                what = f"sets the German text {version} for {center.name}"
                self._operate(lambda unit: unit.consent_texts.put(center.id, text))
            case _:
                what = "restores everything"
                self._operate(_restore_everything)
                self._known.there |= self._known.places
        self._known.missing |= {gone} if gone else set()
        self._log(f"the operator {what}")

    # Endpoints for events.

    def an_operator_changes_an_endpoint(self, process: Process, choices: Random) -> None:
        """Add an endpoint, remove an endpoint, or rotate the secret of an endpoint."""
        endpoints = [each for each in self._stored.endpoints.values() if not each.removed_at]
        what = choices.randrange(3)
        if what == 0 or not endpoints:
            self._add_endpoint(process, choices)
            return
        endpoint_id = choices.choice(endpoints).endpoint_id
        name = self._names[endpoint_id]
        if what == 1 and endpoint_id != EVERYTHING:
            remove = process.container.remove_event_endpoint()
            self._call(f"the operator removes {name}", process, lambda: remove(endpoint_id))
            return
        roll = process.container.roll_event_secret()
        told = self._known.secrets.pop(endpoint_id, None)
        self._rolls = number = self._rolls + 1
        rolled = self._call(
            f"the operator rolls the secret of {name}", process, lambda: roll(endpoint_id)
        )
        # If the response to an earlier change was lost, an event may be signed with a secret that
        # the owner does not know. If two changes overlap, the owner cannot know which was the last.
        if told and number == self._rolls and isinstance(rolled, EventEndpoint):
            self._known.secrets[endpoint_id] = [told[-1], rolled.secrets.current]

    def an_operator_replays_an_event(self, process: Process, choices: Random) -> None:
        """Replay an event that is being delivered, was delivered or was given up."""
        events = list(self._stored.deliveries.get(EVERYTHING, ()))
        if events:
            self._replay(process, _recent(choices, events))

    def an_operator_replays_what_was_given_up(self, process: Process, _choices: Random) -> None:
        """Replay events that endpoints have not accepted in ten attempts."""
        for each in self._stored.all_deliveries:
            if each.status == "failed" and self._stored.endpoints[each.endpoint_id].is_active:
                self._replay(process, each.event_id)

    def an_endpoint_has_trouble(self, _process: Process, choices: Random) -> None:
        """Start or end the failures of an endpoint."""
        endpoints = [each.endpoint_id for each in self._stored.endpoints.values() if each.is_active]
        endpoint_id = choices.choice(endpoints)
        trouble = choices.choice((None, None, *EndpointTrouble))
        if trouble is EndpointTrouble.GONE and endpoint_id == EVERYTHING:
            trouble = None
        if trouble is None:
            self._known.endpoints.troubles.pop(endpoint_id, None)
        else:
            self._known.endpoints.troubles[endpoint_id] = trouble
        self._log(f"{self._names[endpoint_id]} {trouble or 'is well'}")

    def _add_endpoint(self, process: Process, choices: Random) -> None:
        types = choices.sample(ENDPOINT_TYPES, choices.randrange(1, len(ENDPOINT_TYPES)))
        centers = choices.choice((None, [choices.choice(CENTERS).id]))
        url = f"https://shop.example/{self.steps}/{len(self._stored.endpoints)}"
        add, rolls = process.container.add_event_endpoint(), self._rolls
        added = self._call(
            f"the operator adds an endpoint of {', '.join(sorted(types))} at "
            f"{NAMES[centers[0]] if centers else 'all centers'}",
            process,
            lambda: add(url=url, types=types, centers=centers),
        )
        # Another operator may have changed the secret before this operator was told the secret.
        if isinstance(added, EventEndpoint) and rolls == self._rolls:
            self._known.secrets[added.endpoint_id] = [added.secrets.current]

    def _replay(self, process: Process, event_id: str) -> None:
        self._known.endpoints.replayed.add(event_id)
        replay = process.container.replay_event()
        self._call(
            f"the operator replays {self._names[event_id]}",
            process,
            lambda: replay(event_id),
            lambda times: f"to {times} endpoints",
        )

    # How a step is done.

    def _do(self, rule: str, choices: Random) -> None:
        alive = [each for each in self._processes if not each.is_dead]
        if not alive:
            return
        process = choices.choice(alive)
        steps = self._faults.steps
        step = Step(process, choices, choices.randrange(CALLS_UNTIL_FAULT))
        steps.append(step)
        try:
            RULES[rule](self, process, choices)
        except Killed:
            # Other steps that this process is doing end at their next call to a port.
            self._log_result(f"no response, {process.name} is dead")
        finally:
            steps.pop()
        for each in self._processes:
            if each.is_dead and all(step.process is not each for step in steps):
                each.stop()
                each.start()
        self._check()
        if not steps:
            self._require_logged(may_lack=step.had_fault)

    def _interrupt(self, choices: Random) -> None:
        """Do one or several steps in the middle of another step."""
        for rule in choices.choices(
            list(SHARES), list(SHARES.values()), k=choices.choice((1, 1, 1, 1, 4, 8))
        ):
            self._do(rule, choices)

    def _has_page(self, idempotency_key: str) -> bool:
        return any(each.request.idempotency_key == idempotency_key for each in pages_at(self._psp))

    def _check(self) -> None:
        self._stored = self._observer.read()
        for kind, ids in (
            ("session", self._stored.sessions),
            ("account", self._stored.accounts),
            ("agreement", [each.agreement_id for each in self._stored.agreements]),
            ("endpoint", self._stored.endpoints),
            ("event", self._stored.deliveries.get(EVERYTHING, {})),
        ):
            for number, each in enumerate(ids, start=1):
                self._names.setdefault(each, f"{kind} {number}")
        for page in self._stored.pages:
            if page.card:
                token = token_of(page.request.merchant_account, page.card)
                self._names.setdefault(token, f"the card of {self._names[page.request.token_id]}")
        self._invariants.check(self._stored, self._clock.now())

    def _require_logged(self, *, may_lack: bool) -> None:
        """Raise Broken unless the log reports each removal or withdrawal of consent by a guest.

        The audit trail has an entry for each of them. With `may_lack`, lines may be missing,
        because a fault after the commit can prevent a line.
        """
        actions = {"card_removed": "card.removed", "consent_withdrawn": "consent.withdrawn"}
        logged = Counter(
            (actions[line["event"]], line["account_id"])
            for line in self._log_lines
            if line["event"] in actions and line.get("caller", GUEST) == GUEST
        )
        noted = self._stored.taken_back
        require(logged <= noted, "I10", f"the log tells of what did not happen: {logged - noted}")
        if may_lack:
            self._unlogged = noted - logged
        require(noted - logged == self._unlogged, "I10", f"the log lacks {noted - logged}")

    def _call(
        self,
        what: str,
        process: Process,
        act: Callable[[], Returned],
        describe: Callable[[Returned], str] = lambda _: "done",
    ) -> Returned | Exception:
        """Let a process do something. Return the result, or the error that it raised."""
        step = self._faults.steps[-1]
        self._log(f"{what} ({process.name})")
        try:
            result = act()
        except ERRORS as raised:
            self._log_result(str(raised) or type(raised).__name__)
            is_expected = step.had_fault or not isinstance(raised, ServiceUnavailable)
            require(is_expected, "I4", "the service was unavailable without a fault")
            return raised
        self._log_result(describe(result))
        return result

    def _under_way(
        self, things: Sequence[tuple[TokenId, Thing]]
    ) -> Sequence[tuple[TokenId, Thing]]:
        """Return the pairs whose session is open. The first item of each pair is the session."""
        return [each for each in things if self._stored.sessions[each[0]].status == "open"]

    def _events(self) -> Sequence[Event]:
        rows = self._psp._database.read(
            "SELECT body FROM events WHERE body ->> '$.page' IS NOT NULL ORDER BY rowid", ()
        )
        return [msgspec.json.decode(str(row["body"]), type=Event) for row in rows]

    def _deliver(
        self, process: Process, event: Event, *, is_altered: bool = False, is_old: bool = False
    ) -> None:
        delivery = self._signed(event, self._clock.now() - timedelta(minutes=10) * is_old)
        if is_altered:
            body = delivery.body.replace(b'"type":"', b'"type":"!')
            delivery = replace(delivery, body=body)
        is_wrong = is_altered or is_old
        result = self._call(
            f"a webhook{', not to be trusted,' * is_wrong} comes: {event.type} for "
            f"{self._names.get(event.token_id, event.token_id)}",
            process,
            lambda: process.use_cases.receive_webhook(FAKE, delivery),
        )
        if not isinstance(result, ServiceUnavailable):
            is_rejected = isinstance(result, WebhookRejected)
            require(is_rejected == is_wrong, "F33", "a webhook was judged wrongly")
        if not isinstance(result, Exception):
            self._require_evidence(event.token_id, "webhook")

    def _signed(self, event: Event | CardEvent, at: datetime) -> WebhookDelivery:
        body = batch(msgspec.json.encode(event))
        signature = signatures.sign(body, secret=self._psp.webhook_secret, now=at)
        return WebhookDelivery(headers={signatures.HEADER: signature}, body=body)

    def _send(self, process: Process, visit: Visit, guest: Guest | None = None) -> None:
        """Send the request of a visit, or the same request for another guest."""
        guest = guest or visit.guest
        address = visit.request.billing_info and _address_of(guest)
        request = replace(visit.request, guest_id=guest.id, billing_info=address)
        key = request.idempotency_key
        self._known.sends[visit.redirect_uri] += 1
        self._known.sent_for[visit.redirect_uri].add(guest.id)
        answered = visit.session
        result = self._call(
            f"{visit.caller.name} asks to add a card of {guest.first_name} at {visit.center.name}, "
            f"visit {visit.number}{' with a key' * bool(key)}",
            process,
            lambda: process.use_cases.add_card(visit.caller, request),
            lambda started: f"session {started.session.token_id}",
        )
        if isinstance(result, IdempotencyKeyReused):
            for_others = self._known.sent_for[visit.redirect_uri] - {guest.id}
            is_excused = for_others or guest.id in self._observer.read().erasures
            require(is_excused, "I1", "a repeated request was refused")
        if isinstance(result, Exception):
            return
        require(visit.caller.sees(visit.center.id), "I5", "the center is out of the caller's reach")
        first, session = visit.session, result.session
        if key and first and self._clock.now() - first.created_at < KEYS_LAST:
            # The guest may have been merged after the first request.
            heir = self._observer.read().heir_of(first.guest_id)
            is_same = (first.token_id, heir) == (session.token_id, guest.id)
            require(is_same, "I1", "a repeated request started a second session")
            # If another request was answered during this one, this one may have been stored first.
            is_repeat = answered is not None and answered.token_id == first.token_id
            require(result.is_replayed or not is_repeat, "I1", "a repeat was not called one")
        visit.session = session
        self._visit_of[session.token_id] = replace(visit, guest=guest)
        self._known.started[session.token_id] = (guest.id, visit.center.id, visit.redirect_uri)
        self._check()

    def _list_cards(self, process: Process, caller: Caller, guest: Guest) -> None:
        removed = frozenset(self._known.removed)
        result = self._call(
            f"{caller.name} lists the cards of {guest.first_name}",
            process,
            lambda: process.use_cases.list_accounts(
                caller, guest_id=guest.id, center_ids=(), page=PageRequest(size=100)
            ),
            lambda page: f"{page.total} cards",
        )
        for account in () if isinstance(result, Exception) else result.items:
            is_theirs = account.guest_id == guest.id and caller.sees(account.center_id)
            require(is_theirs, "I5", "a client was shown a card that it may not see")
            require(account.account_id not in removed, "I1", "a removed card was shown")

    def _cards_of_several(self) -> Sequence[AccountRow]:
        """Return the active cards of guests who have several cards at the same center."""
        active = [each for each in self._stored.accounts.values() if each.is_active]
        cards = Counter((each.guest_id, each.center_id) for each in active)
        return [each for each in active if cards[each.guest_id, each.center_id] > 1]

    def _change_card(
        self,
        what: str,
        process: Process,
        choices: Random,
        account: AccountRow,
        change: Callable[..., object],
    ) -> object:
        """Let a client change a card. The request may name a guest who does not have the card."""
        caller = choices.choice((SHOP, SHOP, KIOSK))
        guest_id = choices.choice(GUESTS).id if choices.randrange(4) == 3 else account.guest_id
        result = self._call(
            f"{caller.name} {what} {self._names[account.account_id]} of {NAMES[guest_id]}",
            process,
            lambda: change(caller, guest_id=guest_id, account_id=account.account_id),
        )
        if not isinstance(result, Exception):
            may = guest_id == account.guest_id and caller.sees(CenterId(account.center_id))
            require(may, "I5", "a client changed a card that it may not see")
        return result

    def _come_back(self, process: Process, token_id: TokenId, *, cancels: bool = False) -> None:
        visit = self._visit_of[token_id]
        use_cases = process.use_cases
        result = self._call(
            f"{visit.guest.first_name} {'cancels' if cancels else 'comes back from'} "
            f"{self._names[token_id]}",
            process,
            lambda: (
                use_cases.cancel_hosted_page(token_id=token_id)
                if cancels
                else use_cases.return_from_hosted_page(
                    token_id=token_id, parameters={"status": "success"}
                )
            ),
            lambda address: "the shop" if address == visit.redirect_uri else "the link",
        )
        not_accepted = self._observer.read().sessions[token_id].not_accepted
        is_link = f"{result}".startswith(f"{BASE_URL}/hosted-payments?token_id={token_id}")
        is_right = result == visit.redirect_uri or (is_link and not_accepted is not None)
        is_right |= isinstance(result, Exception)
        require(is_right, "S6", "a guest was not sent back to the shop")
        if not cancels and not self._faults.steps[-1].had_fault:
            self._require_evidence(token_id, "return")

    def _require_evidence(self, token_id: str, origin: str) -> None:
        stored = self._observer.read()
        session = stored.sessions.get(token_id)
        is_needed = session is not None and session.status == "open"
        is_kept = (token_id, origin) in stored.evidence
        require(is_kept or not is_needed, "I1", f"evidence of session {token_id} was dropped")

    def _operate(self, act: Callable[[WriteUnit], object]) -> None:
        with self._operator.write() as unit:
            act(unit)
            unit.commit()

    def _next_due(self, *, readings_until: datetime) -> datetime | None:
        """Return when work is due by the clock of every process, or None if no work is left.

        Refreshes of cards never end, so only refreshes until `readings_until` are included.
        """
        next_due, reading = self._stored.next_due, self._stored.next_reading
        if reading and reading <= readings_until:
            next_due = min(reading, next_due or reading)
        behind = max(timedelta(0), *(-each.clock.ahead for each in self._processes))
        return next_due and next_due + behind

    def _log(self, what: str) -> None:
        number = f"{self.steps:4}" if len(self._faults.steps) == 1 else " " * 4
        indent = "    " * max(len(self._faults.steps) - 1, 0)
        self.history.append(f"{number}  {self._clock.now():%d %H:%M:%S}  {indent}{what}")

    def _log_result(self, result: str) -> None:
        indent = "    " * max(len(self._faults.steps) - 1, 0)
        self.history.append(f"{' ' * 19}{indent}→ {result}")


Rule: TypeAlias = Callable[[Simulation, Process, Random], None]

_SHARES: Final[Mapping[Rule, int]] = {
    Simulation.a_client_adds_a_card: 3,
    Simulation.a_client_sends_again: 2,
    Simulation.a_client_looks: 1,
    Simulation.a_client_reads_events: 2,
    Simulation.a_client_removes_a_card: 2,
    Simulation.a_client_cancels_a_session: 2,
    Simulation.a_guest_changes_a_card_on_the_own_page: 2,
    Simulation.a_guest_replaces_a_card_on_the_own_page: 5,
    Simulation.a_guest_books_again: 3,
    Simulation.a_client_ends_an_agreement: 1,
    Simulation.a_client_erases_a_guest: 1,
    Simulation.a_client_merges_two_guests: 1,
    Simulation.a_client_chooses_a_default_card: 3,
    Simulation.a_guest_adds_a_removed_card_again: 2,
    Simulation.a_guest_opens_a_link: 4,
    Simulation.a_guest_types_a_card: 5,
    Simulation.a_browser_comes_back: 2,
    Simulation.a_webhook_comes: 2,
    Simulation.a_bank_changes_a_card: 4,
    Simulation.the_psp_has_trouble: 2,
    Simulation.the_psp_sends_late_webhooks: 1,
    Simulation.the_reconciler_runs: 4,
    Simulation.time_passes: 3,
    Simulation.a_process_has_a_mishap: 2,
    Simulation.a_clock_is_wrong_while_the_network_is_away: 1,
    Simulation.an_operator_changes_something: 1,
    Simulation.an_operator_changes_an_endpoint: 1,
    Simulation.an_operator_replays_an_event: 1,
    Simulation.an_operator_replays_what_was_given_up: 1,
    Simulation.an_endpoint_has_trouble: 2,
}

RULES: Final[Mapping[str, Rule]] = {rule.__name__: rule for rule in _SHARES}
"""Everything that may happen in a step, by name."""

SHARES: Final[Mapping[str, int]] = {rule.__name__: share for rule, share in _SHARES.items()}
"""How often each rule is chosen, relative to the other rules."""


def _recent(choices: Random, things: Sequence[Thing]) -> Thing:
    """Return one of the last five things, most often the last."""
    return things[-min(choices.choice((1, 1, 1, 1, 2, 3, 4, 5)), len(things))]


def _address_of(guest: Guest) -> Mapping[str, str]:
    return {**ADDRESS, "address": street_of(guest)}


def _restore_everything(unit: WriteUnit) -> None:
    put_unless_erased(unit, GUESTS)
    unit.centers.put_many(CENTERS)
    for center_id, configuration in CONFIGURATIONS.items():
        unit.configurations.put(center_id, configuration)
        unit.consent_texts.remove(center_id, "de")
    settings = unit.center_settings.get(GARDEN.id)
    unit.center_settings.put(GARDEN.id, replace(settings, time_zone="Europe/Berlin"))
    unit.reservation_texts.put(GARDEN.id, shipped_reservation_texts()["en"])


def _delete(unit: Any, table: str, identifier: str) -> None:
    """Delete a row by hand, because no repository removes guests or centers."""
    transaction_of(unit).execute(f"DELETE FROM {table} WHERE id = :id", {"id": identifier})


def _number_ending(last_four: str) -> str:
    return next(number for number in TEST_CARDS if number.endswith(last_four))


def _make_all_cards_due(unit: WriteUnit) -> None:
    transaction_of(unit).execute(
        "UPDATE payment_accounts SET due_at = '2000-01-01T00:00:00.000000+00:00' "
        "WHERE removed_at IS NULL",
        {},
    )
