"""The proof that a guest agreed to have a card stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from domain.identifiers import AccountId, GuestId, TokenId


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenConsent:
    """What a guest agreed to on the page of a session that stored or renewed an account.

    `agreed_at` is when the guest agreed on a page of ours, or typed the card below the text on the PSP's.
    It is no later than the card.
    `language` (RFC 5646) and `text` are None where they are not kept any more.
    """

    account_id: AccountId
    token_id: TokenId
    version: str
    agreed_at: datetime
    language: str | None = None
    text: str | None = None


class StoredWithConsent(Protocol):
    """An account, as far as the consents of its guest are kept by it."""

    @property
    def account_id(self) -> AccountId:
        """The account."""

    @property
    def guest_id(self) -> GuestId:
        """The guest."""

    @property
    def consent_version(self) -> str:
        """The version of the text that applies."""


class Consents(Protocol):
    """The consents of accounts. They stay with the account, also after its removal."""

    def add(self, consent: GivenConsent) -> None:
        """Store a consent with its text; equal texts are stored once.

        Another unit that adds a new text waits until this one ends, so it comes last in a unit.
        """
        ...

    def of(self, account: StoredWithConsent) -> Sequence[GivenConsent]:
        """Return the consents of an account: the one that applies first, then earlier ones.

        An earlier release that ran beside this one has stored none: its sessions have them.
        """
        ...
