"""Verify Stripe's webhooks by their raw bytes, and find the session, card or guest in them.

The SDK's `construct_event` is not used. It reads the machine's clock instead of the port's clock,
accepts any time in the future, knows only one secret, and returns unchecked objects. A signature is
the HMAC-SHA256 of `<t>.<body>` ("Verify webhook signatures manually").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

import msgspec

from adapters.psp.webhooks import decode_webhook, is_recent, is_signed
from adapters.stripe.keys import StripeKeys
from adapters.stripe.payloads import TOKEN_ID
from domain.identifiers import CardToken, GuestReference, MerchantAccount, TokenId
from domain.psps.evidence import Evidence, EvidenceOrigin
from domain.psps.payment_provider import WebhookRejected
from domain.psps.webhook import WebhookDelivery, WebhookNotice

HEADER: Final = "stripe-signature"

COMPLETED: Final = "checkout.session.completed"
PAGE_EVENTS: Final = frozenset({COMPLETED, "checkout.session.expired"})
REFUSED: Final = "setup_intent.setup_failed"
INTENT_EVENTS: Final = frozenset({REFUSED})
CARD_EVENTS: Final = frozenset(
    {
        "payment_method.automatically_updated",
        "payment_method.detached",
        "payment_method.updated",
    }
)
GUEST_EVENTS: Final = frozenset({"customer.deleted"})
EVENTS: Final = PAGE_EVENTS | INTENT_EVENTS | CARD_EVENTS | GUEST_EVENTS

_TIME: Final = re.compile(r"[0-9]{1,12}")


class _Head(msgspec.Struct):
    """The fields that all events have. `account` is set only for a connected account."""

    id: str
    type: str
    livemode: bool
    account: str | None = None


class _Object(msgspec.Struct):
    """The Checkout Session, SetupIntent, PaymentMethod or Customer that an event is about."""

    id: str
    metadata: dict[str, str] | None = None


class _Data(msgspec.Struct):
    object: _Object


class _Body(msgspec.Struct):
    data: _Data


_HEAD: Final = msgspec.json.Decoder(_Head)
_BODY: Final = msgspec.json.Decoder(_Body)


def read(
    delivery: WebhookDelivery, account: MerchantAccount, keys: StripeKeys, *, now: datetime
) -> Sequence[WebhookNotice]:
    """Return a notice about the session, card or guest of an event. Raises WebhookRejected.

    Return an empty sequence for an event about anything else. It must be accepted, because a
    merchant may use the account for other purposes, and Stripe disables an endpoint that refuses
    events.
    """
    _require_signature(delivery, keys, now)
    head = decode_webhook(_HEAD, delivery.body)
    if head.livemode is not keys.is_live:
        raise WebhookRejected("not in the mode of the key (test or live)")
    if head.account is not None:
        raise WebhookRejected("meant for a connected account of Stripe")
    if head.type not in EVENTS:
        return ()
    subject = decode_webhook(_BODY, delivery.body).data.object
    content = f"{head.type} {head.id} {subject.id}"
    notice = WebhookNotice(merchant_account=account, content=content)
    if head.type in CARD_EVENTS:
        return (replace(notice, card_token=CardToken(subject.id)),)
    if head.type in GUEST_EVENTS:
        return (replace(notice, guest_reference=GuestReference(subject.id)),)
    token_id = (subject.metadata or {}).get(TOKEN_ID)
    if token_id is None:
        return ()
    return (
        replace(
            notice,
            token_id=TokenId(token_id),
            page_reference=subject.id if head.type in PAGE_EVENTS else None,
        ),
    )


def completed_at(evidence: Sequence[Evidence], page: str) -> datetime | None:
    """Return when a webhook first reported the completion of a page, or None.

    Evidence that an earlier release stored does not identify a page, and is ignored.
    """
    return min(_times(COMPLETED, evidence, about=page), default=None)


def refused_cards(evidence: Sequence[Evidence], *, since: datetime) -> int:
    """Return how many webhooks have reported a refused card since the time `since`."""
    return sum(time >= since for time in _times(REFUSED, evidence))


def _times(event: str, evidence: Sequence[Evidence], *, about: str = "") -> list[datetime]:
    """Return when the webhooks of one type of event arrived.

    `about` limits them to events about one object. The evidence contains each event once.
    """
    return [
        each.received_at
        for each in evidence
        if each.origin is EvidenceOrigin.WEBHOOK
        and each.content.startswith(f"{event} ")
        and (not about or each.content.endswith(f" {about}"))
    ]


def _require_signature(delivery: WebhookDelivery, keys: StripeKeys, now: datetime) -> None:
    """Raise WebhookRejected unless the body was signed recently with one of the account's secrets.

    The header contains one time. While a secret is being rolled, it contains several signatures.
    """
    parts = [part.partition("=") for part in delivery.headers.get(HEADER, "").split(",")]
    times = [value for name, _, value in parts if name == "t" and _TIME.fullmatch(value)]
    if len(times) != 1:
        raise WebhookRejected("not signed by Stripe")
    signed = f"{times[0]}.".encode() + delivery.body
    given = [value for name, _, value in parts if name == "v1"]
    if not is_signed(signed, given, keys.webhook_secrets):
        raise WebhookRejected("not signed by Stripe with a secret of this merchant account")
    if not is_recent(int(times[0]), now):
        raise WebhookRejected("signed by Stripe too long ago, or too far ahead")
