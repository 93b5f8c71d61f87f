"""Kills an import of cards again and again, and checks what is stored after it was completed.

.venv/bin/python -m tests.entrypoints.importing --cards 10000 --kills 3
"""

from __future__ import annotations

import csv
import random
import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import click
import structlog

from adapters.psp_suite.samples import a_uuid
from domain.cards.account import AccountFilter
from domain.cards.import_card import Fate
from domain.events.event import EventType
from domain.identifiers import GuestId
from domain.pagination import ALL
from domain.psps.card import Card
from tests.builders import CENTER_ID, a_guest, an_event_endpoint
from tests.entrypoints.torture import STORAGES, Storage
from tests.installation import GOOD_CARD, MERCHANT, OTHER_GOOD_CARD, Installation
from tests.waiting import wait_until

COLUMNS: Final = (
    *("guest_id", "center_id", "provider", "merchant_account", "guest_reference", "token"),
    *("consented_at", "consent_version"),
)
PER_MINUTE: Final = 6_000
EVERY: Final = 10
"""Of so many lines, one is of a card that the PSP has lost, and one of a card that is there twice."""


class Imported(NamedTuple):
    """How many lines there were, those told by what was told, and all that is wrong."""

    lines: int
    stored: int
    told: Counter[str]
    seconds: float
    wrong: list[str]


def import_under_kills(storage: Storage, *, cards: int, kills: int, seed: int) -> Imported:
    """Import a file with so many lines, kill the import at random, and complete it."""
    (machine,), installation = storage.machines.each, storage.machines.installation
    installation.clock.advance(datetime.now(UTC) - installation.clock.now())
    with installation.storage.write() as unit:
        unit.event_endpoints.add(
            an_event_endpoint(
                types=(EventType.ACCOUNT_STORED,), created_at=installation.clock.now()
            )
        )
        unit.commit()
    file = storage.machines.psp_database.with_name("cards.csv")
    expected = _write(installation, file, cards)
    tokens = installation.tokens_at_psp()
    chance, begun = random.Random(seed), time.monotonic()
    good = sorted(set(range(2, cards + 2)) - expected.keys())
    command = ("import", "cards", str(file), "--per-minute", str(PER_MINUTE))
    for kill in range(1, kills + 1):
        enough = len(good) * kill // (kills + 1) + chance.randrange(1, 2 + len(good) // 20)
        with machine.begin(*command, stderr=subprocess.DEVNULL) as importing:
            _wait_for(installation, enough)
            importing.send_signal(signal.SIGKILL)
            assert importing.wait() == -signal.SIGKILL, "the import ended before it was killed"
    importing = machine.begin(*command)
    _, told = importing.communicate()
    seconds = time.monotonic() - begun
    found = {int(line): why for line, why in re.findall(r"line (\d+): (.*)", told)}
    wrong = [
        f"line {line}: {found.get(line)}" for line in found if found[line] != expected.get(line)
    ]
    wrong += [f"line {line} was not told" for line in expected.keys() - found.keys()]
    wrong += [f"exit status {importing.returncode}: {told}"] * (importing.returncode != 1)
    wrong += [f"discarded: {token}" for token in tokens - installation.tokens_at_psp()]
    stored = _stored_wrongly(installation, wrong, len(good))
    return Imported(cards, stored, Counter(found.values()), seconds, wrong)


def _write(installation: Installation, file: Path, cards: int) -> dict[int, str]:
    """Store cards at the PSP, write the file, and return the lines that cannot be imported."""
    expected = dict[int, str]()
    with file.open("w", newline="") as opened:
        rows = csv.writer(opened)
        rows.writerow(COLUMNS)
        before: tuple[GuestId, Card] | None = None
        for line in range(2, cards + 2):
            guest_id, card = GuestId(a_uuid(50_000 + line)), None
            if line % EVERY == 0 and before is not None:
                guest_id, twin = before
                card = installation.card_at_psp(GOOD_CARD, twin.guest_reference)
                expected[line] = Fate.SAME_CARD.value
            else:
                installation.has_guest(a_guest(id=guest_id))
                card = installation.card_at_psp(OTHER_GOOD_CARD if line % 2 else GOOD_CARD)
            if line % EVERY == 1:
                installation.psp.discard(MERCHANT, card.guest_reference, card.token)
                expected[line] = Fate.GONE.value
            if line % EVERY == 8:
                before = guest_id, card
            row = (guest_id, CENTER_ID, "fake", MERCHANT, card.guest_reference, card.token)
            rows.writerow((*row, "2024-05-31", "2024-05"))
    return expected


def _wait_for(installation: Installation, enough: int) -> None:
    def are_enough() -> bool:
        with installation.storage.read() as unit:
            return len(unit.accounts.search(AccountFilter(), limit=enough)) == enough

    wait_until(are_enough, seconds=600)


def _stored_wrongly(installation: Installation, wrong: list[str], good: int) -> int:
    with installation.storage.read() as unit:
        accounts = unit.accounts.search(AccountFilter(), limit=ALL)
        told = unit.event_deliveries.latest(limit=ALL, only_failed=False)
        imports = unit.audit_trail.latest(about="cards")
    if len(accounts) != good:
        wrong.append(f"{len(accounts)} accounts instead of {good}")
    tokens, guests = Counter(each.token for each in accounts), {each.guest_id for each in accounts}
    wrong += [f"{times} accounts of {token}" for token, times in tokens.items() if times > 1]
    defaults = Counter(each.guest_id for each in accounts if each.is_default)
    wrong += [f"{defaults[guest]} defaults of {guest}" for guest in guests if defaults[guest] != 1]
    events = Counter(each.event.account_id for each in told)
    wrong += [
        f"{events[each.account_id]} events of {each.account_id}"
        for each in accounts
        if events[each.account_id] != 1
    ]
    if len(told) != len(accounts) or not imports:
        wrong.append(f"{len(told)} events, {len(imports)} entries in the audit trail")
    return len(accounts)


def import_on(name: str, folder: Path, *, cards: int, kills: int, seed: int) -> Imported:
    """Do it on a storage, in an empty folder."""
    with STORAGES[name](folder) as storage:
        return import_under_kills(storage, cards=cards, kills=kills, seed=seed)


@click.command()
@click.option("--cards", default=10_000, show_default=True, help="How many lines the file has.")
@click.option("--kills", default=3, show_default=True, help="How often the import is killed.")
@click.option("--seed", default=1, show_default=True, help="The seed of all random choices.")
def main(cards: int, kills: int, seed: int) -> None:
    """Kill an import of cards, complete it, and print what is stored, on each storage."""
    structlog.configure(processors=[], logger_factory=structlog.ReturnLoggerFactory())
    is_broken = False
    for name in STORAGES:
        with tempfile.TemporaryDirectory() as folder:
            done = import_on(name, Path(folder), cards=cards, kills=kills, seed=seed)
        told = ", ".join(f"{count} × {why}" for why, count in sorted(done.told.items()))
        click.echo(
            f"{name}: {done.lines} lines, {kills} kills: {done.stored} accounts in "
            f"{done.seconds:.0f} s; told by line: {told}; {len(done.wrong)} things wrong"
        )
        for each in done.wrong[:20]:
            click.echo(f"{name}: {each}")
        is_broken = is_broken or bool(done.wrong)
    raise SystemExit(is_broken)


if __name__ == "__main__":
    main()
