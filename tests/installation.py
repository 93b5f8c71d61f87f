"""A whole installation in a folder. All parts are real, but tests set clock, ids and PSP faults."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from dependency_injector import providers
from falcon import testing
from typing_extensions import override

from adapters.fake_psp import signatures
from adapters.fake_psp.cards import CardEntry
from adapters.fake_psp.plugin import NAME as FAKE
from adapters.fake_psp.provider import FakeProvider
from adapters.fake_psp.psp import PspPage
from adapters.psp_suite.clock import SettableClock
from adapters.psp_suite.ids import SeededIds
from adapters.psp_suite.samples import GUEST_ID, a_page_request
from adapters.sqlite.storage import SqliteStorage
from domain.access.token import AccessToken
from domain.cards.account import Account
from domain.centers.center import Center
from domain.centers.payment_configuration import PaymentConfiguration
from domain.consents.given_consent import GivenConsent
from domain.events.event import ENDPOINT_TYPES, Event, EventDelivery, EventEndpoint
from domain.events.event_list import EventFilter
from domain.guests.guest import Guest
from domain.identifiers import (
    AccountId,
    CallerName,
    CardToken,
    CenterId,
    GuestId,
    GuestReference,
    MerchantAccount,
    ProviderName,
    TokenId,
)
from domain.pagination import PageRequest
from domain.permissions import Caller, Permission
from domain.psps.card import Card, Funding
from domain.psps.evidence import Evidence
from domain.psps.hosted_page import HostedPageRequest
from domain.psps.payment_provider import (
    NotFound,
    PaymentProvider,
    ProviderRefused,
    ProviderUnavailable,
)
from domain.psps.webhook import WebhookDelivery
from domain.sessions.request import AddCardRequest
from domain.sessions.session import CardSession
from domain.storage import RecordUnreadable, WriteUnit
from entrypoints.container import Container, build
from entrypoints.psps import InstalledPsp
from entrypoints.settings import OFF, Settings
from entrypoints.worker.reconcile import reconcile_until_idle
from entrypoints.worker.reports import Done
from tests.bank import update_card
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center, a_guest
from tests.databases import change_by_hand, committed, make_database
from tests.use_cases import UseCases
from tests.waiting import LIMIT_SECONDS

BASE_URL: Final = "http://127.0.0.1:8000"
REDIRECT_URI: Final = "https://shop.example/cards?from=spa"
MERCHANT: Final = MerchantAccount("default")
GOOD_CARD: Final = "4242424242424242"
OTHER_GOOD_CARD: Final = "5555555555554444"
PREPAID_CARD: Final = "5105105105105100"
MISMATCHING_CARD: Final = "4000000000000010"
DECLINED_CARD: Final = "4000000000000002"
CHALLENGED_CARD: Final = "4000000000003220"

EVIDENCE_KEYS: Final = (
    '{"keys": [{"kty": "OKP", "crv": "Ed25519", '
    '"d": "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A", '
    '"x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}'
)
"""The key that RFC 8037, appendix A, publishes."""

NO_PREPAID: Final[dict[str, Any]] = {  # fields of PaymentConfiguration
    "refuse_funding": frozenset({Funding.PREPAID}),
    "acquirer_agreed": True,
}

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def psps_that(
    psps: Mapping[ProviderName, InstalledPsp],
    **capabilities: Any,  # as replace takes them
) -> Mapping[ProviderName, InstalledPsp]:
    """Return the PSPs with these capabilities changed."""
    return {
        name: replace(
            psp,
            plugin=replace(
                psp.plugin, capabilities=replace(psp.plugin.capabilities, **capabilities)
            ),
        )
        for name, psp in psps.items()
    }


CALLS: Final = (
    *("start", "outcome", "close", "discard", "read_card", "list_cards", "forget_guest"),
)
"""The methods of an adapter that send a request to the PSP."""


class Trouble(Enum):
    """How a call to a PSP may fail."""

    BEFORE_IT_ACTED = auto()
    AFTER_IT_ACTED = auto()
    REFUSED = auto()
    NOT_FOUND = auto()


class TroubledProvider:
    """Wraps the real adapter, and lets calls to the PSP fail on request.

    `calls` lists the methods that reached the PSP. `evidence` lists the evidence that was passed to
    each call of `outcome`. `before` is called before each call, with its method and merchant
    account. `meanwhile` contains functions by method. Each is called once, after the PSP has
    responded to the method.
    """

    return_parameters = frozenset({"result", "state"})

    # The methods of the adapter, until a test sets its own. The type is Any, because their
    # arguments differ.
    outcome: Callable[..., Any]
    start: Callable[..., Any]
    close: Callable[..., Any]
    forget_guest: Callable[..., Any]
    list_cards: Callable[..., Any]
    read_webhook: Callable[..., Any]

    def __init__(self, provider: FakeProvider) -> None:
        self._provider: PaymentProvider = provider
        self.psp = provider.psp
        self.trouble: dict[str, Trouble] = {}
        self.calls: list[str] = []
        self.evidence: list[tuple[str, ...]] = []
        self.meanwhile: dict[str, Callable[[], object]] = {}
        self.before: Callable[[str, MerchantAccount], object] = lambda _, __: None
        self._made_for: dict[str, HostedPageRequest] = {}

    def have(self, trouble: Trouble, *methods: str) -> None:
        """Make these methods fail until `recover`. Without `methods`, all methods fail."""
        self.trouble = dict.fromkeys(methods or CALLS, trouble)

    def recover(self) -> None:
        """End all failures."""
        self.trouble = {}

    def __getattr__(self, name: str) -> Any:  # as the adapter has it
        found = getattr(self._provider, name)
        return partial(self._call, name, found) if name in CALLS else found

    def _call(self, name: str, method: Callable[..., Any], *arguments: Any) -> object:
        first = arguments[0]
        is_for_page = isinstance(first, HostedPageRequest)
        if name in ("outcome", "close"):
            # Many PSPs find a page only by the request that it was made for.
            made_for = self._made_for.get(arguments[1].reference, first)
            assert first in (made_for, made_for.without_personal_data())
        if name == "outcome":
            self.evidence.append(tuple(each.content for each in arguments[2]))
        self.before(name, first.merchant_account if is_for_page else first)
        if self.trouble.get(name) is Trouble.BEFORE_IT_ACTED:
            raise ProviderUnavailable("timed out before the PSP received the request")
        if self.trouble.get(name) is Trouble.REFUSED:
            raise ProviderRefused("no such merchant account")
        if self.trouble.get(name) is Trouble.NOT_FOUND:
            raise NotFound("no such object, or not yet")
        self.calls.append(name)
        result = method(*arguments)
        if name == "start":
            self._made_for[result.reference] = first
        # The function is removed before it is called, because it may call the PSP itself.
        self.meanwhile.pop(name, lambda: None)()
        if self.trouble.get(name) is Trouble.AFTER_IT_ACTED:
            raise ProviderUnavailable("timed out after the PSP acted")
        return result


class Later(Executor):
    """Keeps what is submitted until it is run."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], object]] = []

    @override
    def submit(
        self,
        fn: Callable[Parameters, Returned],
        /,
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Future[Returned]:
        self._calls.append(partial(fn, *args, **kwargs))
        return Future()

    def run(self) -> int:
        """Run everything that was submitted, and return how many calls that were."""
        calls, self._calls = self._calls, []
        for call in calls:
            call()
        return len(calls)


_unused: Final[list[Container]] = []
"""The containers of installations that no longer exist."""


def _container(settings: Settings) -> Container:
    """Return a container like that of `build`. Building one is slow, so an unused one is reused."""
    if not _unused:
        return build(settings)
    container = _unused.pop()
    container.reset_singletons()
    for provider in container.providers.values():
        provider.reset_override()
    container.settings.override(settings)
    return container


class Installation:
    """One center, one guest, a caller with all permissions, and a key that signs evidence.

    The database is a new file in the folder, unless `environment` names a migrated database. The
    limits against card testing are off, unless `environment` sets them. If that value is empty, the
    default limits apply. `capabilities` replace single capabilities of every PSP.
    """

    def __init__(
        self,
        folder: Path,
        *,
        base_url: str = BASE_URL,
        busy_timeout_seconds: float = LIMIT_SECONDS,
        ids: SeededIds | None = None,
        capabilities: Mapping[str, Any] | None = None,  # as psps_that takes them
        **environment: str,
    ) -> None:
        self.clock = SettableClock()
        self.ids = ids or SeededIds()
        self.settings = Settings.read(
            {
                "CARDONFILE_DATABASE_URL": f"sqlite:///{folder / 'cards.db'}",
                "CARDONFILE_PUBLIC_BASE_URL": base_url,
                "CARDONFILE_CARD_TESTING_LIMITS": OFF,
                "CARDONFILE_EVIDENCE_KEYS": EVIDENCE_KEYS,
                **environment,
            }
        )
        psps = psps_that(self.settings.psps, **capabilities or {})
        self.settings = replace(self.settings, psps=psps)
        self.database = folder / "cards.db"
        if self.settings.database == self.database:
            make_database(self.database)
        self.container = _container(self.settings)
        weakref.finalize(self, _unused.append, self.container)
        self.container.clock.override(providers.Object(self.clock))
        self.container.ids.override(providers.Object(self.ids))
        # The last uses of tokens are written only when a test calls `token_uses.run`. No thread
        # writes them in parallel.
        self.token_uses = Later()
        self.container.token_uses.override(providers.Object(self.token_uses))
        if self.settings.database == self.database:
            in_file = SqliteStorage(self.database, busy_timeout_seconds=busy_timeout_seconds)
            self.container.storage.override(providers.Object(in_file))
        self.storage = self.container.storage()
        adapters = self.container.psp_adapters()
        fake = adapters[FAKE]
        assert isinstance(fake, FakeProvider)
        self.psp = fake.psp
        self.provider = TroubledProvider(fake)
        self.container.psp_adapters.override(providers.Object({**adapters, FAKE: self.provider}))
        self.use_cases = UseCases.of(self.container)
        self.settle = self.container.settle_session()
        self.caller = self.a_caller()
        self.has_center(a_center())
        self.has_guest(a_guest())
        self.configure()

    def close(self) -> None:
        """Close every connection."""
        self.storage.close()

    def has_center(self, center: Center) -> None:
        """Store a center."""
        with committed(self.storage) as unit:
            unit.centers.put_many([center])

    def has_other_center(self) -> None:
        """Store a second center, which takes cards through the same merchant account."""
        self.has_center(a_center(id=OTHER_CENTER_ID))
        self.configure(OTHER_CENTER_ID)

    def has_guest(self, guest: Guest) -> None:
        """Store a guest."""
        with committed(self.storage) as unit:
            unit.guests.put_many([guest])

    def loses(self, table: str) -> None:
        """Delete every row of a table, as an operator may do by hand."""
        change_by_hand(self.storage, f"DELETE FROM {table}")

    def has_endpoint(
        self, url: str = "https://shop.example/events", types: Sequence[str] = ENDPOINT_TYPES
    ) -> EventEndpoint:
        """Add an endpoint for events of all centers. Nothing is sent to the default URL."""
        return self.container.add_event_endpoint()(url=url, types=types)

    # Any: `changes` are fields of PaymentConfiguration, and of AddCardRequest below.
    def configure(self, center_id: CenterId = CENTER_ID, **changes: Any) -> None:
        """Configure payments at a center."""
        configuration = PaymentConfiguration(provider=FAKE, merchant_account=MERCHANT)
        with committed(self.storage) as unit:
            unit.configurations.put(center_id, replace(configuration, **changes))

    def unconfigure(self, center_id: CenterId = CENTER_ID) -> None:
        """Remove the payment configuration of a center."""
        with committed(self.storage) as unit:
            unit.configurations.remove(center_id)

    def a_caller(
        self, *permissions: Permission, centers: frozenset[CenterId] | None = None
    ) -> Caller:
        """Return a caller with these permissions, or with all."""
        return Caller(
            name=CallerName("web-shop"),
            permissions=frozenset(permissions or Permission),
            centers=centers,
        )

    def token_for(self, caller: Caller, *, ttl: timedelta = timedelta(hours=24)) -> str:
        """Issue an access token."""
        return self.container.issue_token()(
            caller=caller.name, permissions=caller.permissions, centers=caller.centers, lifetime=ttl
        )

    def access_tokens(self) -> Sequence[AccessToken]:
        """Return the stored access tokens."""
        with self.storage.read() as unit:
            return unit.access_tokens.all()

    def client(self) -> testing.TestClient:
        """Return a client of the HTTP application."""
        return testing.TestClient(self.container.app())

    def before_next_write(self, act: Callable[[], object]) -> None:
        """Call `act` once, just before the next write unit begins."""
        transact = self.storage.transact

        def transact_after_it(work: Callable[[WriteUnit], Returned]) -> Returned:
            self.storage.transact = transact  # type: ignore[method-assign]  # as it was
            act()
            return transact(work)

        self.storage.transact = transact_after_it  # type: ignore[method-assign]  # once

    def add_card(self, caller: Caller | None = None, **changes: Any) -> CardSession:
        """Send a valid add-card request with these `changes`, and return the session."""
        request = AddCardRequest(guest_id=GUEST_ID, center_id=CENTER_ID, redirect_uri=REDIRECT_URI)
        return self.use_cases.add_card(caller or self.caller, replace(request, **changes)).session

    def open_page(self, session: CardSession) -> str:
        """Open the link of a session. Return where the browser is redirected."""
        return self.use_cases.open_hosted_page(key=session.link_key)

    def opened_session(self, **changes: Any) -> CardSession:
        """Return a session whose page is open."""
        session = self.add_card(**changes)
        self.open_page(session)
        return self.session(session.token_id)

    def type_card(
        self,
        session: CardSession,
        number: str = GOOD_CARD,
        *,
        expiry: tuple[int, int] = (9, 2031),
        zipcode: str = "98101",
    ) -> PspPage:
        """Submit a card on the open page."""
        entry = CardEntry(
            number=number, expiry_month=expiry[0], expiry_year=expiry[1], zipcode=zipcode
        )
        return self.psp.try_card(self.page_reference(session), entry)

    def session_without_answer(
        self, trouble: Trouble = Trouble.BEFORE_IT_ACTED, **changes: Any
    ) -> CardSession:
        """Return a session after one call to the PSP to create its page. The call failed."""
        session = self.add_card(**changes)
        self.provider.have(trouble, "start")
        with suppress(ProviderUnavailable):
            self.open_page(session)
        self.provider.recover()
        return self.session(session.token_id)

    def session_with_card(
        self, number: str = GOOD_CARD, *, expiry: tuple[int, int] = (9, 2031), **changes: Any
    ) -> CardSession:
        """Return a session with an open page on which a card was typed."""
        session = self.opened_session(**changes)
        self.type_card(session, number, expiry=expiry)
        return session

    def returned_session(
        self, number: str = GOOD_CARD, *, expiry: tuple[int, int] = (9, 2031), **changes: Any
    ) -> CardSession:
        """Type a card, and return to the shop. Returns the session as it was before the card."""
        session = self.session_with_card(number, expiry=expiry, **changes)
        self.return_to_shop(session)
        return session

    def return_to_shop(self, session: CardSession, **parameters: str) -> str:
        """Return from the PSP's page. Returns the address to which the browser is redirected."""
        return self.use_cases.return_from_hosted_page(
            token_id=session.token_id, parameters=parameters, key=session.link_key
        )

    def type_card_and_return(
        self, session: CardSession, number: str = GOOD_CARD, *, expiry: tuple[int, int] = (9, 2031)
    ) -> None:
        """Submit a card on the open page, and return to the shop."""
        self.type_card(session, number, expiry=expiry)
        self.return_to_shop(session)

    def webhook(self, body: bytes | None = None) -> WebhookDelivery:
        """Return a webhook signed just now, with this body or with the PSP's next event."""
        now = self.clock.now()
        if body is None:
            event = self.psp.take_due_event(now, until=now + timedelta(minutes=1))
            assert event is not None
            body = event.body
        signature = signatures.sign(body, secret=self.psp.webhook_secret, now=now)
        return WebhookDelivery(headers={signatures.HEADER: signature}, body=body)

    def receive_webhook(self, webhook: WebhookDelivery | None = None) -> None:
        """Receive this webhook, or the next webhook from the PSP."""
        self.use_cases.receive_webhook(FAKE, webhook or self.webhook())

    def stored_card(self, number: str = GOOD_CARD, **changes: Any) -> Account:
        """Add a card through the page, and return its account.

        If the card is on file with an earlier `expiry`, its account is renewed.
        """
        session = self.returned_session(number, **changes)
        return self.account(self.session(session.token_id).account_id)

    def removed_card(self, number: str = GOOD_CARD) -> Account:
        """Store a card and remove it. Return the account as it was before the removal."""
        account = self.stored_card(number)
        self.remove_card(account)
        return account

    def remove_card(self, account: Account) -> None:
        """Remove a card as a client."""
        self.use_cases.remove_account(
            self.caller, guest_id=account.guest_id, account_id=account.account_id
        )

    def cancel_session(self, session: CardSession) -> CardSession:
        """Cancel a session as a client. Return the cancelled session."""
        return self.use_cases.cancel_session(
            self.caller, guest_id=session.guest_id, token_id=session.token_id
        )

    def erase_guest(self, guest_id: GuestId = GUEST_ID) -> None:
        """Erase a guest as a client."""
        self.container.erase_guest()(self.caller, guest_id=guest_id)

    def merge_guests(self, merged_id: GuestId, *, into: GuestId = GUEST_ID) -> None:
        """Merge two guests as a client that has read the cards of both."""
        cards = [*self.accounts(merged_id), *self.accounts(into)]
        self.use_cases.merge_guests(
            self.caller,
            guest_id=into,
            merged_id=merged_id,
            last_fours=[each.last_four for each in cards],
        )

    def session(self, token_id: TokenId) -> CardSession:
        """Read a session."""
        with self.storage.read() as unit:
            session = unit.sessions.get(token_id)
        assert session is not None
        return session

    def put_session(self, session: CardSession) -> None:
        """Store a session as another process would have left it."""
        with committed(self.storage) as unit:
            unit.sessions.update(session)

    def page_reference(self, session: CardSession) -> str:
        """Return the PSP's reference of the session's page."""
        page = self.session(session.token_id).current_attempt.page
        assert page is not None
        return page.reference

    def account(self, account_id: AccountId | None) -> Account:
        """Read an account, removed or not."""
        assert account_id is not None
        with self.storage.read() as unit:
            account = unit.accounts.get(account_id)
        assert account is not None
        return account

    def add_accounts(self, *accounts: Account) -> None:
        """Store accounts as another process would have left them."""
        with committed(self.storage) as unit:
            for account in accounts:
                unit.accounts.add(account)

    def put_account(self, account: Account) -> None:
        """Update an account as another process would have left it."""
        with committed(self.storage) as unit:
            unit.accounts.update(account)

    def consents(self, account: Account) -> Sequence[GivenConsent]:
        """Read what the guest agreed to for an account, newest first."""
        with self.storage.read() as unit:
            return unit.consents.of(account)

    def evidence(self, session: CardSession) -> Sequence[Evidence]:
        """Return the PSP's evidence about a session, oldest first."""
        with self.storage.read() as unit:
            return unit.evidence.of(session.token_id)

    def accounts(self, guest_id: GuestId = GUEST_ID) -> Sequence[Account]:
        """Read the active accounts of a guest."""
        with self.storage.read() as unit:
            return unit.accounts.page(guest_id, None, PageRequest(size=100)).items

    def deliveries(self, *, failed: bool = False) -> Sequence[EventDelivery]:
        """Read the deliveries of events, newest first. `failed` selects only failed deliveries."""
        with self.storage.read() as unit:
            return unit.event_deliveries.latest(limit=1_000, only_failed=failed)

    def events(self) -> Sequence[Event]:
        """Read the events in the order of the event list."""
        with self.storage.write() as unit:
            unit.events.number()
            unit.commit()
        with self.storage.read() as unit:
            last = unit.events.ends().last.number
            found = unit.events.between(0, last, EventFilter(), limit=1_000)
        return [each.event for each in found]

    def event_endpoints(self) -> Sequence[EventEndpoint]:
        """Read the endpoints that are not removed, oldest first."""
        with self.storage.read() as unit:
            return unit.event_endpoints.all()

    def card_at_psp(self, number: str = GOOD_CARD, guest: GuestReference | None = None) -> Card:
        """Store a card at the PSP, as another program of the merchant does."""
        request = a_page_request(
            token_id=TokenId(self.ids.uuid()),
            merchant_account=MERCHANT,
            guest_reference=guest,
            avs=False,
            live_until=self.clock.now() + timedelta(minutes=30),
        )
        page = self.psp.start_page(request).reference
        entry = CardEntry(number=number, expiry_month=9, expiry_year=2031, zipcode="98101")
        card = self.psp.try_card(page, entry).card
        assert card is not None
        return card

    def tokens_at_psp(self) -> frozenset[CardToken]:
        """Return the tokens that the PSP could charge."""
        return self.psp.tokens(MERCHANT)

    def bank_updates(
        self, account: Account, number: str = GOOD_CARD, *, expiry: tuple[int, int] = (9, 2031)
    ) -> None:
        """Give the card of an account another number or expiry date at the PSP."""
        entry = CardEntry(
            number=number, expiry_month=expiry[0], expiry_year=expiry[1], zipcode="98101"
        )
        update_card(self.psp, account.token, entry)

    def read_cards(self) -> int:
        """Refresh the due cards on file within the limits. Return how many were refreshed."""
        refresh = self.container.refresh_account()
        read = 0
        while taken := refresh.take():
            with suppress(RecordUnreadable):
                refresh(taken)
            read += 1
        return read

    def reconcile(self) -> Done:
        """Run all due jobs, one after another, and return what was done."""
        return reconcile_until_idle(self.container)
