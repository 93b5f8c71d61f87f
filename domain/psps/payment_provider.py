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
    """Details of a failed call that may be logged.

    The details must not contain a guest's data, secrets or free text from the PSP.

    - `error`: the kind of failure, such as `TimeoutError`.
    - `status`: the HTTP status.
    - `code`: the PSP's error code.
    - `param`: the rejected parameter.
    - `request_id`: the PSP's id of the call.
    """

    error: str | None = None
    status: int | None = None
    code: str | None = None
    param: str | None = None
    request_id: str | None = None


NO_DETAILS: Final = FailureDetails()


class ProviderUnavailable(Exception):
    """The PSP did not respond, or its response is not usable. The call may have taken effect.

    `retry_after` is set if the PSP stated how long to wait before the next call (429, Retry-After).
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

    `details` are logged when the PSP begins to reject calls. If `start` created or changed the
    guest at the PSP before the rejection, `guest_reference` is the PSP's reference for the guest.
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
    """The PSP does not know a page, a token or a guest, or does not know the object yet.

    A PSP may need some time until all of its machines know a new object. A single response of this
    kind is therefore not conclusive; see `is_confirmed`.
    """


UNKNOWN_FOR: Final = timedelta(minutes=10)
"""How long a PSP must keep answering that it does not know an object. After that, the object counts
as gone.

No PSP is known to need longer until all of its machines know a new object.
"""


def is_confirmed(unknown_since: datetime | None, now: datetime) -> bool:
    """Return whether NotFound was first raised at least 10 minutes ago, and is therefore final.

    `unknown_since` is when NotFound was first raised for the object, provided that every response
    since then was NotFound too. It is None if this is the first NotFound.
    """
    return unknown_since is not None and now - unknown_since >= UNKNOWN_FOR


class WebhookRejected(Exception):
    """The webhook is forged, altered, too old, dated in the future, or for another merchant."""


class PaymentProvider(Protocol):
    """A payment service provider (PSP), in the domain's terms.

    An adapter only reports; it does not make decisions. A card that the bank declines is an
    outcome, not an error.

    After any failure, a method may be called again with the same arguments. Each call takes at most
    5 seconds in all. It raises ProviderUnavailable if there is no usable response, and
    ProviderRefused if the PSP rejects the call itself. Callers treat ProviderRefused like an
    outage, except from `start`, from `identity`, and from `read_card` when a card is imported.

    If the PSP answers that an object was removed, that is final. If the PSP does not know an object
    (404), it may not know the object yet. In this case, `outcome`, `close`, `discard` and
    `forget_guest` raise NotFound, and the caller repeats the call until NotFound `is_confirmed`.
    """

    @property
    def return_parameters(self) -> frozenset[str]:
        """The names of the return address's query parameters that `outcome` needs as evidence."""
        return frozenset()

    def identity(self, merchant_account: MerchantAccount) -> str | None:  # noqa: ARG002 - an adapter that tells needs it
        """Return the PSP's id of the merchant that owns an account's keys. The id is not a secret.

        All keys of a merchant in one mode (live or test) have the same id, and all other keys have
        other ids. Return None, or raise ProviderRefused, if the PSP does not identify the merchant.
        """
        return None

    def start(self, request: HostedPageRequest) -> HostedPage:
        """Create the page of an attempt. A repeated call with the same request returns the same page.

        The request's `idempotency_key` identifies repeated calls. If the guest has no reference at
        the PSP, or the PSP answers that the reference was deleted, create a new reference.

        If the PSP answers that it does not know the guest's reference (404), raise NotFound. The
        caller then repeats the call. Once `is_confirmed(request.begun_at, now)` is true, create a
        new reference instead of raising NotFound.
        """
        ...

    def outcome(
        self, request: HostedPageRequest, page: HostedPage, evidence: Sequence[Evidence]
    ) -> Outcome:
        """Return the outcome of a page, based on the PSP's response and the evidence so far.

        The outcome of a page that the PSP removed is PageClosed. Do not report a card that was
        discarded at the PSP: if a restored backup lacks the record of the discard, the service
        would store the card again. After the guest was erased, the request of an ended session
        contains neither a name nor an address.
        """
        ...

    def close(self, request: HostedPageRequest, page: HostedPage) -> None:
        """Close a page, so that it can no longer collect a card.

        Also succeeds if the page has already ended or been removed.
        """
        ...

    def discard(
        self,
        merchant_account: MerchantAccount,
        guest_reference: GuestReference,
        token: CardToken,
    ) -> None:
        """Delete a stored token at the PSP. Also succeeds if the token was deleted earlier."""
        ...

    def read_card(
        self,
        merchant_account: MerchantAccount,  # noqa: ARG002 - a PSP that can needs it
        guest_reference: GuestReference,  # noqa: ARG002 - as above
        token: CardToken,  # noqa: ARG002 - as above
    ) -> CardReading:
        """Return the current state of a guest's card at the PSP.

        Changes nothing. A returned card has the same token and guest. If the card is gone, return a
        reading without a card. A card counts as gone only if the PSP confirms that it once had the
        card, and that the token was discarded or the guest was deleted.

        Raises ProviderRefused if the token belongs to another guest, or if the merchant account
        never had the token, because the keys may then belong to another merchant. Called only if
        the PSP's capabilities include `reads_cards`.
        """
        raise ProviderUnavailable("this PSP cannot read stored cards")

    def list_cards(
        self,
        merchant_account: MerchantAccount,  # noqa: ARG002 - a PSP that can needs it
        after: str | None = None,  # noqa: ARG002 - as above
    ) -> CardList:
        """Return a part of the list of cards that are stored at a merchant account.

        Changes nothing. The caller begins without `after`, and then repeats the call with the
        `place` of each result until it is None. Together, the parts contain every card that was
        stored before the first call and is not gone, each card once. Called only if the PSP's
        capabilities include `lists_cards`.
        """
        raise ProviderUnavailable("this PSP cannot list stored cards")

    def forget_guest(
        self,
        merchant_account: MerchantAccount,  # noqa: ARG002 - a PSP that can needs it
        guest_reference: GuestReference,  # noqa: ARG002 - as above
    ) -> None:
        """Delete a guest at the PSP, with the cards and all personal data.

        Also succeeds if the guest was deleted earlier. Does nothing if the PSP's capabilities do
        not include `forgets_guests`.
        """
        return

    def read_webhook(self, delivery: WebhookDelivery) -> Sequence[WebhookNotice]:
        """Verify a webhook by its raw bytes, and return a notice for each session in it.

        If the PSP's capabilities include `reads_cards`, also return a notice for each stored card
        that was changed or lost. Return an empty sequence for other events. Does not call the PSP.
        Raises WebhookRejected if the webhook cannot be trusted.
        """
        ...


class Providers(dict[ProviderName, PaymentProvider]):
    """The configured PSPs, by name. Looking up any other name raises ProviderUnavailable."""

    def __missing__(self, name: ProviderName) -> PaymentProvider:
        """Raise ProviderUnavailable, because the PSP may be configured again later."""
        raise ProviderUnavailable(f"no PSP named {name} is set up here")
