"""The port to a payment service provider (PSP), and its errors.

Each adapter passes the suite in `adapters/psp_suite/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from domain.identifiers import CardToken, GuestReference, MerchantAccount, ProviderName
from domain.psps.card import CardList, CardReading
from domain.psps.evidence import Evidence
from domain.psps.hosted_page import HostedPage, HostedPageRequest, Outcome
from domain.psps.webhook import WebhookDelivery, WebhookNotice


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureDetails:
    """The loggable details of a failed call: no guest data, no secret, no free text of the PSP.

    `error` is the kind of failure, such as `TimeoutError`; `status` the HTTP status; `code` the
    PSP's error code; `param` the rejected parameter; `request_id` the PSP's id of the call.
    """

    error: str | None = None
    status: int | None = None
    code: str | None = None
    param: str | None = None
    request_id: str | None = None


NO_DETAILS: Final = FailureDetails()


class ProviderUnavailable(Exception):
    """The PSP did not respond, or its response is not usable. The call may have taken effect.

    `retry_after` is set if the PSP said how long to wait before the next call (429, Retry-After).
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
    """The PSP rejected the call, which had no effect. The same call would be rejected again.

    `details` are logged when an outage of this kind begins. `guest_reference` is the PSP's
    reference for the guest, if `start` created or changed the guest at the PSP before the
    rejection.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        details: FailureDetails = NO_DETAILS,
        guest_reference: GuestReference | None = None,
    ) -> None:
        super().__init__(reason)
        self.details = details
        self.guest_reference = guest_reference


class NotFound(ProviderRefused):
    """The PSP does not know the page, the token or the guest, or does not know it yet.

    A PSP may need some time until all of its machines know a new object. So a single response of
    this kind decides nothing: see `is_confirmed`.
    """


UNKNOWN_FOR: Final = timedelta(minutes=10)
"""How long a PSP must keep answering that it does not know an object before the object counts as gone.

This is longer than any PSP is known to need until all of its machines know a new object.
"""


def is_confirmed(unknown_since: datetime | None, now: datetime) -> bool:
    """Return whether NotFound is final: it was first raised at least 10 minutes ago.

    `unknown_since` is when NotFound was first raised about the object, if all responses after it
    were NotFound too. None means that this is the first NotFound.
    """
    return unknown_since is not None and now - unknown_since >= UNKNOWN_FOR


class WebhookRejected(Exception):
    """The webhook is forged, altered, too old, dated in the future, or for another merchant."""


class PaymentProvider(Protocol):
    """A payment service provider (PSP), in the domain's terms.

    An adapter reports and decides nothing: a card that the bank declines is an outcome, not an
    error. Every method may be called again after any failure, and takes at most 5 seconds in all.
    It raises ProviderUnavailable if there is no usable response, and ProviderRefused if the PSP
    rejects the call itself. Callers treat ProviderRefused like an outage, except from `start`,
    `identity` and, when a card is imported, `read_card`.

    If a PSP says that an object was removed, that is final. If a PSP does not know an object (404),
    it may not know the object yet: `outcome`, `close`, `discard` and `forget_guest` then raise
    NotFound. The caller asks again until NotFound `is_confirmed`.
    """

    @property
    def return_parameters(self) -> frozenset[str]:
        """The query parameters of the return address that `outcome` needs as evidence."""
        return frozenset()

    def identity(self, merchant_account: MerchantAccount) -> str | None:  # noqa: ARG002 - an adapter that tells needs it
        """Return the PSP's id of the merchant to whom an account's keys belong; not a secret.

        All keys of one merchant in one mode (live or test) have the same id. Any other key has
        another id. None, or ProviderRefused, means that the PSP does not identify the merchant.
        """
        return None

    def start(self, request: HostedPageRequest) -> HostedPage:
        """Create the page of an attempt. The same idempotency key returns the same page again.

        A guest without a reference at the PSP, or with a reference that the PSP has deleted, gets a
        new one. If the PSP does not know the guest, raise NotFound, after which the same call is
        repeated. Once NotFound `is_confirmed`, counted from the request's `begun_at`, give the
        guest a new reference instead.
        """
        ...

    def outcome(
        self, request: HostedPageRequest, page: HostedPage, evidence: Sequence[Evidence]
    ) -> Outcome:
        """Return the outcome of a page, from the PSP's response and the evidence so far.

        A page that the PSP removed is PageClosed. A discarded card is not reported again, so that
        it cannot come back when a backup is restored. After an erasure of the guest, the request of
        an ended session holds no name and no address.
        """
        ...

    def close(self, request: HostedPageRequest, page: HostedPage) -> None:
        """Close a page so that it takes no more cards. Succeeds if the page is over or removed."""
        ...

    def discard(
        self,
        merchant_account: MerchantAccount,
        guest_reference: GuestReference,
        token: CardToken,
    ) -> None:
        """Delete a stored token at the PSP. Succeeds if the token is already gone."""
        ...

    def read_card(
        self,
        merchant_account: MerchantAccount,  # noqa: ARG002 - a PSP that can needs it
        guest_reference: GuestReference,  # noqa: ARG002 - as above
        token: CardToken,  # noqa: ARG002 - as above
    ) -> CardReading:
        """Return the current state of a guest's card, or a reading without a card if it is gone.

        Changes nothing. A returned card has the same token and guest. A card is gone only if the
        PSP says that it once had the card: the token was discarded, or the guest was deleted.

        Raises ProviderRefused if the merchant account never had the token, because the keys may
        belong to another merchant, or if the token belongs to another guest. Called only if the
        PSP's capabilities include `reads_cards`.
        """
        raise ProviderUnavailable("this PSP cannot read stored cards")

    def list_cards(
        self,
        merchant_account: MerchantAccount,  # noqa: ARG002 - a PSP that can needs it
        after: str | None = None,  # noqa: ARG002 - as above
    ) -> CardList:
        """Return some of the cards stored at a merchant account: the first cards, or those after a place.

        Changes nothing. The caller repeats the call with the place in the result, until that place
        is None. Together, the lists hold every card that was stored before the first call and is
        not gone, once each. Called only if the PSP's capabilities include `lists_cards`.
        """
        raise ProviderUnavailable("this PSP cannot list stored cards")

    def forget_guest(
        self,
        merchant_account: MerchantAccount,  # noqa: ARG002 - a PSP that can needs it
        guest_reference: GuestReference,  # noqa: ARG002 - as above
    ) -> None:
        """Delete a guest at the PSP, with the cards and all personal data.

        Succeeds if the guest is already gone. Does nothing if the PSP cannot delete guests, as its
        capabilities say.
        """
        return

    def read_webhook(self, delivery: WebhookDelivery) -> Sequence[WebhookNotice]:
        """Verify a webhook over its raw bytes, and return a notice for each session in it.

        Also return a notice for each stored card that was changed or lost, if `read_card` can read
        it. Return an empty sequence for other events. Raises WebhookRejected if the webhook cannot
        be trusted. Makes no call to the PSP.
        """
        ...


class Providers(dict[ProviderName, PaymentProvider]):
    """The configured PSPs, by name. Looking up any other raises ProviderUnavailable."""

    def __missing__(self, name: ProviderName) -> PaymentProvider:
        """Raise ProviderUnavailable: the PSP may be configured again later."""
        raise ProviderUnavailable(f"no PSP named {name} is set up here")
