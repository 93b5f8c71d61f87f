"""Several threads may decode a type first, so msgspec must have prepared the type earlier."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from tests.programs import ROOT

# Each round has new types, and threads that take turns as often as they can. A type that nobody has
# taught ends the process within some twenty rounds.
ROUNDS: Final = 30
PROGRAM: Final = """
import importlib, sys, threading
import msgspec

module, name, document, rounds = *sys.argv[1:4], int(sys.argv[4])
sys.setswitchinterval(1e-6)
for _ in range(rounds):
    type_ = getattr(importlib.reload(importlib.import_module(module)), name)
    barrier = threading.Barrier(12)

    def read():
        barrier.wait()
        msgspec.json.decode(document, type=type_)

    threads = [threading.Thread(target=read) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_decoding_a_type_for_the_first_time_in_several_threads_does_not_crash() -> None:
    module, name = "adapters.stripe.payloads", "CheckoutSession"
    document = '{"id": "cs_1", "livemode": false, "status": "open", "expires_at": 1}'
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, module, name, document, str(ROUNDS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
