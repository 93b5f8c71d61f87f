"""The plugin and the adapter for Acme, a PSP with a simple JSON API."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote

import msgspec

from adapters.psp.fields import AwareTime, LastFour, Month, Year
from adapters.psp.http import Gone, JsonApi
from adapters.psp.plugin import PspPlugin, Surroundings
from adapters.psp.settings import AccountSettings, keys_of, values_of
from adapters.psp.webhooks import decode_webhook, is_recent, is_signed, require_secrets
from domain.billing import AvsResult
from domain.identifiers import DEFAULT_MERCHANT_ACCOUNT as DEFAULT
from domain.identifiers import CardToken, GuestReference, MerchantAccount, ProviderName, TokenId
from domain.outside import Clock
from domain.psps import hosted_page as pages
from domain.psps.capabilities import Capabilities
from domain.psps.card import Card, CardReading
from domain.psps.evidence import Evidence
from domain.psps.payment_provider import PaymentProvider, ProviderUnavailable, WebhookRejected
from domain.psps.webhook import WebhookDelivery, WebhookNotice

SECRETS = ("API_KEY", "WEBHOOK_SECRETS")
ACCOUNTS = AccountSettings(
    psp="acme", required=("URL", *SECRETS), distinct=SECRETS, addresses=("URL",)
)
NAMES = {"card_logo": "brand", "last_four": "last4", "expiry_month": "month", "expiry_year": "year"}


class AcmeCard(msgspec.Struct, rename=NAMES):
    token: CardToken
    fingerprint: str
    card_logo: str
    last_four: LastFour
    expiry_month: Month
    expiry_year: Year


class AcmeReading(msgspec.Struct):
    as_of: AwareTime
    card: AcmeCard | None  # None once it was deleted; 404 if Acme never had it


class AcmePage(msgspec.Struct):
    id: str
    reference: str
    url: str
    guest: GuestReference
    ends_at: AwareTime
    status: Literal["open", "refused", "challenged", "done", "closed"]
    avs: AvsResult = AvsResult.NOT_CHECKED
    card: AcmeCard | None = None
    typed_at: AwareTime | None = None
    refusal: str | None = None


class AcmeEvent(msgspec.Struct):
    id: str
    reference: str | None = None
    card: CardToken | None = None


PAGE, EVENTS = msgspec.json.Decoder(AcmePage), msgspec.json.Decoder(list[AcmeEvent])
READING = msgspec.json.Decoder(AcmeReading)


@dataclass(frozen=True)
class Keys:
    url: str
    api_key: str = field(repr=False)
    webhook_secrets: Sequence[str] = field(repr=False)


class AcmeProvider(PaymentProvider):
    def __init__(self, accounts: Mapping[MerchantAccount, Keys], clock: Clock) -> None:
        for keys in accounts.values():
            require_secrets(keys.webhook_secrets)
        self._accounts, self._clock = accounts, clock

    def _api(self, account: MerchantAccount) -> JsonApi:
        keys = keys_of(self._accounts, account)
        return JsonApi(keys.url, headers={"Authorization": f"Bearer {keys.api_key}"})

    def start(self, request: pages.HostedPageRequest) -> pages.HostedPage:
        key = {"Idempotency-Key": request.idempotency_key}
        with self._api(request.merchant_account) as api:
            page = api.ask(PAGE, "POST", "/pages", json=self._body(request), headers=key)
        return self._page(request, page)

    def _body(self, request: pages.HostedPageRequest) -> Mapping[str, object]:
        return {
            "reference": request.idempotency_key,
            "guest": request.guest_reference,  # for None or an unknown guest, Acme creates one
            "guest_name": request.guest_name or None,  # empty when the page must not show it
            "guest_email": request.guest_email,
            "language": request.language,
            "address": request.billing_info,
            "verify_address": request.avs,
            "ways_out": {"done": request.return_uri, "cancel": request.cancel_uri},
            "consent": request.consent.text,
            "live_until": request.live_until,
        }

    def _page(self, request: pages.HostedPageRequest, page: AcmePage) -> pages.HostedPage:
        if page.reference != request.idempotency_key:
            raise ProviderUnavailable("the response is about another page")
        return pages.HostedPage(
            reference=page.id, address=page.url, ends_at=page.ends_at, guest_reference=page.guest
        )

    def outcome(
        self,
        request: pages.HostedPageRequest,
        page: pages.HostedPage,
        evidence: Sequence[Evidence],
    ) -> pages.Outcome:
        with self._api(request.merchant_account) as api:
            found = api.ask(PAGE, "GET", f"/pages/{quote(page.reference, safe='')}")
        if found.id != page.reference:
            raise ProviderUnavailable("the response is about another page")
        return self._outcome(found)

    def _outcome(self, found: AcmePage) -> pages.Outcome:
        if found.card and found.typed_at:
            card = self._card(found.guest, found.card)
            return pages.CardCollected(card=card, avs=found.avs, collected_at=found.typed_at)
        if found.card:
            raise ProviderUnavailable("the response does not match")
        if found.status in ("done", "closed"):  # done without a card: the card was discarded
            return pages.PageClosed()
        if found.status == "refused":
            return pages.CardRefused(refusal_code=found.refusal)
        return pages.Pending()

    def close(self, request: pages.HostedPageRequest, page: pages.HostedPage) -> None:
        with self._api(request.merchant_account) as api:
            api.ask(PAGE, "POST", f"/pages/{quote(page.reference, safe='')}/close")

    def _card(self, guest: GuestReference, card: AcmeCard) -> Card:
        return Card(guest_reference=guest, **msgspec.structs.asdict(card))

    def read_card(
        self, merchant_account: MerchantAccount, guest_reference: GuestReference, token: CardToken
    ) -> CardReading:
        with self._api(merchant_account) as api:
            found = api.ask(READING, "GET", self._path(guest_reference, token))
        if found.card is None:
            return CardReading(card=None, read_at=found.as_of)
        if found.card.token != token:
            raise ProviderUnavailable("the response is about another card")
        return CardReading(card=self._card(guest_reference, found.card), read_at=found.as_of)

    def _path(self, guest: GuestReference, token: CardToken) -> str:
        return f"/guests/{quote(guest, safe='')}/cards/{quote(token, safe='')}"

    def discard(
        self, merchant_account: MerchantAccount, guest_reference: GuestReference, token: CardToken
    ) -> None:
        with suppress(Gone), self._api(merchant_account) as api:
            api.call("DELETE", self._path(guest_reference, token))

    def read_webhook(self, delivery: WebhookDelivery) -> Sequence[WebhookNotice]:
        account = self._verified(delivery)
        return [
            WebhookNotice(
                merchant_account=account,
                content=each.id,
                token_id=TokenId(each.reference.partition(":")[0]) if each.reference else None,
                card_token=each.card,
            )
            for each in decode_webhook(EVENTS, delivery.body)
            if each.reference is not None or each.card is not None
        ]

    def _verified(self, delivery: WebhookDelivery) -> MerchantAccount:
        account = delivery.merchant_account or DEFAULT
        time, _, signature = delivery.headers.get("acme-signature", "").partition(".")
        signed = time.encode(errors="replace") + b"." + delivery.body
        secrets = keys_of(self._accounts, account).webhook_secrets
        if not is_signed(signed, [signature], secrets) or not is_recent(time, self._clock.now()):
            raise WebhookRejected("not signed by Acme in the last minutes")
        return account


def read(here: Surroundings) -> Mapping[MerchantAccount, Keys] | None:
    return {
        account: Keys(own["URL"], own["API_KEY"], values_of(own["WEBHOOK_SECRETS"]))
        for account, own in ACCOUNTS.read(here.environment).items()
    } or None


PLUGIN = PspPlugin(
    interface=3,
    name=ProviderName("acme"),
    capabilities=Capabilities(max_consent_length=2000, reads_cards=True),
    account_settings=ACCOUNTS,
    read=read,
    accounts=lambda accounts: accounts.keys(),
    how_to_set_up=ACCOUNTS.how_to_set,
    make=lambda accounts, clock, ids: AcmeProvider(accounts, clock),
)
