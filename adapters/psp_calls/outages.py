"""The log of PSP outages: one line when calls begin to fail, and one when they succeed again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from threading import Lock
from typing import Final

import structlog

from domain.identifiers import PspAccount
from domain.psps.payment_provider import (
    FailureDetails,
    NotFound,
    ProviderRefused,
    ProviderUnavailable,
)
from domain.psps.recognize_merchant import AnotherMerchant

LINE_EVERY_SECONDS: Final = 60

_ASKED_AGAIN: Final = frozenset({"outcome", "close", "discard", "forget_guest"})
"""The operations whose NotFound is not an outage, because the PSP may not know the object yet."""

log = structlog.get_logger()


class OutageLog:
    """Logs whether each operation works at each merchant account, with one line for each change.

    An operation is a method of `PaymentProvider`. If an operation keeps failing and recovering, at
    most one pair of lines is logged in a minute. Each process logs separately.

    The log events are `psp_away`, `psp_refuses` and `psp_back`. If the PSP does not find an object,
    and the operation will be repeated, the event is `psp_does_not_find`. The line about a failure
    contains its `details`.

    After each call to a PSP, `observe` receives the names of the PSP, the account and the
    operation, the result, and the duration in seconds. `observe` must not raise an exception.
    """

    def __init__(
        self,
        observe: Callable[[str, str, str, str, float], None] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observe = observe
        self._now = now
        self._lock = Lock()
        self._missing: set[tuple[PspAccount, str, str]] = set()
        self._failing: dict[tuple[PspAccount, str], type[Exception]] = {}
        self._next_line_at: dict[tuple[PspAccount, str, type[Exception]], float] = {}

    @contextmanager
    def around_call(self, account: PspAccount, operation: str) -> Iterator[None]:
        """Record whether the call in a `with` block fails. Its exceptions are not changed."""
        call = {**account._asdict(), "operation": operation}
        result, began = "fault", time.monotonic()
        # The text of an exception is not logged, because an adapter may have put the PSP's data
        # into it.
        try:
            yield
            result = "ok"
        except AnotherMerchant:
            # `MerchantCheck` logs this failure, together with advice.
            result = "unavailable"
            raise
        except ProviderUnavailable as failure:
            result = "unavailable"
            if self._has_changed(account, operation, ProviderUnavailable):
                log.error("psp_away", **call, **_known(failure.details), exc_info=failure)
            raise
        except ProviderRefused as refusal:
            result = "refused"
            if isinstance(refusal, NotFound) and operation in _ASKED_AGAIN:
                log.info("psp_does_not_find", **call, **_known(refusal.details))
            elif self._has_changed(account, operation, ProviderRefused):
                log.error("psp_refuses", **call, **_known(refusal.details), exc_info=refusal)
            raise
        finally:
            if self._observe:
                self._observe(*account, operation, result, time.monotonic() - began)
        if self._has_changed(account, operation, None):
            log.warning("psp_back", **call)

    def note_missing(self, account: PspAccount, operation: str, field: str) -> None:
        """Log once that a card cannot be stored because the response lacks a field."""
        with self._lock:
            is_new = (account, operation, field) not in self._missing
            self._missing.add((account, operation, field))
        if is_new:
            log.error("psp_card_incomplete", **account._asdict(), operation=operation, field=field)

    def _has_changed(
        self, account: PspAccount, operation: str, failure: type[Exception] | None
    ) -> bool:
        """Store the new state of an operation, and return whether the change must be logged.

        `failure` is the type of the exception, or None if the call succeeded.
        """
        now = self._now()
        with self._lock:
            if failure is None:
                return self._failing.pop((account, operation), None) is not None
            is_early = now < self._next_line_at.get((account, operation, failure), now)
            if is_early or self._failing.get((account, operation)) is failure:
                return False
            self._next_line_at[account, operation, failure] = now + LINE_EVERY_SECONDS
            self._failing[account, operation] = failure
        return True


def _known(details: FailureDetails) -> dict[str, str | int]:
    return {name: value for name, value in asdict(details).items() if value is not None}
