"""Add-card where more and more sessions are stored, up to ten million."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import pysqlite3

from tests.benchmarks.load import WARM_UP_SECONDS, add_cards
from tests.benchmarks.results import Grown
from tests.benchmarks.servers import OURS, Sample, Site, make_site

SIZES: Final = (1_000, 100_000, 1_000_000, 10_000_000)
CONNECTIONS: Final = (1, 16)
