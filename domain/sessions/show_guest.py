"""Show what an operator may see of a guest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.cards.account import Account, AccountFilter
from domain.errors import GuestNotFound
from domain.fields import parse_uuid
from domain.guests.guest import Guest
from domain.identifiers import GuestId
from domain.pagination import MAX_SIZE, PageRequest
from domain.sessions.session import CardSession
from domain.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestOnFile:
    """A guest's cards, removed ones too, and the latest sessions; the newest are first.

    `guest` is None if only these are left of the guest.
    """

    guest_id: GuestId
    guest: Guest | None
    accounts: Sequence[Account]
    sessions: Sequence[CardSession]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowGuest:
    """Use case: return a guest with up to 100 cards and 100 sessions, of all centers.

    Raises InvalidField, or GuestNotFound when nothing is on file under this id.
    """

    storage: Storage

    def __call__(self, guest_id: str) -> GuestOnFile:
        known_id = GuestId(parse_uuid("guest_id", guest_id))
        with self.storage.read() as unit:
            found = GuestOnFile(
                guest_id=known_id,
                guest=unit.guests.get(known_id),
                accounts=unit.accounts.search(AccountFilter(guest_id=known_id), limit=MAX_SIZE),
                sessions=unit.sessions.page(known_id, None, PageRequest(size=MAX_SIZE)).items,
            )
        if not (found.guest or found.accounts or found.sessions):
            raise GuestNotFound
        return found
