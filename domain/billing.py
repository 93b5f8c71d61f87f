"""The billing address that a client may send."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Final

from domain.card_numbers import (
    holds_card_number,
    is_short_card_number,
    joined_texts_hold_card_number,
)
from domain.errors import BillingInfoInvalid
from domain.fields import is_clean


def _text(max_length: int) -> str | None:
    optional_text: str | None = field(default=None, metadata={"max_length": max_length})
    return optional_text


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingInfo:
    """The billing_info of `addCard`. A field that is absent is None.

    The number beside each field is its maximum length in characters.
    """

    first_name: str | None = _text(100)
    last_name: str | None = _text(100)
    email: str | None = _text(254)
    country_code: str | None = _text(2)
    address: str | None = _text(200)
    state: str | None = _text(100)
    zipcode: str | None = _text(20)
    city: str | None = _text(100)
    phone: str | None = _text(32)


MAX_LENGTHS: Final[Mapping[str, int]] = {
    field.name: field.metadata["max_length"] for field in fields(BillingInfo)
}
"""The maximum length of each field of billing_info, in characters."""


_JOINED: Final = {
    "last_name": ("first_name", "last_name"),
    "address": ("first_name", "last_name", "address", "state", "zipcode", "city"),
}
"""Groups of fields that might contain a card number together.

Each key is the field that the refusal names.
"""


class AvsResult(StrEnum):
    """The result of the bank's check of the billing address."""

    MATCH = "match"
    MISMATCH = "mismatch"
    NOT_CHECKED = "not_checked"


def parse_billing_info(value: object) -> BillingInfo | None:
    """Parse the billing_info that a client sent (docs/http-api.md, `addCard`).

    Return None for null and for an object without values. A blank field counts as absent, and
    unknown fields are ignored. Raises BillingInfoInvalid with the first invalid field.
    """
    if value is None:
        return None
    if not isinstance(value, dict):
        raise BillingInfoInvalid
    given = {name: _parse_field(name, value.get(name)) for name in MAX_LENGTHS}
    for field_name, joined in _JOINED.items():
        if joined_texts_hold_card_number(*(text for name in joined if (text := given[name]))):
            raise BillingInfoInvalid(field_name)
    billing_info = BillingInfo(**given)
    return None if billing_info == BillingInfo() else billing_info


def _parse_field(name: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > MAX_LENGTHS[name] or not is_clean(value):
        raise BillingInfoInvalid(name)
    text = value.strip()
    if not text:
        return None
    if name != "phone" and holds_card_number(text):
        # A card number must not be stored and shown as a phone number.
        raise BillingInfoInvalid(name)
    has_right_form = _FORMS.get(name)
    if has_right_form is not None and not has_right_form(text):
        raise BillingInfoInvalid(name)
    return text.upper() if name == "country_code" else text


def is_email_address(text: str) -> bool:
    """Return whether `text` is a valid e-mail address by the HTML standard."""
    return _EMAIL.fullmatch(text) is not None


def is_phone_number(text: str) -> bool:
    """Return whether `text` is an international number: a plus, then 7 to 15 digits (ITU E.164).

    Spaces, hyphens, dots and brackets may stand between the digits. The digits must not be the
    number of an American Express or Diners Club card.
    """
    digits = "".join(filter(str.isdigit, text))
    return (
        _PHONE.fullmatch(text) is not None
        and 7 <= len(digits) <= 15
        and not is_short_card_number(digits)
    )


def is_country_code(text: str) -> bool:
    """Return whether `text` is an ISO 3166-1 alpha-2 country code, in upper or lower case."""
    return text.isascii() and text.upper() in COUNTRY_CODES


_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9\-]{0,61}[a-zA-Z0-9])?"
_EMAIL = re.compile(rf"[a-zA-Z0-9.!#$%&'*+/=?^_`{{|}}~\-]{{1,64}}@{_LABEL}(?:\.{_LABEL})*")
_PHONE = re.compile(r"\+[1-9](?:[ ().\-]*[0-9])*")

_CODES = (
    "AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR "
    "BS BT BV BW BY BZ CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ "
    "EC EE EG EH ER ES ET FI FJ FK FM FO FR GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW "
    "GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE JM JO JP KE KG KH KI KM KN KP KR KW KY "
    "KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO MP MQ MR MS MT MU MV "
    "MW MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW PY "
    "QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG "
    "TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE VG VI VN VU WF WS YE YT ZA ZM "
    "ZW XK"
)

COUNTRY_CODES: Final = frozenset(_CODES.split())
"""The 249 officially assigned codes of ISO 3166-1 alpha-2, and XK.

XK stands for Kosovo. ISO 3166-1 reserves the code for users. PSPs and the European Union use it.
"""

_FORMS: Final[Mapping[str, Callable[[str], bool]]] = {
    "email": is_email_address,
    "country_code": is_country_code,
    "phone": is_phone_number,
}
