"""Determines which events must exist, given the stored sessions and accounts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final, Protocol

from msgspec import Struct

UNCOUNTED: Final = (
    *("account.expiring", "account.updated", "guest.merged"),
    *("agreement.added", "agreement.ended", "account.default", "consent.withdrawn"),
    *("session.card_declined", "session.unopened"),
)


class EndedSession(Protocol):
    """The parts of a session that its events contain."""

    @property
    def token_id(self) -> str: ...
    @property
    def guest_id(self) -> str: ...
    @property
    def center_id(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def account_id(self) -> str | None: ...


class CardOnFile(Protocol):
    """The parts of a payment account, removed or not, that its events contain."""

    @property
    def token_id(self) -> str: ...
    @property
    def guest_id(self) -> str: ...
    @property
    def center_id(self) -> str: ...
    @property
    def account_id(self) -> str: ...
    @property
    def is_active(self) -> bool: ...


class Told(Struct, frozen=True, order=True):
    """The content of an event."""

    type: str
    guest_id: str
    center_id: str
    token_id: str
    account_id: str | None = None


def lost_and_invented(
    events: Iterable[Told],
    sessions: Collection[EndedSession],
    accounts: Collection[CardOnFile],
    *,
    once_expired: Collection[str] = (),
    bookings: Collection[str] = (),
) -> tuple[list[Told], list[Told]]:
    """Return the missing events, and the events that must not exist or were reported twice.

    `events` are the events to an endpoint that has accepted all events from the start.
    `once_expired` contains the tokens of the sessions that are known to have expired. Any completed
    session may have expired before it completed. `bookings` contains the tokens of the sessions
    about a booking. Such a session may complete without `account.renewed`: if the typed card is older
    than the card on file, only the agreement is new. The types in UNCOUNTED are left out, because
    no record shows how many events of these types must exist.
    """
    told = Counter(each for each in events if each.type not in UNCOUNTED)
    must, may = Counter[Told](), Counter[Told]()
    stored_by = {account.token_id for account in accounts}
    for account in accounts:
        about = (account.guest_id, account.center_id, account.token_id, account.account_id)
        must[Told("account.stored", *about)] += 1
        must[Told("account.removed", *about)] += not account.is_active
    for session in sessions:
        about_session = (session.guest_id, session.center_id, session.token_id)
        expired = Told("session.expired", *about_session)
        if session.status in ("failed", "expired"):
            must[Told(f"session.{session.status}", *about_session)] += 1
        elif session.status == "completed":
            if session.token_id not in stored_by:
                renewed = Told("account.renewed", *about_session, session.account_id)
                (may if session.token_id in bookings else must)[renewed] += 1
            (must if session.token_id in once_expired else may)[expired] += 1
    return list((must - told).elements()), list((told - must - may).elements())
