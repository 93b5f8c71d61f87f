"""Every port: what the domain needs of the outside, and what an adapter promises.

What a storage and a PSP promise is asked of every adapter by a suite, in
`tests/contracts/` and `adapters/psp/contract/`; the promises of the other ports are tested beside
their adapters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeVar

from domain.access_tokens import AccessToken
from domain.card_sessions import CardSession, DueSession
from domain.centers import Center
from domain.discards import Discard
from domain.guests import Guest
from domain.hosted_pages import (
    Evidence,
    HostedPage,
    HostedPageRequest,
    Outcome,
    WebhookDelivery,
    WebhookNotice,
)
from domain.identifiers import (
    AccountId,
    CallerName,
    CardToken,
    CenterId,
    GuestId,
    GuestReference,
    MerchantAccount,
    ProviderName,
    PspAccount,
    TokenId,
)
from domain.pagination import Page, PageRequest
from domain.payment_accounts import PaymentAccount
from domain.payment_configuration import PaymentConfiguration
from domain.permissions import Caller
from domain.products import Product


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureDetails:
    """What may be logged of a call that failed: nothing of a guest, no secret, no text of the PSP.

    `error` is the kind of the failure, such as `TimeoutError`. `status` is the response's. `code`
    is the PSP's own word for the error, `param` the parameter that it complains of, `request_id`
    what its support finds the call by.
    """

    error: str | None = None
    status: int | None = None
    code: str | None = None
    param: str | None = None
    request_id: str | None = None


NO_DETAILS: Final = FailureDetails()


class ProviderUnavailable(Exception):
    """The PSP did not answer, or answered what cannot be understood; it may have acted.

    `retry_after` is set when the PSP has said how long it wants no more calls (429, Retry-After).
    `details` are logged when an outage begins.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        retry_after: timedelta | None = None,
        details: FailureDetails = NO_DETAILS,
    ) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.details = details


class ProviderRefused(Exception):
    """The PSP refused the call for good and did not act; the same call would be refused again.

    `details` are logged when calls begin to be refused.
    """

    def __init__(self, reason: str = "", *, details: FailureDetails = NO_DETAILS) -> None:
        super().__init__(reason)
        self.details = details


class WebhookRejected(Exception):
    """A webhook that is forged, altered, too old, too far ahead, or meant for somebody else."""


class PaymentProvider(Protocol):
    """A payment service provider (PSP), in the domain's words.

    An adapter reports and decides nothing: a refusal by the bank is an outcome. Every method may
    be called again after any failure, never waits longer than 5 seconds in all, raises
    ProviderUnavailable when there was no answer that can be understood, and ProviderRefused when
    the PSP refused the call itself, which for anything but `start` is waited out like silence.
    """

    @property
    def return_parameters(self) -> frozenset[str]:
        """Name the parameters of the return address that `outcome` needs as evidence."""
        return frozenset()

    def identity(self, merchant_account: MerchantAccount) -> str | None:  # noqa: ARG002 - an adapter that tells needs it
        """Tell whose keys are set for a merchant account, in the PSP's own words and no secret.

        Always the same text for the same merchant in the same mode, whichever of its keys is set,
        and another for any other. None when the PSP does not tell; ProviderRefused means the same.
        """
        return None

    def start(self, request: HostedPageRequest) -> HostedPage:
        """Make the page of an attempt; the same idempotency key gives the same page again.

        A guest whom the PSP does not know, or knows no more, gets a new reference there.
        """
        ...

    def outcome(
        self, request: HostedPageRequest, page: HostedPage, evidence: Sequence[Evidence]
    ) -> Outcome:
        """Tell what has become of a page, from the PSP's answer and the evidence so far.

        A page that the PSP does not know is closed: it can bring no card. One whose card has been
        discarded does not tell of it again: it must not come back when records are restored.
        """
        ...

    def close(self, request: HostedPageRequest, page: HostedPage) -> None:
        """Close a page so that it takes no more cards; one that is over, or unknown, is fine."""
        ...

    def discard(
        self,
        merchant_account: MerchantAccount,
        guest_reference: GuestReference,
        token: CardToken,
    ) -> None:
        """Discard a stored token; one that is gone already, or unknown, is fine."""
        ...

    def read_webhook(self, delivery: WebhookDelivery) -> Sequence[WebhookNotice]:
        """Verify a webhook over its raw bytes, and name the sessions it speaks of.

        An event of a kind that says nothing of a session gives an empty sequence. Raises
        WebhookRejected when it cannot be trusted. Makes no call to the PSP.
        """
        ...


