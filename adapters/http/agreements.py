"""Agreements about bookings: list a card's agreements, and read and end an agreement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, Self

import msgspec
from msgspec import Meta, Struct

from adapters.http.cards import ACCOUNT_ID, ACCOUNTS
from adapters.http.guests import GUEST, GUEST_WITH_CARD
from adapters.http.operations import Operation, Tag, parameter
from adapters.http.responses import (
    Done,
    LimitedAmount,
    PageInfo,
    TrueValue,
    Uri,
    Uuid,
    example,
    nullable_time,
    time_example,
    uuid_example,
)
from adapters.thread_safe_types import prepare
from domain import errors
from domain.agreements.agreement import Agreement
from domain.agreements.terms import EXPECTED_TIME
from domain.cards.end_agreements import EXPECTED_REASON, STATED, EndAgreement
from domain.cards.queries import ListAgreements, ReadAgreement
from domain.pagination import Page, PageRequest
from domain.permissions import Caller

_AGREEMENT: Final = GUEST + "/agreements/{agreement_id}"

_AGREEMENT_ID: Final = parameter(
    "agreement_id", "path", "The id of the agreement, from the card's list or an event."
)


class AgreementDetails(Struct, frozen=True, kw_only=True):
    """A guest's agreement about one booking."""

    agreement_id: Annotated[Uuid, uuid_example("The agreement.")]
    account_id: Annotated[Uuid, uuid_example("The card on file that guarantees the booking.")]
    center_id: Annotated[Uuid, uuid_example("The center that may charge the card.")]
    token_id: Annotated[Uuid, uuid_example("The session in which the guest agreed.")]
    reference: Annotated[str, example("booking-1001", "Your own name for the booking.")]
    description: Annotated[str, example("2 × massage", "What was booked.")]
    starts_at: Annotated[datetime, time_example("When the booking begins.")]
    ends_at: Annotated[datetime, time_example("When the booking ends.")]
    no_show: Annotated[
        LimitedAmount | None, Meta(description="The maximum charge if the guest does not come.")
    ]
    late_cancellation: Annotated[
        LimitedAmount | None, Meta(description="The maximum charge if the guest cancels too late.")
    ]
    cancel_by: Annotated[
        datetime | None, nullable_time("The time until which the guest may cancel free of charge.")
    ]
    policy_uri: Annotated[
        Uri | None, example("https://shop.example/terms", "The address of the full terms.")
    ]
    replaces: Annotated[
        Uuid | None, uuid_example("The agreement from before the booking was changed.")
    ]
    version: Annotated[str, example("2026-11", "The version of the text.")]
    language: Annotated[str, example("en", "The language of the text (RFC 5646).")]
    text: Annotated[
        str, example("Harbor Spa keeps this card …", "The text, exactly as the guest read it.")
    ]
    button: Annotated[str, example("Agree and guarantee the booking", "The words on the button.")]
    agreed_at: Annotated[datetime, time_example("When the guest clicked the button.")]
    kept_until: Annotated[
        datetime, time_example("The time that the text names, after which the card is removed.")
    ]
    ended_at: Annotated[
        datetime | None, nullable_time("When the agreement ended; null while it is open.")
    ]
    reason: Annotated[
        str | None,
        example(
            "cancelled",
            "The reason for the end that you stated, or `replaced`. Null if the booking was over.",
        ),
    ]
    stated_at: Annotated[datetime | None, nullable_time("The time of the end that you stated.")]

    @classmethod
    def of(cls, agreement: Agreement) -> Self:
        """Return the response for an agreement.

        The fields of the agreement's terms and text become fields of the response itself.
        """
        return msgspec.convert(_fields(agreement), cls, from_attributes=True)


class ReadAgreementDetails(AgreementDetails, frozen=True, kw_only=True):
    """One agreement."""

    success: TrueValue = True
    error: None = None


class ListedAgreements(Struct, frozen=True, kw_only=True):
    """A page of a card's agreements."""

    agreements: list[AgreementDetails]
    page_info: PageInfo

    @classmethod
    def of(cls, page: Page[Agreement]) -> ListedAgreements:
        """Return the response for a page of agreements."""
        agreements = [AgreementDetails.of(agreement) for agreement in page.items]
        return cls(agreements=agreements, page_info=PageInfo.of(page))


def _fields(agreement: Agreement) -> dict[str, object]:
    groups: tuple[object, ...] = (agreement.terms, agreement.shown, agreement)
    found = {
        name: getattr(group, name)
        for group in groups
        for name in AgreementDetails.__struct_fields__
        if hasattr(group, name)
    }
    for name in ("no_show", "late_cancellation"):
        found[name] = LimitedAmount.of(getattr(agreement.terms, name))
    return found


prepare(AgreementDetails, ReadAgreementDetails)


@dataclass(frozen=True, kw_only=True)
class AgreementResource:
    """List, read and end agreements about bookings."""

    list_agreements: ListAgreements
    read_agreement: ReadAgreement
    end_agreement: EndAgreement

    @Operation(
        method="get",
        path=ACCOUNTS + "/{account_id}/agreements",
        name="listAgreements",
        tag=Tag.CARDS,
        summary="List the agreements of a card on file",
        description="Oldest first, including those that have ended.",
        parameters=(GUEST_WITH_CARD, ACCOUNT_ID),
        calls=ListAgreements,
        refusals=(errors.PaymentAccountNotFound(),),
    )
    def list(
        self, caller: Caller, guest_id: str, account_id: str, page: PageRequest
    ) -> ListedAgreements:
        """List a card's agreements, including those that have ended."""
        found = self.list_agreements(caller, guest_id=guest_id, account_id=account_id, page=page)
        return ListedAgreements.of(found)

    @Operation(
        method="get",
        path=_AGREEMENT,
        name="readAgreement",
        tag=Tag.CARDS,
        summary="Read one agreement",
        description="Also after it has ended, and after its card was removed.",
        parameters=(GUEST_WITH_CARD, _AGREEMENT_ID),
        calls=ReadAgreement,
        refusals=(errors.AgreementNotFound(),),
    )
    def read(self, caller: Caller, guest_id: str, agreement_id: str) -> ReadAgreementDetails:
        """Read an agreement, with the text that the guest read."""
        found = self.read_agreement(caller, guest_id=guest_id, agreement_id=agreement_id)
        return ReadAgreementDetails.of(found)

    @Operation(
        method="delete",
        path=_AGREEMENT,
        name="endAgreement",
        tag=Tag.CARDS,
        summary="End an agreement",
        description="The card is then kept for the time after the end that the guest read, and is "
        "removed if no other agreement and no general consent keeps it. May be repeated.",
        parameters=(
            GUEST_WITH_CARD,
            _AGREEMENT_ID,
            parameter(
                "reason",
                "query",
                "Why it ended.",
                required=True,
                type="string",
                enum=[each.value for each in STATED],
            ),
            parameter(
                "at",
                "query",
                "When it ended, with an offset. It is stored as you state it.",
                type="string",
                format="date-time",
            ),
        ),
        calls=EndAgreement,
        refusals=(
            errors.AgreementNotFound(),
            errors.InvalidField("reason", EXPECTED_REASON),
            errors.InvalidField("at", EXPECTED_TIME),
        ),
    )
    def end(
        self,
        caller: Caller,
        guest_id: str,
        agreement_id: str,
        reason: Sequence[str],
        at: Sequence[str],
    ) -> Done:
        """End an agreement."""
        self.end_agreement(
            caller, guest_id=guest_id, agreement_id=agreement_id, reasons=reason, ats=at
        )
        return Done()
