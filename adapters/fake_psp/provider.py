"""The fake PSP as an implementation of the domain's PSP port."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import msgspec
from typing_extensions import override

from adapters.fake_psp import signatures
from adapters.fake_psp.database import PspUnavailable
from adapters.fake_psp.psp import (
    CARD_REFUSED,
    LOST,
    REISSUED,
    Batch,
    CallRefused,
    CardEvent,
    Event,
    FakePsp,
    PageState,
    Unknown,
)
from adapters.psp.webhooks import decode_webhook, require_secrets
from domain.identifiers import CardToken, GuestReference, MerchantAccount, TokenId
from domain.outside import Clock
from domain.psps.card import CardList, CardReading
from domain.psps.evidence import Evidence
from domain.psps.hosted_page import (
    CardCollected,
    CardRefused,
    HostedPage,
    HostedPageRequest,
    Outcome,
    PageClosed,
    Pending,
)
from domain.psps.payment_provider import (
    NotFound,
    PaymentProvider,
    ProviderRefused,
    ProviderUnavailable,
    WebhookRejected,
)
from domain.psps.webhook import WebhookDelivery, WebhookNotice

_OF_CARDS: Final = frozenset({REISSUED, LOST})
_REPORTED = frozenset({f"page.{PageState.COMPLETED}", f"page.{PageState.CLOSED}", CARD_REFUSED})


class FakeProvider(PaymentProvider):
    """Calls the fake PSP, and translates its results and errors for the domain."""

    def __init__(
        self,
        psp: FakePsp,
        *,
        webhook_secret: str,
        earlier_webhook_secrets: Sequence[str] = (),
        clock: Clock,
    ) -> None:
        """Set the PSP, the secret for its webhooks, and earlier secrets that are still valid.

        Raises PspSettingsError for a blank secret, because anybody could sign with it.
        """
        self.psp = psp
        self._webhook_secrets = (webhook_secret, *earlier_webhook_secrets)
        require_secrets(self._webhook_secrets)
        self._clock = clock

    @override
    def start(self, request: HostedPageRequest) -> HostedPage:
        with _translated():
            page = self.psp.start_page(request)
        return HostedPage(
            reference=page.reference,
            address=f"{self.psp.base_url}/fake-psp/pages/{page.reference}",
            ends_at=page.ends_at,
            guest_reference=page.guest_reference,
        )

    @override
    def outcome(
        self, request: HostedPageRequest, page: HostedPage, evidence: Sequence[Evidence]
    ) -> Outcome:
        with _translated():
            found = self.psp.page(page.reference)
            is_held = found.card is not None and self.psp.holds(found.card.token)
        outcome: Outcome = Pending()
        match found.state:
            case PageState.COMPLETED if is_held and found.card and found.collected_at:
                outcome = CardCollected(
                    card=found.card,
                    avs=found.avs,
                    collected_at=found.collected_at,
                    network_transaction_id=f"network_{found.card.token}",
                    authenticated=found.authenticated,
                )
            case PageState.COMPLETED | PageState.CLOSED:
                outcome = PageClosed()
            case PageState.OPEN if found.refusal:
                outcome = CardRefused()
        return replace(outcome, refused_cards=found.refused_cards, refusal_code=found.last_refusal)

    @override
    def close(self, request: HostedPageRequest, page: HostedPage) -> None:
        with _translated():
            self.psp.close_page(page.reference)

    @override
    def discard(
        self,
        merchant_account: MerchantAccount,
        guest_reference: GuestReference,
        token: CardToken,
    ) -> None:
        with _translated():
            self.psp.discard(merchant_account, guest_reference, token)

    @override
    def read_card(
        self, merchant_account: MerchantAccount, guest_reference: GuestReference, token: CardToken
    ) -> CardReading:
        with _translated():
            return self.psp.read_card(merchant_account, guest_reference, token)

    @override
    def list_cards(self, merchant_account: MerchantAccount, after: str | None = None) -> CardList:
        with _translated():
            return self.psp.list_cards(merchant_account, after)

    @override
    def forget_guest(
        self, merchant_account: MerchantAccount, guest_reference: GuestReference
    ) -> None:
        with _translated():
            self.psp.forget_guest(merchant_account, guest_reference)

    @override
    def read_webhook(self, delivery: WebhookDelivery) -> Sequence[WebhookNotice]:
        signature = delivery.headers.get(signatures.HEADER, "")
        now = self._clock.now()
        secrets = self._webhook_secrets
        if not signatures.is_signed(delivery.body, signature, secrets=secrets, now=now):
            raise WebhookRejected("not signed by the fake PSP within the last minutes")
        return [
            notice
            for event in decode_webhook(_BATCH, delivery.body).events
            if (notice := _notice(event, delivery.merchant_account)) is not None
        ]


def _notice(raw: msgspec.Raw, addressee: MerchantAccount | None) -> WebhookNotice | None:
    """Return the notice for one event of a webhook, or None if the event is not of interest.

    Raises WebhookRejected. If `addressee` is None, the merchant account is taken from the event.
    This is safe because the PSP signs for all accounts with the same secret.
    """
    kind = decode_webhook(_KIND, raw).type
    if kind not in _REPORTED | _OF_CARDS:
        return None
    event: Event | CardEvent
    if kind in _OF_CARDS:
        event = decode_webhook(_CARD_EVENT, raw)
    else:
        event = decode_webhook(_EVENT, raw)
    merchant_account = MerchantAccount(event.merchant_account)
    if addressee not in (None, merchant_account):
        raise WebhookRejected("meant for another merchant account")
    if isinstance(event, CardEvent):
        return WebhookNotice(
            merchant_account=merchant_account,
            content=f"{event.type} {event.id}",
            card_token=CardToken(event.card),
        )
    return WebhookNotice(
        merchant_account=merchant_account,
        content=f"{event.type} {event.id}",
        token_id=TokenId(event.token_id),
        page_reference=event.page,
    )


class _Kind(msgspec.Struct):
    type: str


_BATCH: Final = msgspec.json.Decoder(Batch)
_CARD_EVENT: Final = msgspec.json.Decoder(CardEvent)
_EVENT: Final = msgspec.json.Decoder(Event)
_KIND: Final = msgspec.json.Decoder(_Kind)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except PspUnavailable as error:
        raise ProviderUnavailable from error
    except Unknown as error:
        raise NotFound from error
    except CallRefused as error:
        raise ProviderRefused(str(error)) from error
