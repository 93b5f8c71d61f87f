"""Cards on file, at `/api/v1/guests/{guest_id}/accounts`, and a center's cards that expire soon.

A card is added by a session, in `adapters/http/sessions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, Literal, Self

import msgspec
import structlog
from msgspec import UNSET, Meta, Struct, UnsetType

from adapters.http.centers import CENTER_ID, CENTERS
from adapters.http.examples import ACCOUNT_IDS, DATES
from adapters.http.guests import GUEST, GUEST_REFUSALS, GUEST_WITH_CARD, SAME_GUEST
from adapters.http.operations import Operation, Tag, parameter
from adapters.http.responses import (
    Done,
    LimitedAmount,
    PageInfo,
    TrueValue,
    Uuid,
    example,
    nullable_time,
    time_example,
    uuid_example,
)
from adapters.thread_safe_types import prepare
from domain import errors
from domain.cards.account import Account
from domain.cards.choose_default_card import ChooseDefaultCard
from domain.cards.queries import (
    EXPECTED_DATE,
    AccountForCaller,
    ListAccounts,
    ListExpiringCards,
    ReadAccount,
    ReadConsent,
)
from domain.cards.remove_account import RemoveAccount
from domain.outside import Clock
from domain.pagination import Page, PageRequest
from domain.permissions import Caller

log = structlog.get_logger()

ACCOUNTS: Final = GUEST + "/accounts"

ACCOUNT_ID: Final = parameter(
    "account_id",
    "path",
    "The id of the payment account, from the list of cards.",
    known=ACCOUNT_IDS,
)

_SAME_CARD: Final = {**SAME_GUEST, "account_id": "$request.path.account_id"}

_FIRST_CARD: Final = {**SAME_GUEST, "account_id": "$response.body#/accounts/0/account_id"}


class StoredCard(Struct, frozen=True, kw_only=True):
    """A card on file."""

    account_id: Annotated[Uuid, uuid_example("The id of the payment account.")]
    center_id: Annotated[Uuid, uuid_example("The center that may charge the card.")]
    card_logo: Annotated[str, example("visa", "The card scheme.")]
    last_four: Annotated[str, example("4242", "The last four digits of the card number.")]
    expiry_on: Annotated[str, example("09/31", "The month and year in which the card expires.")]
    expired: Annotated[bool, example(False, "Whether the card has expired.")] = False
    funding: Annotated[
        Literal["credit", "debit", "prepaid"] | None,
        example(
            "credit",
            "Null if the provider does not report it. The same applies to the next three fields.",
        ),
    ]
    issuer_country: Annotated[
        str | None, example("DE", "The country of the bank that issued it (ISO 3166-1 alpha-2).")
    ]
    wallet: Annotated[str | None, example("apple_pay", "The wallet from which the guest chose it.")]
    authenticated: Annotated[
        bool | None,
        example(
            True,
            "Whether the bank authenticated the guest when the card was added (3-D Secure). "
            "Null also for cards imported or added before 0.2.",
        ),
    ]
    source: Annotated[
        Literal[1, 5],
        example(1, "Where the card was added: 1 = web store, 5 = mobile.", type="integer"),
    ]
    created_at: Annotated[datetime, time_example("When the card was added.")]
    is_default: Annotated[
        bool, example(True, "Whether the card is the guest's default at the center.")
    ]
    keep_until: Annotated[
        datetime | None,
        nullable_time(
            "The time after which the card is removed, because it guarantees bookings only. Null if "
            "the guest agreed that the card is kept."
        ),
    ]

    @classmethod
    def of(cls, account: Account, now: datetime) -> Self:
        """Return the response for a card. Whether it has expired depends on `now`."""
        card = msgspec.convert(account, cls, from_attributes=True)
        return msgspec.structs.replace(card, expired=account.has_expired(now))


class ChargeableAgreement(Struct, frozen=True, kw_only=True):
    """An agreement under which the card may be charged now."""

    agreement_id: Annotated[Uuid, uuid_example("The agreement.")]
    reference: Annotated[str, example("booking-1001", "Your own name for the booking.")]
    no_show: Annotated[
        LimitedAmount | None,
        Meta(
            description=(
                "The maximum charge if the guest does not come. Null if there may be no such "
                "charge."
            )
        ),
    ]
    late_cancellation: Annotated[
        LimitedAmount | None,
        Meta(
            description=(
                "The maximum charge if the guest cancels too late. Null if there may be no "
                "such charge."
            )
        ),
    ]
    ends_at: Annotated[datetime, time_example("When the booking ends.")]
    kept_until: Annotated[
        datetime,
        time_example("The time, as the guest read it, after which charges are not allowed."),
    ]
    charge_as: Annotated[
        Literal["unscheduled", "no_show"],
        example("unscheduled", "The reason that a charge under the agreement states to the bank."),
    ]


class PaymentReference(Struct, frozen=True, kw_only=True):
    """The values that a payment needs to charge a card on file."""

    provider: Annotated[str, example("fake", "The payment service provider.")]
    merchant_account: Annotated[
        str, example("default", "The merchant account at the payment service provider.")
    ]
    guest_reference: Annotated[
        str, example("guest_5f0c", "The provider's identifier of the guest.")
    ]
    token: Annotated[str, example("card_91be", "The provider's identifier of the stored card.")]
    charge_reference: Annotated[
        str | None,
        example(
            "tr_7UhS",
            "A reference that a charge must send with the token. Null if the provider needs no such "
            "reference.",
        ),
    ]
    authenticated: Annotated[
        bool | None, Meta(description="The same as `authenticated` of the card.")
    ]
    network_transaction_id: Annotated[
        str | None,
        example(
            "396017482650318",
            "The card scheme's id of the authorization with which the card was added. "
            "Null if the provider does not report it.",
        ),
    ]
    currency: Annotated[
        str | None,
        example(
            "EUR",
            "The currency of the merchant account (ISO 4217). Null if no currency is set for it. An "
            "agreement is charged in its own currency.",
        ),
    ]
    kept_for: Annotated[
        Literal["bookings", "later_use"],
        example(
            "bookings",
            "`bookings`: the card may be charged only under `agreements`. `later_use`: also for "
            "anything else that the guest's consent allows.",
        ),
    ]
    agreements: Annotated[
        list[ChargeableAgreement],
        Meta(description="The agreements under which the card may be charged now, oldest first."),
    ]

    @classmethod
    def of(cls, found: AccountForCaller) -> Self:
        """Return the values that a payment needs, including the agreements that allow charges."""
        account = found.account
        return cls(
            provider=account.provider,
            merchant_account=account.merchant_account,
            guest_reference=account.guest_reference,
            token=account.token,
            charge_reference=account.charge_reference,
            authenticated=account.authenticated,
            network_transaction_id=account.network_transaction_id,
            currency=found.currency,
            kept_for="later_use" if account.keep_until is None else "bookings",
            agreements=[
                ChargeableAgreement(
                    agreement_id=each.agreement_id,
                    reference=each.terms.reference,
                    no_show=LimitedAmount.of(each.terms.no_show),
                    late_cancellation=LimitedAmount.of(each.terms.late_cancellation),
                    ends_at=each.terms.ends_at,
                    kept_until=each.kept_until,
                    charge_as=found.charge_as.value,
                )
                for each in found.agreements
            ],
        )


class StoredCardDetails(StoredCard, frozen=True, kw_only=True):
    """One card on file, with its payment reference if the caller may charge it."""

    success: TrueValue = True
    error: None = None
    payment_reference: Annotated[
        PaymentReference | UnsetType,
        Meta(description="Present only if the caller has `payments:use`."),
    ] = UNSET

    def with_reference(self, reference: PaymentReference) -> Self:
        """Return a copy of these details that contains `reference`."""
        return msgspec.structs.replace(self, payment_reference=reference)


class StoredCards(Struct, frozen=True, kw_only=True):
    """A page of a guest's cards on file."""

    accounts: list[StoredCard]
    page_info: PageInfo

    @classmethod
    def of(cls, page: Page[Account], now: datetime) -> StoredCards:
        """Return the response for a page of cards. Which cards have expired depends on `now`."""
        cards = [StoredCard.of(account, now) for account in page.items]
        return cls(accounts=cards, page_info=PageInfo.of(page))


