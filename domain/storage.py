"""The storage port: units of work that combine the repositories of all capabilities.

The port of each repository is in the module of its entity. Each storage passes the test suite in
`tests/contracts/`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol, TypeVar

from domain.access.token import AccessTokens
from domain.agreements.agreement import Agreements
from domain.agreements.reservation_text import ReservationTexts
from domain.audit.entry import AuditTrail
from domain.cards.account import Accounts
from domain.cards.discard import Discards
from domain.centers.center import Centers
from domain.centers.center_settings import SettingsOfCenters
from domain.centers.payment_configuration import PaymentConfigurations
from domain.consents.consent_text import ConsentTexts
from domain.consents.given_consent import Consents
from domain.desk_links.desk_link import DeskLinks
from domain.events.event import EventDeliveries, EventEndpoints
from domain.events.event_list import Events
from domain.guests.guest import Guests
from domain.installation.installation import Installations
from domain.personal_data.erasure import Erasures
from domain.portal.portal_session import PortalSessions
from domain.products.product import Products
from domain.psps.merchant_standing import MerchantStandings
from domain.psps.references import GuestReferences, MerchantIdentities
from domain.sessions.earlier_page import EarlierPages
from domain.sessions.refused_card import RefusedCards
from domain.sessions.session import CardSessions, EvidenceLog, IdempotencyKeys
from domain.worker.heartbeat import Workers


class RecordUnreadable(Exception):
    """This release cannot decode a stored record. Most likely, another release wrote it.

    The storage logs the table and the key of the record, once in each process. Some methods of
    repositories leave such records out; their docstrings say so.
    """


class AlreadyStored(Exception):
    """The unit tried to store a record that duplicates a stored record, for example in its id."""


class UnitOfWork(Protocol):
    """The repositories of one unit of work. All of them show the same consistent state."""

    centers: Centers
    guests: Guests
    products: Products
    configurations: PaymentConfigurations
    center_settings: SettingsOfCenters
    consent_texts: ConsentTexts
    reservation_texts: ReservationTexts
    agreements: Agreements
    sessions: CardSessions
    refused_cards: RefusedCards
    earlier_pages: EarlierPages
    evidence: EvidenceLog
    desk_links: DeskLinks
    portal_sessions: PortalSessions
    erasures: Erasures
    idempotency_keys: IdempotencyKeys
    accounts: Accounts
    consents: Consents
    guest_references: GuestReferences
    merchant_identities: MerchantIdentities
    merchant_standings: MerchantStandings
    discards: Discards
    events: Events
    event_endpoints: EventEndpoints
    event_deliveries: EventDeliveries
    access_tokens: AccessTokens
    workers: Workers
    audit_trail: AuditTrail
    installations: Installations


class WriteUnit(UnitOfWork, Protocol):
    """A unit of work that may change records. Its locks are held until it ends.

    A unit that ends without a commit changes nothing.
    """

    def commit(self) -> None:
        """Make the changes durable.

        The unit is then over, even if this raises ServiceUnavailable. Raises RuntimeError if the
        unit is already over.
        """
        ...


Returned = TypeVar("Returned")


class Storage(Protocol):
    """The place where records are stored.

    If a call raises ServiceUnavailable, nothing was written, with one exception: if the connection
    was lost during the commit, and the database did not come back within seconds, the unit may have
    been committed. So every use case must be safe to repeat after ServiceUnavailable.

    Units are short and never span a call to a PSP. Nested units, writes in a read unit and writes
    after the commit are programming errors and raise RuntimeError.
    """

    def read(self) -> AbstractContextManager[UnitOfWork]:
        """Open a read-only unit that sees one state of the records until it ends."""
        ...

    def write(self) -> AbstractContextManager[WriteUnit]:
        """Open a unit that may change records. The caller commits the unit.

        Raises ServiceUnavailable if the unit conflicts with another unit.
        """
        ...

    def transact(self, work: Callable[[WriteUnit], Returned]) -> Returned:
        """Call `work` with a new write unit, and return its result.

        After a conflict with another unit, `work` is called again with a new unit, a few times at
        most. It must therefore not have effects outside the unit.
        """
        ...

    def check(self) -> None:
        """Raise ServiceUnavailable unless records can be read and written now."""
        ...

    def overwrite_deleted(self) -> bool:
        """Overwrite deleted and changed data in the files, as far as the storage can do so.

        Return False if another process is still reading the former state. The caller then repeats
        the call later.
        """
        ...

    def close(self) -> None:
        """Close every connection. No unit may be open. May be called twice."""
        ...


def take_due(
    storage: Storage,
    is_any: Callable[[UnitOfWork], bool],
    take: Callable[[WriteUnit], Returned | None],
) -> Returned | None:
    """Call `take` in a write unit, commit, and return what it has leased.

    If `is_any` finds that nothing is due, return None without writing.
    """
    with storage.read() as unit:
        if not is_any(unit):
            return None

    def take_one(unit: WriteUnit) -> Returned | None:
        taken = take(unit)
        unit.commit()
        return taken

    return storage.transact(take_one)


def do_due(
    storage: Storage,
    find: Callable[[UnitOfWork, int], Sequence[Returned | None]],
    do: Callable[[Returned, WriteUnit], None],
    *,
    at_most: int,
) -> bool:
    """Call `do` for due records until `at_most` are done, and return whether more may be due.

    `do` is called with a record and a new write unit, which it commits. `find` is called with the
    number of records to skip, and returns the next `at_most` records of the queue, with None for
    each record that cannot be decoded. Such records, and records for which `do` raises
    RecordUnreadable, are skipped. Skipped records do not count toward `at_most`.
    """
    done = skipped = 0
    while done < at_most:
        with storage.read() as unit:
            found = find(unit, skipped)
        for record in found:
            try:
                if record is None:
                    raise RecordUnreadable
                storage.transact(partial(do, record))
            except RecordUnreadable:
                skipped += 1
            else:
                done += 1
        if len(found) < at_most:
            return False
    return True
