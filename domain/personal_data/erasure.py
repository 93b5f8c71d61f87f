"""Erasures of guests, and the file that names erased guests outside the backups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeAlias

from domain.identifiers import GuestId, GuestReference, PspAccount
from domain.psps.payment_provider import UNKNOWN_FOR
from domain.retries import CLOCKS_DIFFER_BY, MAX_BACKOFF, MIN_BACKOFF, Waiting, next_retry

MAX_REQUEST_DURATION: Final = timedelta(minutes=1) + CLOCKS_DIFFER_BY
"""How long a request that has read a guest may still run after the guest was erased."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """The erasure of a guest.

    This record is never deleted, so that the id is never used for a new guest.

    `due_at` is the time of the worker's next check. When the erasure is done, `done_at` is set and
    `due_at` is None. Until then, `waits_for` contains the merchant accounts at which the PSP still
    has data about the guest. Afterwards, `out_of_reach` contains the accounts that were closed
    before the PSP deleted the guest. `unknown_since` is when a PSP first answered that it does not
    know the guest.

    If the guest was not erased but merged, `merged_into` is the other guest. Cards and references
    then belong to that guest, and PSPs are not asked to delete anything.
    """

    guest_id: GuestId
    erased_at: datetime
    due_at: datetime | None
    done_at: datetime | None = None
    waits_for: tuple[PspAccount, ...] = ()
    out_of_reach: tuple[PspAccount, ...] = ()
    unknown_since: datetime | None = None
    merged_into: GuestId | None = None

    def may_be_done(self, now: datetime) -> bool:
        """Return whether all requests that read the guest before the erasure have ended.

        Until then, such a request may still store data about the guest.
        """
        return now >= self.erased_at + MAX_REQUEST_DURATION

    def checked(self, now: datetime) -> Erasure:
        """Return the new state of this erasure after a check.

        The wait before the next check grows each time.
        """
        # A clock that was ahead may have set this time.
        erased_at = min(self.erased_at, now)
        return replace(self, erased_at=erased_at, due_at=next_retry(erased_at, now))

    def due_after(self, *times: datetime, now: datetime) -> Erasure:
        """Return a copy of this erasure whose next check waits for the latest of `times`.

        The check also waits until `may_be_done` is true. In any case, it is due in 30 seconds at
        the earliest, and in an hour at the latest.
        """
        may_be_done_at = self.erased_at + MAX_REQUEST_DURATION
        due_at = max(now + MIN_BACKOFF, may_be_done_at, *times)
        return replace(self, due_at=min(due_at, now + MAX_BACKOFF))

    def unknown(self, now: datetime) -> Erasure:
        """Return the new state of this erasure after a PSP reported the guest as unknown.

        The PSP may not know the guest yet, so the next check is due when a repeated answer would
        be final (`is_confirmed`).
        """
        since = min(self.unknown_since or now, now)
        return replace(self, unknown_since=since, due_at=since + UNKNOWN_FOR)

    def waiting_for(self, accounts: Iterable[PspAccount]) -> Erasure:
        """Return a copy of this erasure that waits for the given merchant accounts."""
        return replace(self, waits_for=tuple(sorted(set(accounts))))

    def done(self, now: datetime, *, out_of_reach: Iterable[PspAccount] = ()) -> Erasure:
        """Return a copy of this erasure that is done.

        `out_of_reach` are closed merchant accounts whose PSPs have not deleted the guest.
        """
        done = replace(self.waiting_for(()), due_at=None, done_at=now)
        # The accounts that an earlier run of this erasure could not reach are kept.
        return replace(done, out_of_reach=tuple(sorted({*self.out_of_reach, *out_of_reach})))


class Erasures(Protocol):
    """Repository of erasures, by the id of the guest."""

    def add(self, erasure: Erasure) -> None:
        """Store a new erasure. Raises AlreadyStored if the guest was already erased or merged."""
        ...

    def get(self, guest_id: GuestId) -> Erasure | None:
        """Return the erasure of a guest, or None.

        In a write unit, this call also locks the erasure.
        """
        ...

    def update(self, erasure: Erasure) -> None:
        """Replace a stored erasure."""
        ...

    def reopen(self, guest_id: GuestId, now: datetime) -> None:
        """Make a guest's erasure due now, even if it is done. Do nothing if there is no erasure."""
        ...

    def among(self, guest_ids: Collection[GuestId]) -> frozenset[GuestId]:
        """Return which of these guests were erased or merged."""
        ...

    def merged_into(self, guest_id: GuestId) -> Sequence[GuestId]:
        """Return the guests who were merged into a guest, sorted by id, without locking them."""
        ...

    def last_merge_into(self, guest_id: GuestId) -> datetime | None:
        """Return when another guest was last merged into a guest, or None.

        The erasure is not locked.
        """
        ...

    def merge_on(self, merged: GuestId, remaining: GuestId) -> None:
        """Record that `merged` was merged into `remaining`.

        The erasures of the guests who were merged into `merged` then name `remaining` instead.
        """
        ...

    def due(self, now: datetime, *, at_most: int) -> Sequence[Erasure]:
        """Return at most `at_most` due erasures, in the order in which they became due."""
        ...

    def count_unfinished(self) -> Waiting:
        """Return how many erasures the PSPs have not completed, and when the oldest of them began."""
        ...

    def unfinished(self) -> Sequence[Erasure]:
        """Return the erasures that are not done, oldest first, except those that cannot be decoded."""
        ...


AtPsps: TypeAlias = Sequence[tuple[PspAccount, GuestReference]]
"""A guest's references at PSPs, each with its merchant account."""


class ErasureFile(Protocol):
    """A file outside the backups that lists the erased and merged guests.

    A restored backup contains guests who were erased after the backup was made. This file still
    lists them. It also contains their references at PSPs, which the backup may lack.
    """

    def note(
        self,
        guest_id: GuestId,
        at: datetime,
        at_psps: AtPsps,
        *,
        merged_into: GuestId | None = None,
    ) -> None:
        """Add a guest who was erased or merged at the given time.

        The entry is on disk when this returns. May be called more than once for the same guest.
        Raises ServiceUnavailable if the file cannot be written.
        """
        ...

    def erased(self) -> Mapping[GuestId, AtPsps]:
        """Return every guest in the file with the guest's references.

        The guests are in the order of their last lines. After guest A was merged into guest B, a
        restored backup may contain A again. If guest C is then merged into A, the merge of A no
        longer applies, and A is left out.
        """
        ...

    def merged(self) -> Mapping[GuestId, GuestId]:
        """Return the guests that the file lists as merged, each with the guest who remained.

        Guests that `erased` leaves out are left out here too.
        """
        ...


class ErasureLog(Protocol):
    """Logs erasures for operators. Use cases call it after a successful commit."""

    def __call__(
        self, guest_id: GuestId, *, is_done: bool, out_of_reach: Collection[PspAccount] = ()
    ) -> None:
        """Log that a guest was erased. Never raises.

        `is_done` means that the guest was also deleted at the PSPs, except at the closed merchant
        accounts `out_of_reach`.
        """
        ...

    def not_done(self, guest_id: GuestId, waits_for: Collection[PspAccount]) -> None:
        """Log that an erasure is not done after 24 hours, and for which merchant accounts it waits.

        Never raises.
        """
        ...
