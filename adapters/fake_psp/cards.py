"""The published test cards, and the checks of what a guest types in."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from adapters.fake_psp import countries
from domain.billing import MAX_LENGTHS
from domain.card_numbers import holds_card_number, passes_luhn
from domain.fields import is_clean
from domain.psps.card import Funding


class Behaviour(StrEnum):
    """The behavior of a test card. The texts in `test_cards` in the catalogs describe it."""

    SUCCEEDS = "succeeds"
    PREPAID = "prepaid"
    DECLINED = "declined"
    WRONG_ADDRESS = "wrong_address"
    CHALLENGE = "challenge"
    OUT_OF_ORDER = "out_of_order"
    REISSUED = "reissued"
    LOST = "lost"
    CHARGE_DECLINED = "charge_declined"
    CHARGE_UNCONFIRMED = "charge_unconfirmed"


@dataclass(frozen=True, slots=True)
class PublishedCard:
    """The brand, the behavior and the funding of a test card.

    All test cards have the same country.
    """

    brand: str
    behaviour: Behaviour
    funding: Funding = Funding.CREDIT


TEST_CARDS: Final[Mapping[str, PublishedCard]] = {
    "4242424242424242": PublishedCard("visa", Behaviour.SUCCEEDS),
    "5555555555554444": PublishedCard("mastercard", Behaviour.SUCCEEDS, Funding.DEBIT),
    "5105105105105100": PublishedCard("mastercard", Behaviour.PREPAID, Funding.PREPAID),
    "4000000000000002": PublishedCard("visa", Behaviour.DECLINED),
    "4000000000000010": PublishedCard("visa", Behaviour.WRONG_ADDRESS),
    "4000000000003220": PublishedCard("visa", Behaviour.CHALLENGE),
    "4000000000000119": PublishedCard("visa", Behaviour.OUT_OF_ORDER),
    "4000000000000077": PublishedCard("visa", Behaviour.REISSUED),
    "4000000000000069": PublishedCard("visa", Behaviour.LOST),
    "4000000000009995": PublishedCard("visa", Behaviour.CHARGE_DECLINED),
    "4000002760003184": PublishedCard("visa", Behaviour.CHARGE_UNCONFIRMED),
}
"""Every number that the fake PSP accepts."""

ISSUER_COUNTRY: Final = "US"
"""The country of the bank that issued each test card."""

REISSUED_AS: Final = "4000000000000341"
"""The new number of a card that its bank has reissued."""

WRONG_ZIPCODE: Final = "00000"
"""The postal code that fails address verification with any card."""

NEEDED: Final = ("number", "expiry", "cvc", "address", "zipcode", "country_code")
"""The fields that must not be empty. The page's script checks them too."""

UNCLEAN: Final = "unclean"
"""The fault of a field that contains invalid characters."""

BILLING_FIELDS: Final = ("address", "city", "state", "zipcode", "country_code")
_MAX_YEARS_AHEAD: Final = 50
_MAX_EXPIRY_LENGTH: Final = 20
_PLAIN_FIELDS: Final = ("number", "expiry", "cvc", "zipcode")

