"""The PSP port for Mollie.

A page is a first payment of zero, and a stored card is the mandate of that payment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import parse_qs, quote, urlsplit
from uuid import UUID

import msgspec
import structlog
from typing_extensions import override

from adapters.mollie.payloads import (
    Listed,
    Mandate,
    Methods,
    Payment,
    Resource,
    outcome_of,
    payment_body,
)
from adapters.psp.findings import Finding, compare_clocks, ok, problem, unknown
from adapters.psp.http import Gone, JsonApi, Response, RetryPolicy
from adapters.psp.settings import is_loopback, keys_of
from domain.identifiers import DEFAULT_MERCHANT_ACCOUNT, CardToken, GuestReference, MerchantAccount
from domain.outside import Clock
from domain.psps.card import CardReading
from domain.psps.evidence import Evidence
from domain.psps.hosted_page import (
    HostedPage,
    HostedPageRequest,
    NoCardCollected,
    Outcome,
    PageClosed,
)
from domain.psps.payment_provider import (
    FailureDetails,
    NotFound,
    PaymentProvider,
    ProviderRefused,
    ProviderUnavailable,
    WebhookRejected,
    is_confirmed,
)
from domain.psps.webhook import WebhookDelivery, WebhookNotice

API_BASE: Final = "https://api.mollie.com"

KEY_LIFETIME: Final = timedelta(minutes=50)
"""How long an idempotency key is used. Mollie forgets a key after an hour (Mollie's
documentation, "API idempotency"). The margin allows for an inaccurate clock of this machine.
"""

MAX_PARTS: Final = 4
"""The maximum number of parts of a list that are read. Each part has 100 objects, because a part
with more objects may exceed 1 MiB.
"""

_CLOCKS_DIFFER_BY: Final = timedelta(minutes=5)
_OBJECT: Final = re.compile(r"[a-z]{2,9}_[A-Za-z0-9]{1,64}")
_PAYMENT: Final = "tr_"

LISTED: Final = msgspec.json.Decoder(Listed)
MANDATE: Final = msgspec.json.Decoder(Mandate)
METHODS: Final = msgspec.json.Decoder(Methods)
PAYMENT: Final = msgspec.json.Decoder(Payment)
RESOURCE: Final = msgspec.json.Decoder(Resource)

log = structlog.get_logger()

_Read = TypeVar("_Read", bound=Resource)


@dataclass(frozen=True, slots=True, kw_only=True)
class MollieKeys:
    """The API key and the currency of a merchant account. The `repr` does not contain them."""

    api_key: str = field(repr=False)
    currency: str = field(repr=False)

    @property
    def mode(self) -> str:
        """The mode of the key, `test` or `live`. The two modes have no objects in common."""
        return self.api_key.partition("_")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class MollieSettings:
    """The keys of each merchant account, the address for webhooks, and the address of Mollie's API."""

    accounts: Mapping[MerchantAccount, MollieKeys]
    webhooks_url: str
    api_base: str = API_BASE


class _Call(JsonApi):
    """Sends the requests that one call to the port needs, with the key of a merchant account."""

    def __init__(self, keys: MollieKeys, api_base: str, retry_policy: RetryPolicy) -> None:
        super().__init__(
            f"{api_base}/v2",
            headers={"Authorization": f"Bearer {keys.api_key}"},
            # This is the field of the request that Mollie has refused.
            error_code=("field",),
            retry_policy=retry_policy,
        )
        self._mode = keys.mode

    @override
    def failure(self, response: Response) -> ProviderUnavailable | ProviderRefused | None:
        """Return the exception that `ask` raises for a response, or None if there is no failure.

        A fault that Mollie has saved under an idempotency key is permanent, so it becomes
        ProviderRefused. The call may have created a page before the fault, but nobody knows the
        address of that page.
        """
        is_replayed = response.headers.get("idempotent-replayed") == "true"
        if is_replayed and response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return ProviderRefused("Mollie saved a server error under the idempotency key")
        return super().failure(response)

    def one(
        self,
        decoder: msgspec.json.Decoder[_Read],
        method: str,
        path: str,
        *,
        json: object = None,
        key: str | None = None,
    ) -> _Read:
        """Send a request as `ask` does, and return one object.

        Mollie requires a UUID as the idempotency key, so `key` is converted to a UUID. Raises
        ProviderUnavailable also if the object is not in the mode of the API key.
        """
        headers = {}
        if key is not None:
            uuid = UUID(bytes=sha256(key.encode()).digest()[:16], version=4)
            headers["Idempotency-Key"] = str(uuid)
        found = self.ask(decoder, method, path, json=json, headers=headers)
        if found.mode != self._mode:
            raise ProviderUnavailable(
                "Mollie's response is not in the mode of the key (test or live)",
                details=FailureDetails(error="WrongMode"),
            )
        return found


