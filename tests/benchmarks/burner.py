"""Simulates a machine that is shared with other busy programs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

CORES: Final = 2


@contextmanager
def burner_on_two_cores() -> Iterator[None]:
    """Restrict this process and its children to two cores, together with a busy process."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:CORES])
    try:
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as burner:
            try:
                yield
            finally:
                burner.kill()
    finally:
        os.sched_setaffinity(0, allowed)
