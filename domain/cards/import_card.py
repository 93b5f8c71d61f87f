"""Import a card that is already stored at a PSP."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final, Self

from domain.cards.account import Account, has_default
from domain.cards.note_account_event import note_account_event
from domain.centers.configure_payments import LoadedPsp, Missing, find_missing, reads_cards
from domain.centers.payment_configuration import CardsPerGuest
from domain.consents.consent_text import MAX_TEXT_LENGTH
from domain.consents.given_consent import GivenConsent
from domain.errors import InvalidField
from domain.events.event import EventType
from domain.events.note_event import NoteEvent
from domain.fields import parse_line, parse_uuid, without_card_number
from domain.identifiers import (
    AccountId,
    CardToken,
    CenterId,
    GuestId,
    GuestReference,
    MerchantAccount,
    ProviderName,
    PspAccount,
    TokenId,
)
from domain.languages import parse_language
from domain.outside import Clock, Ids
from domain.psps.card import CardReading
from domain.psps.payment_provider import ProviderRefused, Providers
from domain.source import DEFAULT_SOURCE
from domain.storage import Storage, UnitOfWork, WriteUnit

IMPORTED: Final = "imported"
"""The `reason` in the event about an imported account."""
IMPORTS_PER_MINUTE: Final = 50
"""The part of READINGS_PER_MINUTE that an import may use. The other readings are reserved for cards
on file, which banks may have changed.
"""
EARLIEST_YEAR: Final = 2000
"""The earliest year of a consent. PSPs did not store cards before that year."""
_WORD: Final = re.compile(r"[!-~]{1,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardToImport:
    """A card stored at a PSP, with the consent that the guest gave before the import.

    `consent_text` is the text in the language `consent_language`, or None if the text is kept
    elsewhere.
    """

    guest_id: GuestId
    center_id: CenterId
    provider: ProviderName
    merchant_account: MerchantAccount
    guest_reference: GuestReference
    token: CardToken
    consented_at: datetime
    consent_version: str
    consent_language: str | None
    consent_text: str | None

    @classmethod
    def parse(
        cls,
        *,
        guest_id: str,
        center_id: str,
        provider: str,
        merchant_account: str,
        guest_reference: str,
        token: str,
        consented_at: str,
        consent_version: str,
        consent_language: str = "",
        consent_text: str = "",
    ) -> Self:
        """Parse the cells of one row of the file to import. Raises InvalidField."""
        if bool(consent_text) != bool(consent_language):
            raise InvalidField(
                "consent_language", "given if consent_text is given, and empty if it is not"
            )
        return cls(
            guest_id=GuestId(parse_uuid("guest_id", guest_id)),
            center_id=CenterId(parse_uuid("center_id", center_id)),
            provider=ProviderName(provider),
            merchant_account=MerchantAccount(merchant_account),
            guest_reference=GuestReference(_parse_word("guest_reference", guest_reference)),
            token=CardToken(_parse_word("token", token)),
            consented_at=_parse_time("consented_at", consented_at),
            consent_version=_parse_word("consent_version", consent_version),
            consent_language=parse_language("consent_language", consent_language),
            consent_text=_parse_text(consent_text) if consent_text else None,
        )

    @property
    def id(self) -> str:
        """A key for the card at its center. The same token can be stored once at each center."""
        return f"{self.provider}/{self.merchant_account}/{self.center_id}/{self.token}"

    @property
    def psp_account(self) -> PspAccount:
        """The merchant account at which the PSP has stored the card."""
        return PspAccount(self.provider, self.merchant_account)


def _parse_word(field: str, value: str) -> str:
    if not _WORD.fullmatch(value):
        raise InvalidField(field, "1 to 255 visible ASCII characters without spaces")
    return without_card_number(field, value)


def _parse_text(value: str) -> str:
    text = " ".join(value.split())
    return without_card_number(
        "consent_text", parse_line("consent_text", text, max_length=MAX_TEXT_LENGTH)
    )


def _parse_time(field: str, value: str) -> datetime:
    """Parse a date or a time with an offset. A date means its start in UTC. Raises InvalidField."""
    try:
        time = datetime.fromisoformat(value if "T" in value else f"{value}T00:00Z")
        # In exports, an empty date becomes 1899 or 1970.
        if time.tzinfo is not None and time.year >= EARLIEST_YEAR:
            return time.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise InvalidField(field, "a date such as 2024-05-31, or a time such as 2024-05-31T14:30:00Z")


class Fate(Enum):
    """The result of the import of one card."""

    STORED = "stored"
    """The import stored the card as an account."""
    ON_FILE = "on file"
    """The card had already been stored, for example by an interrupted import."""
    ERASED = "erased"
    """The guest of the card was erased."""
    LATER = "later"
    """Nothing was done, because the maximum number of readings in a minute was reached."""

    NO_GUEST = "the guest is no longer on file"
    SHARED = "another guest has this guest_reference: create a separate guest at the PSP"
    REMOVED = "the card was removed here, or is being removed, and cannot be imported again"
    GONE = "the PSP no longer has the card"
    UNKNOWN = "the PSP does not know this token for this guest_reference at this merchant account"
    SAME_CARD = "the guest already has this card on file at the center, with another token"
    NO_RESPONSE = "the PSP gave no usable response"
    UNREADABLE = "a record of the card cannot be decoded: use the release that wrote the record"
    ONE_CARD = "the guest already has a card on file, and the center keeps one card per guest"


READ: Final = (Fate.STORED, Fate.GONE, Fate.UNKNOWN, Fate.SAME_CARD, Fate.ONE_CARD)
"""The possible results for a card that was read at its PSP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCard:
    """Use case: import a card, which is read at its PSP and stored as an account.

    Nothing is stored if the card is on file, unknown to the PSP, or refused by a rule. The card is
    never discarded at the PSP. If an account is stored, an event is noted. May be called more than
    once for the same card, but the card is stored only once. Raises ProviderUnavailable if the PSP
    does not respond.
    """

    storage: Storage
    providers: Providers
    psps: Mapping[ProviderName, LoadedPsp]
    clock: Clock
    ids: Ids
    note_event: NoteEvent

    def check(self, unit: UnitOfWork, card: CardToImport) -> None:
        """Check that the card's guest, center and merchant account exist and can be used.

        Raises InvalidField.
        """
        missing = find_missing(self.psps, card.psp_account)
        if missing is Missing.KEYS:
            raise InvalidField("merchant_account", "a merchant account with keys")
        if unit.merchant_standings.of(card.psp_account).is_closed:
            raise InvalidField("merchant_account", "a merchant account that is not closed")
        if missing is not None or not reads_cards(self.psps, card.psp_account):
            raise InvalidField("provider", "a PSP that is set up here and can read stored cards")
        if unit.centers.get(card.center_id) is None:
            raise InvalidField("center_id", "the id of a center that has been imported")
        if unit.guests.get(card.guest_id) is None and unit.erasures.get(card.guest_id) is None:
            raise InvalidField("guest_id", "the id of a guest that has been imported")
        if card.consented_at > self.clock.now():
            raise InvalidField("consented_at", "a time in the past")

    def __call__(self, card: CardToImport, *, per_minute: int = IMPORTS_PER_MINUTE) -> Fate:
        """Import the card, and return its fate.

        `per_minute` is the maximum number of readings at its merchant account in a minute.
        """
        asked_at = self.clock.now()
        with self.storage.read() as reading:
            accounts = reading.accounts.active_at(card.guest_id, card.center_id)
            fate = _fate_before_reading(reading, card, accounts)
            spent = reading.accounts.count_asked(asked_at).get(card.psp_account, 0)
        if fate is not None:
            return fate
        if spent >= per_minute:
            return Fate.LATER
        try:
            found = self.providers[card.provider].read_card(
                card.merchant_account, card.guest_reference, card.token
            )
        except ProviderRefused:
            return Fate.UNKNOWN
        now = self.clock.now()
        return self.storage.transact(lambda unit: self._store(unit, card, found, asked_at, now))

    def _store(
        self,
        unit: WriteUnit,
        card: CardToImport,
        found: CardReading,
        asked_at: datetime,
        now: datetime,
    ) -> Fate:
        """Store the card if the rules allow it, and return its fate.

        Locks the guest's accounts before the token, in the same order as all other units.
        """
        accounts = unit.accounts.active_at(card.guest_id, card.center_id)
        fate = _fate_before_reading(unit, card, accounts)
        if fate is not None:
            return fate
        if found.card is None:
            return Fate.GONE
        if any(account.is_same_card(found.card, card.psp_account) for account in accounts):
            return Fate.SAME_CARD
        configuration = unit.configurations.get(card.center_id)
        if accounts and configuration and configuration.cards_per_guest is CardsPerGuest.ONE:
            return Fate.ONE_CARD
        account = Account(
            **asdict(found.card),
            account_id=AccountId(self.ids.uuid()),
            # No session has this id, because no session stored the card.
            token_id=TokenId(self.ids.uuid()),
            guest_id=card.guest_id,
            center_id=card.center_id,
            provider=card.provider,
            merchant_account=card.merchant_account,
            source=DEFAULT_SOURCE,
            consent_version=card.consent_version,
            consented_at=card.consented_at,
            created_at=now,
            expiry_notice_at=found.card.next_expiry_notice(now),
            is_default=not has_default(accounts),
            due_at=None,
            asked_at=asked_at,
            read_at=min(found.read_at, now),
        ).waiting(now)
        unit.accounts.add(account)
        note_account_event(
            unit,
            self.note_event,
            EventType.ACCOUNT_STORED,
            account,
            reason=IMPORTED,
            language=card.consent_language,
            now=now,
        )
        if card.consent_text is not None:
            unit.consents.add(
                GivenConsent(
                    account_id=account.account_id,
                    token_id=account.token_id,
                    version=card.consent_version,
                    agreed_at=card.consented_at,
                    language=card.consent_language,
                    text=card.consent_text,
                )
            )
        unit.commit()
        return Fate.STORED


def _fate_before_reading(
    unit: UnitOfWork, card: CardToImport, accounts: Sequence[Account]
) -> Fate | None:
    """Return the card's fate, or None if it depends on a reading of the card at the PSP.

    `accounts` are the guest's active accounts at the center.
    """
    if unit.erasures.among([card.guest_id]):
        return Fate.ERASED
    held = [(each.psp_account, each.token) for each in accounts]
    if (card.psp_account, card.token) in held:
        return Fate.ON_FILE
    if unit.guests.get(card.guest_id) is None:
        return Fate.NO_GUEST
    if unit.discards.get(*card.psp_account, card.token) is not None:
        return Fate.REMOVED
    # An erasure of a guest deletes all cards that belong to the guest's reference at the PSP.
    if unit.guest_references.guests(card.psp_account, card.guest_reference) - {card.guest_id}:
        return Fate.SHARED
    return None