class MollieProvider(PaymentProvider):
    """Calls Mollie's API with the keys of each merchant account."""

    def __init__(
        self, settings: MollieSettings, *, clock: Clock, retry_policy: RetryPolicy | None = None
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._retry_policy = retry_policy or RetryPolicy()

    def _mollie(self, account: MerchantAccount) -> _Call:
        keys = keys_of(self._settings.accounts, account)
        return _Call(keys, self._settings.api_base, self._retry_policy)

    @override
    def identity(self, merchant_account: MerchantAccount) -> str | None:
        """Return Mollie's id of the website profile to which the key belongs, and the mode."""
        with self._mollie(merchant_account) as mollie:
            profile = mollie.one(RESOURCE, "GET", "/profiles/me")
        return f"{profile.id} {profile.mode}"

    @override
    def start(self, request: HostedPageRequest) -> HostedPage:
        account = request.merchant_account
        with self._mollie(account) as mollie:
            now = self._clock.now()
            is_old = now - request.begun_at > KEY_LIFETIME
            customer = _customer(mollie, request, is_old=is_old, now=now)
            body = payment_body(
                request,
                customer,
                currency=self._settings.accounts[account].currency,
                webhooks_url=self._webhooks_url(account),
            )
            key = request.idempotency_key
            try:
                made = _made_before(mollie, "/payments", key, request, customer) if is_old else None
                if made is not None:
                    payment = mollie.one(PAYMENT, "GET", f"/payments/{made}")
                else:
                    payment = mollie.one(PAYMENT, "POST", "/payments", json=body, key=key)
            except ProviderRefused as refused:
                # The customer stays at Mollie, with the guest's details.
                refused.guest_reference = customer
                raise
        payment.require(request, customer)
        return payment.page(request, customer)

    def _webhooks_url(self, account: MerchantAccount) -> str | None:
        """Return the address for Mollie's webhooks.

        Return None for a loopback address, because Mollie refuses such an address.
        """
        url = self._settings.webhooks_url
        if is_loopback(url):
            return None
        return url if account == DEFAULT_MERCHANT_ACCOUNT else f"{url}/{account}"

    @override
    def outcome(
        self, request: HostedPageRequest, page: HostedPage, evidence: Sequence[Evidence]
    ) -> Outcome:
        try:
            with self._mollie(request.merchant_account) as mollie:
                payment = mollie.one(PAYMENT, "GET", _payment_path(page))
                payment.require(request, page.guest_reference, page.reference)
                mandate = None
                if payment.status == "paid":
                    if payment.mandate_id is None:
                        raise NotFound("the payment has no mandate yet")
                    mandate = _mandate(mollie, page.guest_reference, payment.mandate_id)
        except Gone:
            # The payment was removed, or the card discarded.
            return PageClosed()
        outcome = outcome_of(payment, mandate, page.guest_reference)
        if isinstance(outcome, NoCardCollected) and outcome.missing is None:
            log.warning(
                "mollie_collected_no_card",
                account=request.merchant_account,
                do="ask Mollie why this card cannot be charged without the guest",
            )
        return outcome

    @override
    def close(self, request: HostedPageRequest, page: HostedPage) -> None:
        # Each payment states whether it can be cancelled. Other payments end by themselves.
        path = _payment_path(page)
        with self._mollie(request.merchant_account) as mollie, suppress(Gone):
            if not mollie.one(PAYMENT, "GET", path).is_cancelable:
                return
            try:
                mollie.one(PAYMENT, "DELETE", path)
            except ProviderRefused:
                # The payment may be over by now, even because of this call, if its first response
                # was lost.
                if mollie.one(PAYMENT, "GET", path).is_cancelable:
                    raise

    @override
    def discard(
        self,
        merchant_account: MerchantAccount,
        guest_reference: GuestReference,
        token: CardToken,
    ) -> None:
        with self._mollie(merchant_account) as mollie, suppress(Gone):
            mollie.call("DELETE", _mandate_path(guest_reference, token))

    @override
    def read_card(
        self,
        merchant_account: MerchantAccount,
        guest_reference: GuestReference,
        token: CardToken,
    ) -> CardReading:
        asked_at = self._clock.now()
        try:
            with self._mollie(merchant_account) as mollie:
                mandate = _mandate(mollie, guest_reference, token)
        except Gone:
            # The mandate was revoked ("Get mandate"). If a mandate never existed, the response is
            # NotFound.
            return CardReading(card=None, read_at=asked_at)
        if mandate.status == "invalid":
            return CardReading(card=None, read_at=asked_at)
        if not mandate.has_card:
            raise ProviderRefused(
                "the mandate is not for a card that can be charged without the guest"
            )
        card = mandate.card(guest_reference)
        if isinstance(card, str):
            details = FailureDetails(error="Incomplete", param=card)
            raise ProviderUnavailable("the mandate lacks a detail of its card", details=details)
        return CardReading(card=card, read_at=asked_at)

    @override
    def forget_guest(
        self, merchant_account: MerchantAccount, guest_reference: GuestReference
    ) -> None:
        with self._mollie(merchant_account) as mollie, suppress(Gone):
            mollie.call("DELETE", f"/customers/{_quoted(guest_reference)}")

    @override
    def read_webhook(self, delivery: WebhookDelivery) -> Sequence[WebhookNotice]:
        # Mollie does not sign webhooks. Anybody can send a webhook, so it is only a reason to ask
        # Mollie ("Webhooks").
        account = delivery.merchant_account or DEFAULT_MERCHANT_ACCOUNT
        keys_of(self._settings.accounts, account)
        try:
            named = parse_qs(delivery.body.decode("ascii"), max_num_fields=9).get("id", [])
        except ValueError:
            named = []
        if len(named) != 1 or not _OBJECT.fullmatch(named[0]):
            raise WebhookRejected("the webhook does not name an object of Mollie")
        if not named[0].startswith(_PAYMENT):
            return ()
        return (
            WebhookNotice(
                merchant_account=account,
                content=named[0],
                page_reference=named[0],
                signed=False,
            ),
        )

    def check(self, account: MerchantAccount, webhooks_url: str) -> Sequence[Finding]:
        """Check a merchant account at Mollie, and return the findings for `cardonfile doctor`."""
        date: str | None = None
        mode = self._settings.accounts[account].mode

        def keys() -> Finding:
            nonlocal date
            response = mollie.call("GET", "/profiles/me")
            date = response.headers.get("date")
            return ok("keys", f"the API key works, in {mode} mode")

        def cards() -> Finding:
            if mollie.ask(METHODS, "GET", "/methods?sequenceType=first").take_cards:
                return ok("cards", "guests can store cards")
            how = "in Mollie's dashboard, switch on cards and recurring payments"
            return problem("cards", how)

        with self._mollie(account) as mollie:
            found = [_found("keys", keys), _found("cards", cards)]
        webhooks = ok(
            "webhooks", "each payment sends the webhook address; there is nothing to set up"
        )
        if is_loopback(webhooks_url):
            late = f"Mollie cannot call {webhooks_url}, so outcomes arrive later"
            webhooks = unknown("webhooks", late)
        return [*found, webhooks, compare_clocks(date, self._clock.now(), of="Mollie")]


def _found(about: str, ask: Callable[[], Finding]) -> Finding:
    try:
        return ask()
    except (ProviderUnavailable, ProviderRefused) as error:
        details = error.details
    if details.status == HTTPStatus.UNAUTHORIZED:
        return problem(about, "Mollie does not accept the API key: set a key that is not revoked")
    told = ", ".join(f"{part}" for part in (details.error, details.status) if part)
    return problem(
        about, f"no usable response ({told}): check the network, and Mollie's status page"
    )


def _customer(
    mollie: _Call, request: HostedPageRequest, *, is_old: bool, now: datetime
) -> GuestReference:
    """Return the guest's customer, which is created if it is missing or was deleted.

    `is_old` is True if the attempt began more than KEY_LIFETIME ago.
    """
    for customer in _candidates(mollie, request, is_old=is_old):
        if _exists(mollie, customer, request, now):
            return GuestReference(customer)
    raise ProviderRefused("Mollie has no customer for the guest")


def _candidates(mollie: _Call, request: HostedPageRequest, *, is_old: bool) -> Iterator[str]:
    """Yield customers for the guest, until the caller finds one that exists.

    1. The customer on file, if there is one.
    2. If `is_old`, the customer that an earlier call created, if there is one.
    3. A customer created with the guest's idempotency key, so that a concurrent call gets the same
       customer.
    4. A customer created with the attempt's idempotency key. It is needed if the customer of step 3
       was deleted, or if Mollie has saved a fault under the guest's key.
    """
    if request.guest_reference is not None:
        yield request.guest_reference
    if is_old:
        try:
            made = _made_before(mollie, "/customers", request.guest_key, request)
        except ProviderRefused as refused:
            # A customer may exist that the erasure did not find.
            raise ProviderUnavailable("the search for the guest's customer failed") from refused
        if made is not None:
            yield made
    for key in (f"guest:{request.guest_key}", f"{request.idempotency_key}:guest"):
        body = {"metadata": request.guest_key}
        try:
            customer = mollie.one(RESOURCE, "POST", "/customers", json=body, key=key)
        except NotFound:
            raise
        except ProviderRefused:
            # Mollie has saved a fault under the key.
            continue
        if customer.metadata != request.guest_key:
            raise ProviderUnavailable("the response is about another guest")
        yield customer.id


def _exists(mollie: _Call, reference: str, request: HostedPageRequest, now: datetime) -> bool:
    """Write the guest's details to a customer, and return whether the customer exists.

    If Mollie does not know the customer, NotFound is raised during the first 10 minutes of the
    attempt, because Mollie may not know a new customer yet. After that, or if Mollie reports that
    the customer was deleted, False is returned.
    """
    for details in ({"name": request.guest_name or None, "email": request.guest_email}, {}):
        try:
            mollie.one(RESOURCE, "PATCH", f"/customers/{_quoted(reference)}", json=details)
            break
        except Gone:
            return False
        except NotFound:
            if not is_confirmed(request.begun_at, now):
                raise
            return False
        except ProviderRefused:
            # Mollie refused the e-mail address, which the page does not need.
            continue
    return True


def _made_before(
    mollie: _Call,
    path: str,
    metadata: str,
    request: HostedPageRequest,
    customer: GuestReference | None = None,
) -> str | None:
    """Find the object that an earlier call created for the attempt, by its metadata.

    Return the id of the object, or None if there is no such object. The list at `path` begins with
    the newest object, and at most MAX_PARTS parts of the list are read. If the object may be in a
    later part, ProviderRefused is raised, because a repeated call would not find the object either.
    Giving up does no harm for a hosted page, because a page so far back in the list is over.
    """
    query = "limit=100"
    for _ in range(MAX_PARTS):
        part = mollie.ask(LISTED, "GET", f"{path}?{query}")
        for made in next(iter(part.embedded.values()), []):
            if (made.metadata, made.customer_id) == (metadata, customer):
                return made.id
            if made.created_at < request.begun_at - _CLOCKS_DIFFER_BY:
                return None
        if part.links.next is None:
            return None
        query = urlsplit(part.links.next.href).query
    raise ProviderRefused("the list is too long")


def _mandate(mollie: _Call, guest: GuestReference, token: str) -> Mandate:
    mandate = mollie.one(MANDATE, "GET", _mandate_path(guest, token))
    if mandate.id != token or mandate.customer_id not in (None, guest):
        raise ProviderUnavailable("the response is about another mandate")
    return mandate


def _payment_path(page: HostedPage) -> str:
    return f"/payments/{_quoted(page.reference)}"


def _mandate_path(guest: GuestReference, token: str) -> str:
    return f"/customers/{_quoted(guest)}/mandates/{_quoted(token)}"


def _quoted(text: str) -> str:
    return quote(text, safe="")