class Providers(dict[ProviderName, PaymentProvider]):
    """The PSPs that are set up here, by name. One that is missing counts as unavailable."""

    def __missing__(self, name: ProviderName) -> PaymentProvider:
        """Raise ProviderUnavailable: the PSP may be set up again later."""
        raise ProviderUnavailable(f"no PSP named {name} is set up here")


class Centers(Protocol):
    """The centers on file."""

    def get(self, center_id: CenterId) -> Center | None:
        """Give the center, or None."""
        ...

    def put_many(self, centers: Iterable[Center]) -> None:
        """Store centers, updating those that are there. Raises DuplicateInImport."""
        ...


class Guests(Protocol):
    """The guests on file."""

    def get(self, guest_id: GuestId) -> Guest | None:
        """Give the guest, or None."""
        ...

    def put_many(self, guests: Iterable[Guest]) -> None:
        """Store guests, updating those that are there. Raises DuplicateInImport."""
        ...


class Products(Protocol):
    """The products on file, in the order of their creation within each center."""

    def page(self, center_id: CenterId, request: PageRequest) -> Page[Product]:
        """Give a page of a center's products; its cost does not grow with its number."""
        ...

    def put_many(self, products: Iterable[Product]) -> None:
        """Store products at constant memory; one that is there is updated and keeps its place.

        Raises DuplicateInImport, UnknownCenterInImport when a center does not exist, and
        CenterChangedInImport when a product is there under another center.
        """
        ...


class ImportRefused(Exception):
    """A row of an import that cannot be stored. `index` counts the rows from 0."""

    def __init__(self, index: int) -> None:
        self.index = index


class DuplicateInImport(ImportRefused):
    """The row repeats an id that an earlier row of the same import has."""


class UnknownCenterInImport(ImportRefused):
    """The row names a center that does not exist."""


class CenterChangedInImport(ImportRefused):
    """The row names a product that another center has."""


class PaymentConfigurations(Protocol):
    """What each center has set up."""

    def get(self, center_id: CenterId) -> PaymentConfiguration | None:
        """Give the center's configuration, or None when payments are not configured."""
        ...

    def put(self, center_id: CenterId, configuration: PaymentConfiguration) -> None:
        """Store the center's configuration in place of the one before."""
        ...

    def remove(self, center_id: CenterId) -> None:
        """Remove the center's configuration; nothing happens when there is none."""
        ...

    def merchant_accounts(self) -> frozenset[tuple[ProviderName, MerchantAccount]]:
        """Name the merchant accounts that centers are configured for, each with its PSP."""
        ...


class CardSessions(Protocol):
    """Card-addition sessions."""

    def add(self, session: CardSession) -> None:
        """Store a new session."""
        ...

    def get(self, token_id: TokenId) -> CardSession | None:
        """Give the session, or None. In a write unit nobody else changes it until the end."""
        ...

    def with_page(
        self, provider: ProviderName, merchant_account: MerchantAccount, page_reference: str
    ) -> CardSession | None:
        """Give the session whose current page has this reference at the PSP, or None.

        In a write unit nobody else changes it until the end.
        """
        ...

    def update(self, session: CardSession) -> None:
        """Store a session that is there already."""
        ...

    def is_any_due(self, now: datetime, *, except_at: Collection[PspAccount] = ()) -> bool:
        """Tell whether `take_due` would find a session; changes nothing."""
        ...

    def take_due(
        self, now: datetime, *, until: datetime, except_at: Collection[PspAccount] = ()
    ) -> DueSession | None:
        """Take the session that has been due the longest, or None when none is due.

        Sessions of the merchant accounts `except_at` are left where they are. The one that is
        taken is due again at `until`, so a taker that dies gives it back. A row that cannot be read
        is taken like any other: it must not keep others waiting.
        """
        ...


class EvidenceLog(Protocol):
    """What PSPs said of sessions outside of their answers."""

    def add(self, token_id: TokenId, evidence: Evidence) -> None:
        """Keep a piece of evidence once, however often it comes.

        At most 50 are kept of each origin for a session, so that no guest can crowd out webhooks.
        """
        ...

    def of(self, token_id: TokenId) -> Sequence[Evidence]:
        """Give the evidence on a session, oldest first."""
        ...


