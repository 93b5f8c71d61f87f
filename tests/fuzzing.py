"""The number of generated inputs that a test tries."""

from __future__ import annotations

import os
from typing import Final

TIMES: Final = int(os.environ.get("FUZZ_TIMES", "1"))
"""The usual number of inputs is multiplied by this. `make fuzz` sets it."""
