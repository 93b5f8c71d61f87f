"""The proof that a guest agreed to have a card kept on file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from domain.identifiers import AccountId, GuestId, TokenId


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenConsent:
    """The text to which a guest agreed in a session that stored, renewed or used an account.

    `agreed_at` is when the guest agreed on cardonfile's page, or typed in the card below the text
    on the PSP's page. `language` (RFC 5646) and `text` are None if they are no longer stored.
    """

    account_id: AccountId
    token_id: TokenId
    version: str
    agreed_at: datetime
    language: str | None = None
    text: str | None = None


class StoredWithConsent(Protocol):
    """The fields of an account that identify the consents for it."""

    @property
    def account_id(self) -> AccountId:
        """The id of the account."""

    @property
    def guest_id(self) -> GuestId:
        """The id of the guest."""

    @property
    def consent_version(self) -> str:
        """The version of the text of the account's current consent."""


class Consents(Protocol):
    """Repository of guests' consents to keep a card on file, by account.

    The consents stay stored after an account is removed.
    """

    def add(self, consent: GivenConsent) -> None:
        """Store a consent with its text.

        It replaces any stored consent that was given in the same session for the same account.

        Equal texts are stored once. Other units that add the same text wait until this unit ends,
        so call this last in a unit.
        """
        ...

    def copy(self, of: AccountId, to: AccountId) -> None:
        """Copy the consents of an account to another account of the same card."""
        ...

    def of(self, account: StoredWithConsent) -> Sequence[GivenConsent]:
        """Return the consents for an account: first the current consent, then earlier consents.

        The earlier consents are sorted, newest first. During an upgrade, processes from an earlier
        release do not store consents. The consents that they did not store are read from the
        account's sessions.
        """
        ...
