"""The PSP port for Stripe. A hosted page is a Checkout Session in `setup` mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import structlog
from typing_extensions import override

from adapters.psp.findings import Finding
from adapters.psp.http import RetryPolicy
from adapters.psp.settings import keys_of
from adapters.stripe import checks, webhooks
from adapters.stripe.calls import Call, KeySpent, NotPermitted, quiet_sdk
from adapters.stripe.keys import API_BASE, StripeKeys
from adapters.stripe.payloads import (
    BRANDING,
    CARD,
    GUEST_ID,
    Account,
    CheckoutSession,
    CurrentMethod,
    Customer,
    ListedMethods,
    RetrievedCustomer,
    Sessions,
    SessionStatus,
    StoredMethod,
    customer_parameters,
    has_restrictions,
    is_about_restrictions,
    outcome_of,
    page_of,
    page_parameters,
    without_restrictions,
)
from adapters.stripe.transport import trusted_by_the_sdk
from domain.identifiers import DEFAULT_MERCHANT_ACCOUNT, CardToken, GuestReference, MerchantAccount
from domain.outside import Clock
from domain.psps.card import CardList, CardReading
from domain.psps.evidence import Evidence
from domain.psps.hosted_page import (
    HostedPage,
    HostedPageRequest,
    NoCardCollected,
    Outcome,
)
from domain.psps.payment_provider import (
    NotFound,
    PaymentProvider,
    ProviderRefused,
    ProviderUnavailable,
    is_confirmed,
)
from domain.psps.webhook import WebhookDelivery, WebhookNotice

if TYPE_CHECKING:
    from stripe.params import PaymentMethodListParams
    from stripe.params.checkout import SessionCreateParams, SessionListParams

log = structlog.get_logger()


class StripeProvider(PaymentProvider):
    """Calls Stripe through its official SDK, with the keys of each merchant account."""

    def __init__(
        self,
        accounts: Mapping[MerchantAccount, StripeKeys],
        *,
        clock: Clock,
        api_base: str = API_BASE,
        retry_policy: RetryPolicy | None = None,
    ) -> None:
        quiet_sdk()
        self._accounts = accounts
        self._clock = clock
        self._api_base = api_base
        self._retry_policy = retry_policy or RetryPolicy()
        # The context is created once, because reading the certificates takes longer than a call.
        self._tls = trusted_by_the_sdk() if api_base.startswith("https:") else None

    @override
    def identity(self, merchant_account: MerchantAccount) -> str | None:
        """Return Stripe's id of the account, a space, and the mode, such as `acct_… live`.

        Return None if the key may not read the account.
        """
        try:
            with self._call(merchant_account) as call:
                account = call.ask(Account, call.v1.accounts.retrieve_current)
        except (NotPermitted, ProviderRefused):
            log.warning(
                "stripe_account_unknown",
                account=merchant_account,
                do="give the restricted key the permission to read its account; without it, the "
                "service cannot notice keys that belong to another account",
            )
            return None
        return f"{account.id} {self._mode(merchant_account)}"

    def check(self, account: MerchantAccount, webhooks_url: str) -> Sequence[Finding]:
        """Check the setup of a merchant account at Stripe, and return the findings for the doctor.

        The account must have keys.
        """
        with self._call(account) as call:
            urls = [webhooks_url]
            if account == DEFAULT_MERCHANT_ACCOUNT:
                urls.append(f"{webhooks_url}/{account}")
            mode, now = self._mode(account), self._clock.now()
            return checks.check(call, mode=mode, urls=urls, now=now)

    def _mode(self, account: MerchantAccount) -> str:
        return "live" if self._accounts[account].is_live else "test"

    @override
    def start(self, request: HostedPageRequest) -> HostedPage:
        account = request.merchant_account
        with self._call(account) as call:
            customer = _customer(call, request, self._clock.now())
            with _naming(customer):
                try:
                    parameters = page_parameters(
                        request, customer, self._accounts[account].currency
                    )
                    session = _created(call, request, parameters)
                    if not session.is_for(request):
                        raise ProviderUnavailable("the response is about another page")
                except KeySpent:
                    # The key no longer shows whether a page was created, but Stripe's list does. If
                    # the list has no page, there is no page that a guest could use.
                    session = _page_made_before(call, request, customer)
                if CARD not in session.payment_method_types:
                    log.error(
                        "stripe_takes_no_cards",
                        account=account,
                        do="switch on cards in Stripe's dashboard: Settings, Payment methods",
                    )
                    with suppress(ProviderRefused):  # An earlier try has closed it.
                        call.ask(CheckoutSession, call.v1.checkout.sessions.expire, session.id)
                    raise ProviderRefused("Stripe created a page that does not accept cards")
        return page_of(session, customer)

    @override
    def outcome(
        self, request: HostedPageRequest, page: HostedPage, evidence: Sequence[Evidence]
    ) -> Outcome:
        with self._call(request.merchant_account) as call:
            session = call.ask(
                CheckoutSession,
                call.v1.checkout.sessions.retrieve,
                page.reference,
                {
                    "expand": [
                        "setup_intent.payment_method",
                        "setup_intent.latest_attempt",
                        "customer",
                    ]
                },
            )
        if session.id != page.reference or not session.is_for(request):
            raise ProviderUnavailable("the response is about another page")
        outcome = outcome_of(
            session,
            page,
            completed_at=webhooks.completed_at(evidence, page.reference),
            now=self._clock.now(),
        )
        if isinstance(outcome, NoCardCollected) and outcome.missing is None:
            log.warning(
                "stripe_collected_no_card",
                account=request.merchant_account,
                do="switch off Link in Stripe's dashboard: Settings, Payment methods",
            )
        # The SetupIntent reports only the last card, but there is an event for each refused card.
        told = webhooks.refused_cards(evidence, since=request.begun_at)
        refused_cards = max(outcome.refused_cards, told)
        return replace(outcome, refused_cards=refused_cards, refusal_code=session.refusal_code)

    @override
    def close(self, request: HostedPageRequest, page: HostedPage) -> None:
        # Stripe refuses to expire a page that is over, and a page that is being submitted. Only the
        # status distinguishes the two.
        with self._call(request.merchant_account) as call:
            session = call.ask(CheckoutSession, call.v1.checkout.sessions.retrieve, page.reference)
            if session.status is SessionStatus.OPEN:
                call.ask(CheckoutSession, call.v1.checkout.sessions.expire, page.reference)

    @override
    def discard(
        self,
        merchant_account: MerchantAccount,
        guest_reference: GuestReference,
        token: CardToken,
    ) -> None:
        # Stripe refuses to detach twice, with a text but no code, so the method is read first.
        with self._call(merchant_account) as call:
            method = call.ask(StoredMethod, call.v1.payment_methods.retrieve, token)
            if method.customer is None:
                return
            try:
                call.ask(StoredMethod, call.v1.payment_methods.detach, token)
            except ProviderRefused:
                owner = call.ask(RetrievedCustomer, call.v1.customers.retrieve, method.customer)
                if not owner.deleted:
                    raise
                # The card could only be charged for its customer, who was deleted permanently.
                log.warning("stripe_discard_ended", account=merchant_account)

    @override
    def read_card(
        self, merchant_account: MerchantAccount, guest_reference: GuestReference, token: CardToken
    ) -> CardReading:
        asked_at = self._clock.now()
        with self._call(merchant_account) as call:
            # Stripe never deletes a PaymentMethod. A 404 means that it belongs to another account
            # or mode, so it is a refusal.
            method = call.ask(
                CurrentMethod, call.v1.payment_methods.retrieve, token, {"expand": ["customer"]}
            )
        # Stripe does not report when a card was changed.
        return method.reading(guest_reference, token, at=call.time or asked_at)

    @override
    def list_cards(self, merchant_account: MerchantAccount, after: str | None = None) -> CardList:
        parameters: PaymentMethodListParams = {
            "type": CARD,
            "limit": 100,
            "expand": ["data.customer"],
            **({"starting_after": after} if after else {}),
        }
        with self._call(merchant_account) as call:
            return call.ask(ListedMethods, call.v1.payment_methods.list, parameters).cards()

    @override
    def forget_guest(
        self, merchant_account: MerchantAccount, guest_reference: GuestReference
    ) -> None:
        with self._call(merchant_account) as call:
            try:
                customer = call.ask(RetrievedCustomer, call.v1.customers.delete, guest_reference)
            except NotFound:
                # Stripe refuses to delete a customer twice, but still returns a deleted customer.
                customer = call.ask(RetrievedCustomer, call.v1.customers.retrieve, guest_reference)
            if not customer.deleted:
                raise ProviderUnavailable("the response does not say that the customer is deleted")

    @override
    def read_webhook(self, delivery: WebhookDelivery) -> Sequence[WebhookNotice]:
        account = delivery.merchant_account or DEFAULT_MERCHANT_ACCOUNT
        keys = keys_of(self._accounts, account)
        return webhooks.read(delivery, account, keys, now=self._clock.now())

    def _call(self, account: MerchantAccount) -> Call:
        keys = keys_of(self._accounts, account)
        return Call(keys, api_base=self._api_base, retry_policy=self._retry_policy, tls=self._tls)


@contextmanager
def _naming(customer: str) -> Iterator[None]:
    """Add the customer to a ProviderRefused that is raised in the `with` block.

    The customer stays at Stripe with the guest's details, so an erasure must find it.
    """
    try:
        yield
    except ProviderRefused as refused:
        refused.guest_reference = GuestReference(customer)
        raise


def _created(
    call: Call, request: HostedPageRequest, parameters: SessionCreateParams
) -> CheckoutSession:
    """Create the page of an attempt, without a logo, color or restriction that Stripe refuses.

    Restrictions of cards may be left out, because cardonfile also applies them when the card is
    settled. Required 3-D Secure is never left out, because every card would then be refused later.
    Each call has a different idempotency key, because Stripe may have saved the refusal under the
    former key.
    """
    create, key = call.v1.checkout.sessions.create, request.idempotency_key
    about = {"account": request.merchant_account, "center": request.center_id}
    while True:
        try:
            return call.ask(CheckoutSession, create, parameters, {"idempotency_key": key})
        except ProviderRefused as refused:
            param = refused.details.param or ""
            if param.startswith(BRANDING) and len(parameters[BRANDING]) > 1:
                parameters = {**parameters, BRANDING: {"display_name": request.center_name}}
                key = f"{key}:plain"
                log.error(
                    "stripe_refuses_branding",
                    **about,
                    param=param,
                    do="set another logo or color with `cardonfile center set`, or remove it",
                )
            elif is_about_restrictions(param) and has_restrictions(parameters):
                parameters = without_restrictions(parameters)
                key = f"{key}:unrestricted"
                log.error(
                    "stripe_refuses_restrictions",
                    **about,
                    param=param,
                    do="ask Stripe for the reason; until Stripe accepts the restrictions, guests "
                    "can add cards on its page that the service then refuses",
                )
            else:
                raise


def _customer(call: Call, request: HostedPageRequest, now: datetime) -> str:
    """Return the guest's customer at Stripe, which is created if it is missing or was deleted.

    The guest's details are written to the customer each time. This also shows whether the customer
    exists.
    """
    for reference in _candidates(call, request):
        try:
            if _exists(call, request, reference, now):
                return reference
        except NotFound:
            raise
        except ProviderRefused as refused:
            refused.guest_reference = GuestReference(reference)
            raise
    raise ProviderRefused("Stripe has lost the guest's customer")


def _exists(call: Call, request: HostedPageRequest, reference: str, now: datetime) -> bool:
    try:
        customer = call.ask(
            Customer, call.v1.customers.update, reference, customer_parameters(request)
        )
    except ProviderRefused as refused:
        try:
            is_gone = call.ask(RetrievedCustomer, call.v1.customers.retrieve, reference).deleted
        except NotFound:
            if not is_confirmed(request.begun_at, now):
                raise
            is_gone = True
        if isinstance(refused, NotFound) and not is_gone:
            # Some of Stripe's machines did not know the customer yet, and the details are not
            # written.
            raise
        # Stripe refuses an address or a phone number. The guest then types it in on the page.
        return not is_gone
    if customer.id != reference:
        raise ProviderUnavailable("the response is about another customer")
    return True


def _candidates(call: Call, request: HostedPageRequest) -> Iterator[str]:
    """Yield up to three customers for the guest, until the caller finds one that exists.

    1. The customer on file, if there is one.
    2. A customer created with the guest's idempotency key, so that a repeated or concurrent call
       gets the same customer. The parameters of this call never change.
    3. If that call returns a deleted customer or a fault, a customer created for this attempt.
    """
    if request.guest_reference is not None:
        yield request.guest_reference
    for key in (f"guest:{request.guest_key}", f"{request.idempotency_key}:guest"):
        with suppress(KeySpent):
            customer = call.ask(
                Customer,
                call.v1.customers.create,
                {"metadata": {GUEST_ID: request.guest_id}},
                {"idempotency_key": key},
            )
            if (customer.metadata or {}).get(GUEST_ID) != request.guest_id:
                raise ProviderUnavailable("the response is about another guest")
            yield customer.id


def _page_made_before(call: Call, request: HostedPageRequest, customer: str) -> CheckoutSession:
    """Find the page that an attempt created although Stripe returns a failure for the attempt.

    If Stripe has saved a failure under the idempotency key of the attempt, it repeats this failure
    for each further call with the key.

    Sessions that other programs of the merchant have created for the same customer are ignored.
    Raises ProviderRefused if there is no such page.
    """
    parameters: SessionListParams = {"customer": customer, "status": "open", "limit": 100}
    for session in call.ask(Sessions, call.v1.checkout.sessions.list, parameters).data:
        if session.is_for(request):
            return session
    raise ProviderRefused("the idempotency key returns a failure, and no page was created with it")
