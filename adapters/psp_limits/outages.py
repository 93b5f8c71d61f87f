"""The log of PSPs' outages: a line when calls begin to fail, and one when they succeed again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from threading import Lock

import structlog

from domain.identifiers import PspAccount
from domain.ports import FailureDetails, ProviderRefused, ProviderUnavailable
from domain.recognize_merchant import AnotherMerchant

log = structlog.get_logger()


class OutageLog:
    """Logs the state of each operation at each merchant account, once per change.

    The events are `psp_away`, `psp_refuses` and `psp_back`. An operation is a method of
    `PaymentProvider`. A line of a failure has its `details`. Each process keeps the states for
    itself.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._failing: dict[tuple[PspAccount, str], type[Exception]] = {}

    @contextmanager
    def around_call(self, account: PspAccount, operation: str) -> Iterator[None]:
        """Watch over a call to the PSP. Whatever it raises is raised again."""
        call = {**account._asdict(), "operation": operation}
        # Of a failure only the kind, the place and the details are written: an adapter may have put
        # into its text what the PSP sent.
        try:
            yield
        except AnotherMerchant:
            # Its own line in the log says what to do.
            raise
        except ProviderUnavailable as failure:
            if self._has_changed(account, operation, ProviderUnavailable):
                log.error("psp_away", **call, **_given(failure.details), exc_info=failure)
            raise
        except ProviderRefused as refusal:
            if self._has_changed(account, operation, ProviderRefused):
                log.error("psp_refuses", **call, **_given(refusal.details), exc_info=refusal)
            raise
        if self._has_changed(account, operation, None):
            log.warning("psp_back", **call)

    def _has_changed(
        self, account: PspAccount, operation: str, failure: type[Exception] | None
    ) -> bool:
        """Keep the state that a call has shown, and tell whether it was another before."""
        with self._lock:
            before = self._failing.pop((account, operation), None)
            if failure is not None:
                self._failing[account, operation] = failure
        return before is not failure


def _given(details: FailureDetails) -> dict[str, str | int]:
    return {name: value for name, value in asdict(details).items() if value is not None}