class IdempotencyKeys(Protocol):
    """Which session a caller's Idempotency-Key stands for."""

    def get(self, caller: CallerName, key: str, *, since: datetime) -> TokenId | None:
        """Give the session that the key was used for after `since`, or None."""
        ...

    def claim(
        self, caller: CallerName, key: str, token_id: TokenId, *, now: datetime, since: datetime
    ) -> TokenId:
        """Have the key stand for `token_id`, unless it was used after `since`.

        Gives the session that the key stands for now, under concurrent claims too.
        """
        ...

    def forget(self, *, before: datetime) -> int:
        """Remove keys that were used before that time, a bounded number at a call; give how many."""
        ...


class PaymentAccounts(Protocol):
    """Cards on file."""

    def add(self, account: PaymentAccount) -> None:
        """Store a new account.

        The storage itself refuses a second active one with the same guest, center, merchant
        account and fingerprint, and a second one of the same session: raises AlreadyStored.
        """
        ...

    def get(self, account_id: AccountId) -> PaymentAccount | None:
        """Give the account, removed or not, or None.

        In a write unit nobody else changes it until the end.
        """
        ...

    def update(self, account: PaymentAccount) -> None:
        """Store an account that is there already."""
        ...

    def active_at(self, guest_id: GuestId, center_id: CenterId) -> Sequence[PaymentAccount]:
        """Give the active accounts of a guest at a center, oldest first.

        In a write unit nobody else who looks first adds, changes or removes one until the end.
        """
        ...

    def is_held(
        self, provider: ProviderName, merchant_account: MerchantAccount, token: CardToken
    ) -> bool:
        """Tell whether an active account, of any guest and center, holds this token.

        In a write unit the answer stays true until the end: whoever asks for this token here, or
        for its discard, takes turns.
        """
        ...

    def page(
        self, guest_id: GuestId, centers: frozenset[CenterId] | None, request: PageRequest
    ) -> Page[PaymentAccount]:
        """Give a page of a guest's active accounts, oldest first; `centers` None means all."""
        ...


class AlreadyStored(Exception):
    """The storage holds a record that must be the only one of its kind."""


class GuestReferences(Protocol):
    """The PSPs' own references for our guests."""

    def get(
        self, provider: ProviderName, merchant_account: MerchantAccount, guest_id: GuestId
    ) -> GuestReference | None:
        """Give the reference, or None when the guest is not known there."""
        ...

    def keep(
        self,
        provider: ProviderName,
        merchant_account: MerchantAccount,
        guest_id: GuestId,
        reference: GuestReference,
    ) -> None:
        """Keep a reference in place of the one before."""
        ...


class MerchantIdentities(Protocol):
    """Whose keys each merchant account had when its PSP first told."""

    def get(self, provider: ProviderName, merchant_account: MerchantAccount) -> str | None:
        """Give the identity that is kept, or None."""
        ...

    def claim(
        self, provider: ProviderName, merchant_account: MerchantAccount, identity: str
    ) -> str:
        """Keep an identity unless there is one.

        Gives the one that is kept now, under concurrent claims too.
        """
        ...


class Discards(Protocol):
    """Tokens that are to be discarded at their PSP, and those that have been."""

    def add(self, discard: Discard) -> None:
        """Write a discard down; once is enough."""
        ...

    def get(
        self, provider: ProviderName, merchant_account: MerchantAccount, token: CardToken
    ) -> Discard | None:
        """Give the discard of a token, done or not, or None.

        In a write unit the answer stays true until the end, as with `PaymentAccounts.is_held`.
        """
        ...

    def update(self, discard: Discard) -> None:
        """Store a discard that is there already."""
        ...

    def remove(self, discard: Discard) -> None:
        """Strike a discard out: the token is kept after all."""
        ...

    def is_any_due(self, now: datetime, *, except_at: Collection[PspAccount] = ()) -> bool:
        """Tell whether `take_due` would find a discard; changes nothing."""
        ...

    def take_due(
        self, now: datetime, *, until: datetime, except_at: Collection[PspAccount] = ()
    ) -> Discard | None:
        """Take the discard that has been due the longest, or None when none is due.

        Those of the merchant accounts `except_at` are left where they are. The one that is taken
        is due again at `until`, and given with that time, so a taker that dies gives it back.
        """
        ...


class AccessTokens(Protocol):
    """Issued access tokens, by hash."""

    def add(self, token: AccessToken) -> None:
        """Store an issued token."""
        ...

    def get(self, token_hash: str) -> AccessToken | None:
        """Give the token with this hash, valid or not, or None."""
        ...

    def all(self) -> Sequence[AccessToken]:
        """Give every token, oldest first."""
        ...

    def update(self, token: AccessToken) -> None:
        """Store a token that is there already."""
        ...


