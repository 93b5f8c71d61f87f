"""Log refusals that anybody on the internet can cause.

The number of lines in each minute is limited, so that nobody can fill the log.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

import structlog

log = structlog.get_logger()


class RefusalLog:
    """Logs refusals as warnings. In each minute, it logs a limited number of lines of each kind."""

    def __init__(self, lines_a_minute: int, now: Callable[[], float] = time.monotonic) -> None:
        """Set the limit of lines of each kind in a minute. `now` returns the time in seconds."""
        self._limit, self._now, self._lock = lines_a_minute, now, threading.Lock()
        self._minute, self._lines = 0.0, Counter[tuple[str, str]]()
        self._said = set[tuple[str | None, ...]]()

    def warning(
        self, event: str, said: Mapping[str, str | None], *, kind: str = "", once: bool = False
    ) -> None:
        """Log an event with the fields in `said`, unless the limit is reached.

        The limit applies to the lines with the same `event` and `kind`. Many lines of one kind
        therefore do not prevent lines of another kind. Do not use many kinds, because each kind has
        a limit of its own. With `once`, a line is not repeated in the same minute.
        """
        minute, line = self._now() // 60, (event, kind, *said.values())
        with self._lock:
            if minute != self._minute:
                self._minute = minute
                self._lines.clear()
                self._said.clear()
            if self._lines[event, kind] >= self._limit or line in self._said:
                return
            self._lines[event, kind] += 1
            if once:
                self._said.add(line)
        log.warning(event, **said)
