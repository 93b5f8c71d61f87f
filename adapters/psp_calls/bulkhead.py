"""The bulkhead: a limit on the calls to PSPs that run at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore
from typing import Final

from domain.psps.payment_provider import ProviderUnavailable

WAIT_SECONDS: Final = 0.5
"""How long a call waits for a free place. This is enough for a burst of guests, but too short to
wait for a PSP that hangs.
"""


class Bulkhead:
    """Limits the number of concurrent calls, so that a PSP that hangs cannot occupy every thread."""

    def __init__(self, calls: int) -> None:
        self._free = BoundedSemaphore(calls)

    @contextmanager
    def around_call(self) -> Iterator[None]:
        """Occupy a place during a `with` block.

        Raises ProviderUnavailable if no place becomes free within half a second.
        """
        if not self._free.acquire(timeout=WAIT_SECONDS):
            raise ProviderUnavailable("too many calls to PSPs are under way")
        try:
            yield
        finally:
            self._free.release()