_NUMBER_GAPS = re.compile(r"[ -]+")
_NUMBER = re.compile(r"[0-9]{12,19}")
_YEAR_FIRST = re.compile(r"([0-9]{4})-([0-9]{2})")
_EXPIRY = re.compile(r"([0-9]{2}|[2-9]|[0-9](?=[ /.-]))[ /.-]*([0-9]{2}|[0-9]{4})")
_CVC = re.compile(r"[0-9]{3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardEntry:
    """A card that a guest has typed in. All fields are valid. The CVC was checked, but is not kept.

    `repeatable` contains the expiry date and the billing address as typed. If the card is refused,
    the form shows these texts once more. `repr` omits `repeatable` and `number`, so that they do
    not appear in logs and tracebacks.
    """

    number: str = field(repr=False)
    expiry_month: int
    expiry_year: int
    zipcode: str
    repeatable: Mapping[str, str] = field(repr=False, default_factory=dict)


class EntryRefused(Exception):
    """Some fields of the form are wrong.

    `errors` maps each wrong field to its fault. The fields are in the order in which the page shows
    them. The messages for faults are in the table `form.fault` in the catalogs.
    """

    def __init__(self, errors: Mapping[str, str]) -> None:
        self.errors = errors
        super().__init__(", ".join(errors))


def read_entry(typed: Mapping[str, str], *, avs: bool, now: datetime) -> CardEntry:
    """Parse the fields that a guest has typed in. The billing address is read only if `avs` is on.

    Raises EntryRefused with all wrong fields.
    """
    errors: dict[str, str] = {}

    def check(name: str, fault: str | None) -> None:
        if fault is not None:
            errors[name] = fault

    texts = {**typed, **{name: plain(typed.get(name, "")) for name in _PLAIN_FIELDS}}
    number = _NUMBER_GAPS.sub("", texts["number"])
    check("number", _number_fault(number))
    expiry = texts["expiry"].strip(" ")
    month, year = _parse_expiry(expiry)
    check("expiry", _expiry_fault(expiry, month, year, now))
    cvc = texts["cvc"].strip(" ")
    check("cvc", "empty" if not cvc else None if _CVC.fullmatch(cvc) else "form")
    if avs:
        for name in BILLING_FIELDS:
            check(name, _billing_fault(name, texts))
    if errors:
        raise EntryRefused(errors)
    return CardEntry(
        number=number,
        expiry_month=month,
        expiry_year=year,
        zipcode=texts["zipcode"].strip(" "),
        repeatable=repeatable(typed),
    )


def repeatable(typed: Mapping[str, str]) -> Mapping[str, str]:
    """Return the expiry date and the billing address as typed, to show them in the form once more.

    A text that is too long or malformed, or that contains a card number, is replaced by "". The
    card number and the CVC are never returned.
    """
    return {name: _repeatable(name, typed.get(name, "")) for name in ("expiry", *BILLING_FIELDS)}


def _repeatable(name: str, text: str) -> str:
    if len(text) > MAX_LENGTHS.get(name, _MAX_EXPIRY_LENGTH):
        return ""
    if not is_clean(text) or holds_card_number(text):
        return ""
    return text if name != "expiry" or _match_expiry(plain(text).strip(" ")) else ""


def _number_fault(number: str) -> str | None:
    if not number:
        return "empty"
    if not _NUMBER.fullmatch(number):
        return "form"
    if brand_of(number) is None:
        return "brand"
    return None if passes_luhn(number) else "slip"


def brand_of(number: str) -> str | None:
    """Return the brand of a card by the first digits of its number.

    Return None if the number is not accepted.
    """
    if number.startswith("4"):
        return "visa"
    is_mastercard = "51" <= number[:2] <= "55" or "2221" <= number[:4] <= "2720"
    return "mastercard" if is_mastercard else None


def plain(text: str) -> str:
    """Replace digits, dashes and blanks of any script by ASCII characters, and return the text.

    For example, an Arabic digit becomes one of 0 to 9, a long dash becomes a hyphen, and a
    no-break space becomes a space. Invisible characters are removed.
    """
    return "".join(map(_plain, unicodedata.normalize("NFKC", text)))


def _plain(character: str) -> str:
    match unicodedata.category(character):
        case "Nd":
            return str(unicodedata.decimal(character))
        case "Cf":
            return ""
        case "Zs":
            return " "
        case category:
            # On a Japanese keyboard, people may type the long vowel mark instead of a hyphen.
            return "-" if category == "Pd" or character in "\u2212\u30fc" else character


def _match_expiry(text: str) -> re.Match[str] | None:
    """Match an expiry date in one of the forms that people, browsers and password managers use.

    Examples are 09/31, 9 31, 0931, 931, 09-2031 and 2031-09.
    """
    year_first = _YEAR_FIRST.fullmatch(text)
    return _EXPIRY.fullmatch(f"{year_first[2]}/{year_first[1]}" if year_first else text)


def _parse_expiry(text: str) -> tuple[int, int]:
    match = _match_expiry(text)
    if match is None:
        return 0, 0
    month, year = match.groups()
    return int(month), int(year) if len(year) == 4 else 2000 + int(year)


def _expiry_fault(text: str, month: int, year: int, now: datetime) -> str | None:
    if not text:
        return "empty"
    if not year:
        return "form"
    if not 1 <= month <= 12:
        return "month"
    if (year, month) < (now.year, now.month):
        return "expired"
    return "far" if year > now.year + _MAX_YEARS_AHEAD else None


def _billing_fault(name: str, typed: Mapping[str, str]) -> str | None:
    text = typed.get(name, "").strip(" ")
    if not is_clean(text) or len(text) > MAX_LENGTHS[name]:
        return UNCLEAN
    if name == "zipcode" and not text.isascii():
        return "form"
    if name == "country_code" and text and text not in countries.NAMES:
        return "unknown"
    if name == "zipcode" and typed.get("country_code") in countries.WITHOUT_POSTAL_CODES:
        return None
    return "empty" if not text and name in NEEDED else None
