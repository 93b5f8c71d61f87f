"""How many generated inputs tests try."""

from __future__ import annotations

import os
from typing import Final

TIMES: Final = int(os.environ.get("FUZZ_TIMES", "1"))
"""Multiplies the number of inputs; `make fuzz` sets it."""
