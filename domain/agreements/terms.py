"""The terms of an agreement about one booking."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Final

from domain.errors import InvalidField
from domain.fields import parse_line, parse_uuid, without_card_number
from domain.identifiers import AgreementId
from domain.redirects import MAX_REDIRECT_URI_LENGTH, redirect_origin

MAX_AGREEMENT_REFERENCE_LENGTH: Final = 64
MAX_DESCRIPTION_LENGTH: Final = 200
MAX_AHEAD: Final = timedelta(days=400)
MAX_DIGITS: Final = 12
EXPECTED_TIME: Final = "a time with an offset, such as 2026-12-05T15:00:00+01:00 (RFC 3339)"

_AMOUNT: Final = re.compile(r"(0|[1-9][0-9]*)(?:\.([0-9]+))?")
# RFC 3339, section 5.6, with an offset.
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
    r"(?:Z|[+-][0-9]{2}:[0-9]{2})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """An amount with the number of decimals of its currency, such as `Decimal("40.00")` in `EUR`."""

    amount: Decimal
    currency: str


class Reuse(StrEnum):
    """Whether the page offers a card on file to the guest."""

    NEVER = "never"
    OFFER = "offer"
    """Offer a card on file. Use this value only if nobody but the guest can open the link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementTerms:
    """The terms to which a guest agrees: which charges to a card are allowed for one booking.

    `reference` is the client's own name for the booking, and `description` describes what was
    booked. The booking begins at `starts_at` and ends at `ends_at`. `no_show` is the maximum charge
    if the guest does not come, and `late_cancellation` is the maximum charge if the guest cancels
    too late. At least one of them is set. The guest may cancel free of charge until `cancel_by`, or
    at no time if `cancel_by` is None. `policy_uri` is the address of the full terms.

    `replaces` is the agreement that the guest made before the booking was changed. That agreement
    ends when the guest agrees to these terms. `reuse` is not part of the terms; it controls what
    the page offers.
    """

    reference: str
    description: str
    starts_at: datetime
    ends_at: datetime
    no_show: Money | None = None
    late_cancellation: Money | None = None
    cancel_by: datetime | None = None
    policy_uri: str | None = None
    replaces: AgreementId | None = None
    reuse: Reuse = Reuse.NEVER


def parse_agreement(
    value: object, decimals_of: Callable[[str], int | None], now: datetime
) -> AgreementTerms | None:
    """Parse the `agreement` that a client sent, or return None if it is absent.

    `decimals_of` is `LocaleFormats.decimals_of`. Unknown fields are refused. If they were ignored,
    a limit whose name is misspelt would be lost. Raises InvalidField with the name of the field.
    """
    if value is None:
        return None
    names = [field.name for field in fields(AgreementTerms)]
    if not isinstance(value, dict) or not value.keys() <= set(names):
        raise InvalidField("agreement", f"an object with no other fields than {', '.join(names)}")
    given = dict.fromkeys(names) | value
    terms = AgreementTerms(
        reference=_line("reference", given, MAX_AGREEMENT_REFERENCE_LENGTH),
        description=_line("description", given, MAX_DESCRIPTION_LENGTH),
        starts_at=_time("starts_at", given),
        ends_at=_time("ends_at", given),
        no_show=_money("no_show", given, decimals_of),
        late_cancellation=_money("late_cancellation", given, decimals_of),
        cancel_by=None if given["cancel_by"] is None else _time("cancel_by", given),
        policy_uri=_policy_uri(given["policy_uri"]),
        replaces=_replaces(given["replaces"]),
        reuse=_reuse(given["reuse"]),
    )
    if terms.no_show is None and terms.late_cancellation is None:
        raise _refused("no_show", "given, or late_cancellation")
    if terms.ends_at <= terms.starts_at:
        raise _refused("ends_at", "after starts_at")
    if terms.ends_at - terms.starts_at > MAX_AHEAD:
        raise _refused("starts_at", f"at most {MAX_AHEAD.days} days before ends_at")
    if not now < terms.ends_at <= now + MAX_AHEAD:
        raise _refused("ends_at", f"in the future, and at most {MAX_AHEAD.days} days from now")
    if terms.cancel_by is not None and terms.cancel_by > terms.starts_at:
        raise _refused("cancel_by", "at starts_at or before")
    return terms


def _line(name: str, given: dict[str, object], max_length: int) -> str:
    field = f"agreement.{name}"
    line = parse_line(field, given[name], max_length=max_length)
    return without_card_number(field, line)


def parse_time(field: str, value: object) -> datetime:
    """Parse a time with an offset (RFC 3339), and return it in UTC. Raises InvalidField."""
    if isinstance(value, str) and _TIME.fullmatch(value):
        with suppress(ValueError, OverflowError):
            return datetime.fromisoformat(value).astimezone(UTC)
    raise InvalidField(field, EXPECTED_TIME)


def _time(name: str, given: dict[str, object]) -> datetime:
    return parse_time(f"agreement.{name}", given[name])


def _money(
    name: str, given: dict[str, object], decimals_of: Callable[[str], int | None]
) -> Money | None:
    value = given[name]
    if value is None:
        return None
    if not isinstance(value, dict) or value.keys() != {"amount", "currency"}:
        raise _refused(name, "null, or an object with amount and currency")
    amount, currency = value["amount"], value["currency"]
    decimals = decimals_of(currency) if isinstance(currency, str) else None
    if decimals is None:
        raise _refused(f"{name}.currency", "a currency of ISO 4217, such as EUR")
    parts = _AMOUNT.fullmatch(amount) if isinstance(amount, str) else None
    if (
        parts is None
        or len(parts[2] or "") != decimals
        or len(parts[1]) + decimals > MAX_DIGITS
        or not Decimal(parts[0])
    ):
        raise _refused(
            f"{name}.amount",
            f"a text with a positive decimal number of at most {MAX_DIGITS} digits, {decimals} of "
            f"them after the point",
        )
    return Money(amount=Decimal(parts[0]), currency=str(currency))


def _policy_uri(value: object) -> str | None:
    if value is None:
        return None
    if (
        isinstance(value, str)
        and len(value) <= MAX_REDIRECT_URI_LENGTH
        and (redirect_origin(value) or "").startswith("https://")
    ):
        return value
    raise _refused("policy_uri", "null, or an https address")


def _replaces(value: object) -> AgreementId | None:
    return None if value is None else AgreementId(parse_uuid("agreement.replaces", value))


def _reuse(value: object) -> Reuse:
    if value is None:
        return Reuse.NEVER
    for reuse in Reuse:
        if value == reuse:
            return reuse
    raise _refused("reuse", "null, never or offer")


def _refused(name: str, expected: str) -> InvalidField:
    return InvalidField(f"agreement.{name}", expected)
