"""The proof that a guest agreed to the storing of a card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from domain.identifiers import AccountId, GuestId, TokenId


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenConsent:
    """What a guest agreed to in a session that stored, renewed or used an account.

    `agreed_at` is when the guest agreed on cardonfile's page, or typed the card below the text on
    the PSP's page. `language` (RFC 5646) and `text` are None if they are no longer kept.
    """

    account_id: AccountId
    token_id: TokenId
    version: str
    agreed_at: datetime
    language: str | None = None
    text: str | None = None


class StoredWithConsent(Protocol):
    """The fields of an account that keep the guest's consent."""

    @property
    def account_id(self) -> AccountId:
        """The id of the account."""

    @property
    def guest_id(self) -> GuestId:
        """The id of the guest."""

    @property
    def consent_version(self) -> str:
        """The version of the current text."""


class Consents(Protocol):
    """The consents of accounts. They stay with an account after its removal."""

    def add(self, consent: GivenConsent) -> None:
        """Store a consent with its text. Equal texts are stored once.

        It replaces the consent of the same session for the same account. Other units that add the
        same text wait until this unit ends, so call this last in a unit.
        """
        ...

    def copy(self, of: AccountId, to: AccountId) -> None:
        """Store the consents of an account with another account of the same card too."""
        ...

    def of(self, account: StoredWithConsent) -> Sequence[GivenConsent]:
        """Return the consents of an account: the current one first, then earlier ones.

        Consents that an earlier release beside this one did not store are read from its sessions.
        """
        ...
