"""Kills a service repeatedly while it erases guests, and looks for data that remains.

`make torture` does it on SQLite and on PostgreSQL, and prints the result.
"""

from __future__ import annotations

import http.client
import random
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import click
import structlog

from adapters.psp_suite.samples import a_uuid
from adapters.stripe.plugin import NAME as STRIPE
from adapters.system import SystemClock
from domain.cards.account import AccountFilter
from domain.identifiers import GuestId
from domain.sessions.end import SessionStatus
from tests.builders import OTHER_CENTER_ID, a_center, a_guest
from tests.entrypoints.load import Machine, Machines
from tests.entrypoints.torture import STORAGES, Storage
from tests.fake_stripe.server import FakeStripeServer, running
from tests.fake_stripe.stripe import TEST_KEY, TEST_SECRET
from tests.installation import GOOD_CARD, OTHER_GOOD_CARD, Installation
from tests.waiting import LIMIT_SECONDS, wait_until

LAST_NAME, STREET = "Ohnesorg-Wilhelmina", "12 Kaiserallee"
BILLING: Final = {"first_name": "Erna", "last_name": LAST_NAME, "address": STREET}
ERASED_WITHIN_SECONDS: Final = 0.03
"""The kill comes within this time after the request."""
ROUNDS_TO_END: Final = 20


class Erased(NamedTuple):
    """What was done, and which data is wrongly left.

    `fates` counts the requests by their response. `back` is how often the service refused to start
    until `guest erase --again` was run, because the file listed a guest whose erasure was not
    committed.
    """

    guests: int
    fates: Counter[str]
    back: int
    left: list[str]


def erase_under_kills(
    storage: Storage, stripe: FakeStripeServer, *, kills: int, seed: int
) -> Erased:
    """Erase a guest in each round while the service is killed. Check in the end what is left.

    Each guest has three cards at two PSPs, a card that was just typed, and an open page. The request
    is repeated until it is answered.
    """
    machines, chance = storage.machines, random.Random(seed)
    (machine,), installation = machines.each, machines.installation
    installation.has_center(a_center(id=OTHER_CENTER_ID, name="Corner Hair Salon"))
    installation.configure(OTHER_CENTER_ID, provider=STRIPE)
    guests, fates, back, left = list[GuestId](), Counter[str](), 0, list[str]()
    machines.start()
    for number in range(kills):
        guests.append(_guest_with_cards(installation, stripe, number))
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(_erase, machine, machines.token, guests[-1])
            time.sleep(chance.uniform(0, ERASED_WITHIN_SECONDS))
            machine.kill()
            fates[running.result()] += 1
        back += _start(machine)
        wait_until(lambda: _erase(machine, machines.token, guests[-1]) in ("200", "404"))
        left += _left_at_once(installation, guests)
    machine.stop()
    _finish(installation)
    return Erased(len(guests), fates, back, [*left, *_left(machines, stripe, guests)])


def _guest_with_cards(installation: Installation, stripe: FakeStripeServer, number: int) -> GuestId:
    guest_id = GuestId(a_uuid(9_000 + number))
    now = datetime.now(UTC)
    installation.clock.advance(now - installation.clock.now())
    installation.has_guest(a_guest(id=guest_id, first_name="Erna", last_name=LAST_NAME))
    # Any: fields of any type of AddCardRequest.
    changes: dict[str, Any] = {"guest_id": guest_id, "billing_info": BILLING}
    for card in (GOOD_CARD, OTHER_GOOD_CARD):
        installation.returned_session(card, **changes)
    at_stripe = installation.add_card(center_id=OTHER_CENTER_ID, **changes)
    reference = urlsplit(installation.open_page(at_stripe)).path.rpartition("/")[2]
    stripe.stripe.submit_card(reference, GOOD_CARD)
    installation.return_to_shop(at_stripe)
    installation.session_with_card(**changes)
    installation.open_page(installation.add_card(center_id=OTHER_CENTER_ID, **changes))
    with installation.storage.read() as unit:
        active = AccountFilter(guest_id=guest_id, only_active=True)
        assert len(unit.accounts.search(active, limit=9)) == 3
    return guest_id


def _erase(machine: Machine, token: str, guest_id: GuestId) -> str:
    """Return the status of the response, or what happened instead."""
    connection = http.client.HTTPConnection("127.0.0.1", machine.port, timeout=LIMIT_SECONDS)
    try:
        headers = {"Authorization": f"bearer {token}"}
        connection.request("DELETE", f"/api/v1/guests/{guest_id}", headers=headers)
        return str(connection.getresponse().status)
    except (ConnectionError, http.client.HTTPException):
        return "cut off"
    finally:
        connection.close()