class GuestConsent(Struct, frozen=True, kw_only=True):
    """The text to which a guest agreed when a card was stored."""

    version: Annotated[str, example("2026-11", "The version of the text.")]
    language: Annotated[str | None, example("en", "The language of the text (RFC 5646).")]
    text: Annotated[
        str | None,
        example(
            "By adding this card you allow …",
            "The text. Text and language are null if the session was deleted before the upgrade to "
            "0.2.",
        ),
    ]
    agreed_at: Annotated[datetime, time_example("When the guest agreed.")]


class CardConsent(GuestConsent, frozen=True, kw_only=True):
    """The current consent to a card on file, and the consents that the guest gave earlier."""

    success: TrueValue = True
    error: None = None
    earlier: Annotated[
        list[GuestConsent],
        Meta(description="The consents that the guest gave earlier, newest first."),
    ]


class ExpiringCard(StoredCard, frozen=True, kw_only=True):
    """One of a center's cards that expire before a date, with the guest whose card it is."""

    guest_id: Annotated[Uuid, uuid_example("The guest whose card it is.")]


class ExpiringCards(Struct, frozen=True, kw_only=True):
    """A page of a center's cards on file, sorted by expiry date."""

    accounts: list[ExpiringCard]
    page_info: PageInfo

    @classmethod
    def of(cls, page: Page[Account], now: datetime) -> ExpiringCards:
        """Return the response for a page of cards. Which cards have expired depends on `now`."""
        cards = [ExpiringCard.of(account, now) for account in page.items]
        return cls(accounts=cards, page_info=PageInfo.of(page))


