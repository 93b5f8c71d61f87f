"""Erased guests, and whether any of their data is left."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeAlias

from domain.identifiers import GuestId, GuestReference, PspAccount
from domain.psps.payment_provider import UNKNOWN_FOR
from domain.retries import CLOCKS_DIFFER_BY, MAX_BACKOFF, MIN_BACKOFF, Waiting, next_retry

REQUESTS_END_WITHIN: Final = timedelta(minutes=1) + CLOCKS_DIFFER_BY
"""How long a request that read the guest before the erasure may still run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """The erasure of a guest.

    It is kept permanently, so that the id is never used for a new guest.

    `due_at` is the time of the worker's next check. It is None once the erasure is done, at
    `done_at`. Until then, `waits_for` are the merchant accounts whose PSPs still have data of the
    guest. Afterwards, `out_of_reach` are the accounts that were closed before their PSP deleted the
    guest. `unknown_since` is when a PSP first answered that it does not know the guest.

    `merged_into` is set if the guest was not erased but merged: cards and references then belong to
    that guest, and no PSP is asked to delete anything.
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
        """Return whether no running request can still store data of the guest."""
        return now >= self.erased_at + REQUESTS_END_WITHIN

    def looked_at(self, now: datetime) -> Erasure:
        """Record a check. The next check comes after a growing wait, unless another time is set."""
        # A clock that was ahead may have set this time.
        erased_at = min(self.erased_at, now)
        return replace(self, erased_at=erased_at, due_at=next_retry(erased_at, now))

    def due_after(self, *times: datetime, now: datetime) -> Erasure:
        """Record that no PSP refused.

        The next check is due when all `times` have passed and the erasure may be done. That is in
        30 seconds at the earliest, and in an hour at the latest.
        """
        may_be_done_at = self.erased_at + REQUESTS_END_WITHIN
        due_at = max(now + MIN_BACKOFF, may_be_done_at, *times)
        return replace(self, due_at=min(due_at, now + MAX_BACKOFF))

    def unknown(self, now: datetime) -> Erasure:
        """Record that a PSP does not know the guest, or does not know the guest yet.

        The PSP is asked again when its answer can be confirmed.
        """
        since = min(self.unknown_since or now, now)
        return replace(self, unknown_since=since, due_at=since + UNKNOWN_FOR)

    def waiting_for(self, accounts: Iterable[PspAccount]) -> Erasure:
        """Record the merchant accounts that still have data of the guest."""
        return replace(self, waits_for=tuple(sorted(set(accounts))))

    def done(self, now: datetime, *, out_of_reach: Iterable[PspAccount] = ()) -> Erasure:
        """Record that no data of the guest is left, except at `out_of_reach`."""
        done = replace(self.waiting_for(()), due_at=None, done_at=now)
        # Keep the accounts that an earlier run of this erasure could not reach.
        return replace(done, out_of_reach=tuple(sorted({*self.out_of_reach, *out_of_reach})))


class Erasures(Protocol):
    """The erasures of guests, by the guest's id."""

    def add(self, erasure: Erasure) -> None:
        """Store an erasure. Raises AlreadyStored if the guest was erased before."""
        ...

    def get(self, guest_id: GuestId) -> Erasure | None:
        """Return the erasure of a guest, or None. A write unit locks it."""
        ...

    def update(self, erasure: Erasure) -> None:
        """Store an erasure that exists."""
        ...

    def reopen(self, guest_id: GuestId, now: datetime) -> None:
        """Make a guest's erasure due now, even if it is done. Does nothing if there is no erasure."""
        ...

    def among(self, guest_ids: Collection[GuestId]) -> frozenset[GuestId]:
        """Return which of these guests were erased or merged."""
        ...

    def merged_into(self, guest_id: GuestId) -> Sequence[GuestId]:
        """Return the guests who were merged into a guest, by id. Locks nothing."""
        ...

    def last_merge_into(self, guest_id: GuestId) -> datetime | None:
        """Return when another guest was last merged into a guest, or None. Locks nothing."""
        ...

    def merge_on(self, goes: GuestId, stays: GuestId) -> None:
        """Note that all guests who were merged into `goes` are now merged into `stays`."""
        ...

    def due(self, now: datetime, *, at_most: int) -> Sequence[Erasure]:
        """Return erasures that are due, beginning with the one due for the longest time."""
        ...

    def count_left(self) -> Waiting:
        """Count the erasures that are not done, and return the time of the oldest."""
        ...

    def left(self) -> Sequence[Erasure]:
        """Return the readable erasures that are not done, oldest first."""
        ...


AtPsps: TypeAlias = Sequence[tuple[PspAccount, GuestReference]]
"""A guest's references, with the merchant accounts where they are."""


class ErasureFile(Protocol):
    """A file outside the backups that names the erased guests.

    A restored backup brings back guests who were erased after the backup was made. This file still
    names them. It also contains their references at PSPs, which the backup may lack.
    """

    def note(
        self,
        guest_id: GuestId,
        at: datetime,
        at_psps: AtPsps,
        *,
        merged_into: GuestId | None = None,
    ) -> None:
        """Add a guest who was erased or merged at a time, on disk before this returns.

        May be called again. Raises ServiceUnavailable.
        """
        ...

    def erased(self) -> Mapping[GuestId, AtPsps]:
        """Return every guest in the file, each with the references, in the order of their lines.

        A merged guest is left out if another guest was merged into that guest at a later time. This
        can only happen if the database had lost the first merge.
        """
        ...

    def merged(self) -> Mapping[GuestId, GuestId]:
        """Return the guests in the file who were merged, each with the guest who stayed."""
        ...


class ErasureLog(Protocol):
    """Logs erasures for operators. Use cases call it after a successful commit."""

    def __call__(
        self, guest_id: GuestId, *, is_done: bool, out_of_reach: Collection[PspAccount] = ()
    ) -> None:
        """Log that a guest was erased here or, if done, also at the PSPs. Never raises.

        At the merchant accounts `out_of_reach`, which are closed, the guest was not erased.
        """
        ...

    def not_done(self, guest_id: GuestId, waits_for: Collection[PspAccount]) -> None:
        """Log that an erasure is not done after 24 hours, and what it is waiting for. Never raises."""
        ...
