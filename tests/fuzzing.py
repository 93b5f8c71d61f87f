"""How long tests look for inputs that break something."""

from __future__ import annotations

import os
from typing import Final

TIMES: Final = int(os.environ.get("FUZZ_TIMES", "1"))
"""How many times as many inputs are tried as by default; `make fuzz` sets it."""