prepare(PaymentReference, StoredCard, StoredCardDetails, ExpiringCard, GuestConsent, CardConsent)


@dataclass(frozen=True, kw_only=True)
class CardResource:
    """Read and remove cards on file, and choose the default.

    Also list a guest's cards, and a center's cards that expire soon.
    """

    list_accounts: ListAccounts
    read_account: ReadAccount
    read_consent: ReadConsent
    remove_account: RemoveAccount
    choose_default_card: ChooseDefaultCard
    list_expiring_cards: ListExpiringCards
    clock: Clock
    wake_reconciler: Callable[[], None]

    @Operation(
        method="get",
        path=ACCOUNTS,
        name="listCards",
        tag=Tag.CARDS,
        summary="List a guest's cards on file",
        description="Active cards, oldest first.",
        parameters=(
            GUEST_WITH_CARD,
            parameter("center_id", "query", "List only cards of this center."),
        ),
        calls=ListAccounts,
        ignores_unknown=True,
        links={
            "readCard": _FIRST_CARD,
            "chooseDefaultCard": _FIRST_CARD,
            "removeCard": _FIRST_CARD,
        },
        refusals=(errors.InvalidCenterId(), *GUEST_REFUSALS),
    )
    def list(
        self, caller: Caller, guest_id: str, center_id: Sequence[str], page: PageRequest
    ) -> StoredCards:
        """List the guest's cards on file."""
        found = self.list_accounts(caller, guest_id=guest_id, center_ids=center_id, page=page)
        return StoredCards.of(found, self.clock.now())

    @Operation(
        method="get",
        path=ACCOUNTS + "/{account_id}",
        name="readCard",
        tag=Tag.CARDS,
        summary="Read one card on file",
        description="A caller with `payments:use` also gets the values for charging the card.",
        parameters=(GUEST_WITH_CARD, ACCOUNT_ID),
        calls=ReadAccount,
        links={"removeCard": _SAME_CARD},
        refusals=(errors.PaymentAccountNotFound(),),
    )
    def read(self, caller: Caller, guest_id: str, account_id: str) -> StoredCardDetails:
        """Read a card on file, with its payment reference if the caller may charge it."""
        found = self.read_account(caller, guest_id=guest_id, account_id=account_id)
        card = StoredCardDetails.of(found.account, self.clock.now())
        return card.with_reference(PaymentReference.of(found)) if found.may_charge else card

    @Operation(
        method="get",
        path=ACCOUNTS + "/{account_id}/consent",
        name="readConsent",
        tag=Tag.CARDS,
        summary="Read what the guest agreed to when the card was stored",
        parameters=(GUEST_WITH_CARD, ACCOUNT_ID),
        calls=ReadConsent,
        refusals=(errors.PaymentAccountNotFound(),),
    )
    def read_given_consent(self, caller: Caller, guest_id: str, account_id: str) -> CardConsent:
        """Read the current consent to a card on file, and the consents that the guest gave earlier."""
        given = self.read_consent(caller, guest_id=guest_id, account_id=account_id)
        current, *earlier = msgspec.convert(given, list[GuestConsent], from_attributes=True)
        return CardConsent(**msgspec.structs.asdict(current), earlier=earlier)

    @Operation(
        method="delete",
        path=ACCOUNTS + "/{account_id}",
        name="removeCard",
        tag=Tag.CARDS,
        summary="Remove a card on file",
        description="The card is deleted at the payment service provider too.",
        parameters=(GUEST_WITH_CARD, ACCOUNT_ID),
        calls=RemoveAccount,
        links={"readCard": _SAME_CARD, "listCards": SAME_GUEST},
        refusals=(errors.PaymentAccountNotFound(),),
    )
    def remove(self, caller: Caller, guest_id: str, account_id: str) -> Done:
        """Remove a card on file, here and at the PSP."""
        self.remove_account(caller, guest_id=guest_id, account_id=account_id)
        # After a backup was restored, these log lines show which cards were removed since the
        # backup.
        log.info(
            "card_removed",
            account_id=account_id.lower(),
            guest_id=guest_id.lower(),
            caller=caller.name,
        )
        self.wake_reconciler()
        return Done()

    @Operation(
        method="put",
        path=ACCOUNTS + "/{account_id}/default",
        name="chooseDefaultCard",
        tag=Tag.CARDS,
        summary="Make a card the guest's default at its center",
        description="Send no body. A body is ignored.",
        parameters=(GUEST_WITH_CARD, ACCOUNT_ID),
        calls=ChooseDefaultCard,
        refusals=(errors.PaymentAccountNotFound(),),
    )
    def choose_default(self, caller: Caller, guest_id: str, account_id: str) -> Done:
        """Make a card the guest's default at the card's center. The request's body is ignored."""
        self.choose_default_card(caller, guest_id=guest_id, account_id=account_id)
        return Done()

    @Operation(
        method="get",
        path=CENTERS + "/{center_id}/accounts",
        name="listExpiringCards",
        tag=Tag.CARDS,
        summary="List a center's cards on file that expire before a given date",
        description="Active cards of all guests, including expired cards. The cards that expire "
        "soonest come first.",
        parameters=(
            CENTER_ID,
            parameter(
                "expires_before",
                "query",
                "List only cards that expire before this date. A card expires on the last day of "
                "its month.",
                required=True,
                known=DATES,
                type="string",
                format="date",
            ),
        ),
        calls=ListExpiringCards,
        refusals=(
            errors.InvalidCenterId(),
            errors.InvalidField("expires_before", EXPECTED_DATE),
        ),
    )
    def list_expiring(
        self, caller: Caller, center_id: str, expires_before: Sequence[str], page: PageRequest
    ) -> ExpiringCards:
        """List the center's cards on file that expire before the date `expires_before`.

        The cards that expire soonest come first.
        """
        found = self.list_expiring_cards(
            caller, center_id=center_id, expires_before=expires_before, page=page
        )
        return ExpiringCards.of(found, self.clock.now())