def _start(machine: Machine) -> bool:
    """Start a machine. Return whether a guest had to be erased again first."""
    program = machine.start()
    wait_until(
        lambda: program.process.poll() is not None or machine.status("/readyz") == 200,
    )
    if program.process.poll() is None:
        return False
    machine.command("guest", "erase", "--again")
    machine.start()
    machine.wait_until_ready()
    return True


def _left_at_once(installation: Installation, guests: list[GuestId]) -> list[str]:
    """Return data that the commit of an answered erasure should have removed."""
    with installation.storage.read() as unit:
        active = [
            f"account {account.account_id} is active"
            for guest_id in guests
            for account in unit.accounts.search(
                AccountFilter(guest_id=guest_id, only_active=True), limit=9
            )
        ]
        is_on_file = [f"{each} is on file" for each in guests if unit.guests.get(each)]
        sessions = [each for guest_id in guests for each in unit.sessions.of_guest(guest_id)]
    going_on = [
        f"session {each.token_id} goes on"
        for each in sessions
        if each.status is SessionStatus.OPEN and each.cancelled_at is None
    ]
    return [*active, *is_on_file, *going_on]


def _finish(installation: Installation) -> None:
    installation.clock.advance(datetime.now(UTC) - installation.clock.now())
    for _ in range(ROUNDS_TO_END):
        installation.clock.advance(timedelta(minutes=10))
        installation.reconcile()
        while installation.container.finish_erasures()():
            pass


def _left(machines: Machines, stripe: FakeStripeServer, guests: list[GuestId]) -> list[str]:
    """Return what is left after all work is done."""
    installation = machines.installation
    left = _left_at_once(installation, guests)
    with installation.storage.read() as unit:
        for guest_id in guests:
            erasure = unit.erasures.get(guest_id)
            if erasure is None or erasure.done_at is None:
                left.append(f"the erasure of {guest_id} is not done: {erasure}")
            left += [
                f"{session}"
                for session in unit.sessions.of_guest(guest_id)
                if session.redirect_uri or session.has_page
            ]
    left += [f"{token} at the fake PSP" for token in installation.tokens_at_psp()]
    main = stripe.stripe.main
    alive = {each["id"] for each in main.customers.values() if not each.get("deleted")}
    left += [f"customer {each} at Stripe" for each in alive]
    left += [
        f"{each['id']} at Stripe" for each in main.methods.values() if each["customer"] in alive
    ]
    installation.close()
    folder = machines.psp_database.parent
    for file in folder.iterdir():
        content = file.read_bytes() if file.is_file() else b""
        left += [
            f"{text} in {file.name}" for text in (LAST_NAME, STREET) if text.encode() in content
        ]
    noted = installation.container.erasure_file().erased().keys()
    return [*left, *(f"{each} is not in the file" for each in guests if each not in noted)]


def erase_on(name: str, folder: Path, *, kills: int, seed: int) -> Erased:
    """Run the test on one storage, in an empty folder."""
    with running(SystemClock()) as stripe:
        settings = {
            "CARDONFILE_STRIPE_SECRET_KEY": TEST_KEY,
            "CARDONFILE_STRIPE_WEBHOOK_SECRETS": TEST_SECRET,
            "CARDONFILE_STRIPE_API_BASE": stripe.url,
            "CARDONFILE_ERASURES_FILE": str(folder / "erasures.txt"),
        }
        with STORAGES[name](folder, **settings) as storage:
            return erase_under_kills(storage, stripe, kills=kills, seed=seed)


@click.command()
@click.option(
    "--kills",
    default=50,
    show_default=True,
    help="How many times to kill the service with SQLite, and with PostgreSQL.",
)
@click.option("--seed", default=1, show_default=True, help="The seed for all random choices.")
def main(kills: int, seed: int) -> None:
    """Kill the service while it erases guests, on each storage, and print what is left."""
    structlog.configure(processors=[], logger_factory=structlog.ReturnLoggerFactory())
    is_broken = False
    for name in STORAGES:
        with tempfile.TemporaryDirectory() as folder:
            erased = erase_on(name, Path(folder), kills=kills, seed=seed)
        fates = ", ".join(f"{count} {fate}" for fate, count in sorted(erased.fates.items()))
        click.echo(
            f"{name}: {erased.guests} guests erased; requests under a kill: {fates}; --again was "
            f"needed {erased.back} times; {len(erased.left)} things left"
        )
        for each in erased.left:
            click.echo(f"{name}: {each}")
        is_broken = is_broken or bool(erased.left)
    raise SystemExit(is_broken)


if __name__ == "__main__":
    main()
