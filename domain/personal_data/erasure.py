"""Guests who were erased, and whether anything of them is left."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeAlias

from domain.identifiers import GuestId, GuestReference, PspAccount
from domain.psps.payment_provider import UNKNOWN_FOR
from domain.retries import CLOCKS_DIFFER_BY, MAX_BACKOFF, MIN_BACKOFF, Waiting, next_retry

REQUESTS_END_WITHIN: Final = timedelta(minutes=1) + CLOCKS_DIFFER_BY
"""A request that has read the guest before the erasure has stored what it stores by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """The erasure of a guest. It is kept for good, so that no guest comes back under the id.

    `due_at` is when the worker looks next what is left. It is None once nothing is, since `done_at`.
    Until then `waits_for` are the merchant accounts whose PSPs have something of the guest. Once it is
    done, `out_of_reach` are those that were closed before their PSP had forgotten the guest.
    `unknown_since` is since when a PSP has not known the guest.
    """

    guest_id: GuestId
    erased_at: datetime
    due_at: datetime | None
    done_at: datetime | None = None
    waits_for: tuple[PspAccount, ...] = ()
    out_of_reach: tuple[PspAccount, ...] = ()
    unknown_since: datetime | None = None

    def may_be_done(self, now: datetime) -> bool:
        """Return whether no request can store anything of the guest any more."""
        return now >= self.erased_at + REQUESTS_END_WITHIN

    def looked_at(self, now: datetime) -> Erasure:
        """Note a look. The next one comes after a growing wait, unless another time is set."""
        # A clock that was ahead may have set the time.
        erased_at = min(self.erased_at, now)
        return replace(self, erased_at=erased_at, due_at=next_retry(erased_at, now))

    def due_after(self, *times: datetime, now: datetime) -> Erasure:
        """Note that nothing was refused. It is due when all `times` are past and it may be done.

        That is in 30 seconds at the earliest, and in an hour at the latest.
        """
        may_be_done_at = self.erased_at + REQUESTS_END_WITHIN
        due_at = max(now + MIN_BACKOFF, may_be_done_at, *times)
        return replace(self, due_at=min(due_at, now + MAX_BACKOFF))

    def unknown(self, now: datetime) -> Erasure:
        """Note that a PSP does not know the guest, and is asked again once that can be confirmed."""
        since = min(self.unknown_since or now, now)
        return replace(self, unknown_since=since, due_at=since + UNKNOWN_FOR)

    def waiting_for(self, accounts: Iterable[PspAccount]) -> Erasure:
        """Note at which merchant accounts something is left."""
        return replace(self, waits_for=tuple(sorted(set(accounts))))

    def done(self, now: datetime, *, out_of_reach: Iterable[PspAccount] = ()) -> Erasure:
        """Note that nothing is left, except `out_of_reach`."""
        done = replace(self.waiting_for(()), due_at=None, done_at=now)
        # One that is looked at once more keeps what it could not reach before.
        return replace(done, out_of_reach=tuple(sorted({*self.out_of_reach, *out_of_reach})))


class Erasures(Protocol):
    """The erasures of guests, by the guest's id."""

    def add(self, erasure: Erasure) -> None:
        """Store an erasure. Raises AlreadyStored when the guest was erased before."""
        ...

    def get(self, guest_id: GuestId) -> Erasure | None:
        """Return the erasure of a guest, or None. A write unit locks it."""
        ...

    def update(self, erasure: Erasure) -> None:
        """Store an erasure that exists."""
        ...

    def reopen(self, guest_id: GuestId, now: datetime) -> None:
        """Make the erasure of a guest due now, also one that is done; none is fine."""
        ...

    def among(self, guest_ids: Collection[GuestId]) -> frozenset[GuestId]:
        """Return those of these guests who were erased."""
        ...

    def due(self, now: datetime, *, at_most: int) -> Sequence[Erasure]:
        """Return erasures that are due, those first that have been due the longest."""
        ...

    def count_left(self) -> Waiting:
        """Count the erasures that are not done, since the first of them."""
        ...

    def left(self) -> Sequence[Erasure]:
        """Return the erasures that are not done and can be decoded, the first ones first."""
        ...


AtPsps: TypeAlias = Sequence[tuple[PspAccount, GuestReference]]
"""The references of a guest, and where they are."""


class ErasureFile(Protocol):
    """A file outside the backups that names the guests who were erased.

    A backup that is restored brings back who was erased since; this file does not forget them. An
    older copy of the records may not know the guest at a PSP, so the file has the references too.
    """

    def note(self, guest_id: GuestId, now: datetime, at_psps: AtPsps) -> None:
        """Add a guest, on disk before this returns. Raises ServiceUnavailable."""
        ...

    def erased(self) -> Mapping[GuestId, AtPsps]:
        """Return every guest in it, and the references of each."""
        ...


class ErasureLog(Protocol):
    """Tells operators of erasures. Use cases call it once their commit has succeeded."""

    def __call__(
        self, guest_id: GuestId, *, is_done: bool, out_of_reach: Collection[PspAccount] = ()
    ) -> None:
        """Log that a guest was erased here or, when it is done, at the PSPs too. Never raises.

        It is not at the merchant accounts `out_of_reach`, which are closed.
        """
        ...

    def not_done(self, guest_id: GuestId, waits_for: Collection[PspAccount]) -> None:
        """Log that an erasure is not done after 24 hours, and what it waits for. Never raises."""
        ...