class WorkerHeartbeats(Protocol):
    """When a background worker has run last, in whichever process."""

    def last(self) -> datetime | None:
        """Give the time of the last heartbeat, or None before the first."""
        ...

    def leave(self, now: datetime) -> None:
        """Note that a worker runs."""
        ...


class UnitOfWork(Protocol):
    """The repositories as one consistent whole."""

    @property
    def centers(self) -> Centers:
        """The centers."""
        ...

    @property
    def guests(self) -> Guests:
        """The guests."""
        ...

    @property
    def products(self) -> Products:
        """The products."""
        ...

    @property
    def configurations(self) -> PaymentConfigurations:
        """What each center has set up."""
        ...

    @property
    def sessions(self) -> CardSessions:
        """The card-addition sessions."""
        ...

    @property
    def evidence(self) -> EvidenceLog:
        """What PSPs said of sessions."""
        ...

    @property
    def idempotency_keys(self) -> IdempotencyKeys:
        """The idempotency keys in use."""
        ...

    @property
    def accounts(self) -> PaymentAccounts:
        """The cards on file."""
        ...

    @property
    def guest_references(self) -> GuestReferences:
        """The PSPs' own references for guests."""
        ...

    @property
    def merchant_identities(self) -> MerchantIdentities:
        """Whose keys the merchant accounts have."""
        ...

    @property
    def discards(self) -> Discards:
        """The tokens still to be discarded."""
        ...

    @property
    def access_tokens(self) -> AccessTokens:
        """The access tokens issued."""
        ...

    @property
    def worker_heartbeats(self) -> WorkerHeartbeats:
        """The heartbeats of background workers."""
        ...


class WriteUnit(UnitOfWork, Protocol):
    """A unit of work that may change records.

    What its repositories say that nobody else does meanwhile, nobody does until the unit ends:
    others wait for it.
    """

    def commit(self) -> None:
        """Make what was written durable. Without it, leaving the unit undoes everything."""
        ...


Result = TypeVar("Result")


class Storage(Protocol):
    """Where records are kept. Every use of it may raise ServiceUnavailable: nothing was written.

    There is one exception: a connection that is lost during a commit, to a database that does not
    come back within seconds, leaves it open whether the unit was kept. Every use case may therefore
    be called again after it.

    Units are short and never span a call to a PSP. They do not nest, and only a write unit writes,
    until it commits: anything else is a mistake in the program and raises RuntimeError.
    """

    def read(self) -> AbstractContextManager[UnitOfWork]:
        """Open a unit that sees one state of the records throughout and changes nothing."""
        ...

    def write(self) -> AbstractContextManager[WriteUnit]:
        """Open a unit that may change records, and keeps what it wrote once it commits.

        It is given up, with ServiceUnavailable, when others got in its way.
        """
        ...

    def transact(self, work: Callable[[WriteUnit], Result]) -> Result:
        """Do some work in a write unit of its own, and give what it gives.

        When others got in its way it is done again, a few times, from the start and in a new unit:
        it must have no effect but what it writes.
        """
        ...

    def check(self) -> None:
        """Raise ServiceUnavailable when records can not be read and written just now."""
        ...

    def close(self) -> None:
        """Let go of every connection; no unit may be open. It may be called again."""
        ...


class Identity(Protocol):
    """Tells who is behind an access token."""

    def authenticate(self, token: str) -> Caller | None:
        """Give the caller of a token, or None when it is unknown, expired or revoked."""
        ...


class PostalCodes(Protocol):
    """What is known of the postal codes of each country, by its ISO 3166-1 alpha-2 code."""

    def are_used_in(self, country_code: str) -> bool:
        """Tell whether addresses in the country have postal codes."""
        ...

    def has_format(self, country_code: str, zipcode: str) -> bool:
        """Tell whether a postal code has the country's format, whether or not it exists."""
        ...


class Clock(Protocol):
    """The time."""

    def now(self) -> datetime:
        """Give the present time, in UTC, with its time zone."""
        ...


class Ids(Protocol):
    """Identifiers and secrets that nobody can guess."""

    def uuid(self) -> str:
        """Give a new random UUID in 36-character form, lower case (RFC 9562, version 4)."""
        ...

    def secret(self) -> str:
        """Give new random text, safe in a URL, of at least 128 bits."""
        ...
