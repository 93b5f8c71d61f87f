"""Kills a service while guests book, and looks for cards that are kept or removed wrongly.

`make torture` does it on SQLite and on PostgreSQL, and prints the result.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path
from threading import Event
from typing import Final, NamedTuple
from urllib.parse import urlencode

import click
import structlog

from adapters.psp_suite.pages import text_of
from adapters.psp_suite.samples import a_uuid
from domain.cards.account import Account, AccountFilter
from domain.identifiers import AccountId, CardToken, GuestId
from domain.sessions.end import SessionStatus
from tests.builders import a_guest
from tests.domain.agreements.bookings import takes_agreements
from tests.entrypoints.load import (
    BEYOND_LEASES,
    CLIENTS,
    FORM,
    LOST_RESPONSES,
    Added,
    Client,
    Machine,
    Machines,
    Request,
    Unexpected,
    records_of,
)
from tests.entrypoints.torture import STORAGES, Storage
from tests.installation import GOOD_CARD, OTHER_GOOD_CARD, REDIRECT_URI, Installation
from tests.waiting import LIMIT_SECONDS

SHORTEST_SECONDS: Final = 5
LONGEST_SECONDS: Final = 30
"""The longest time until a booking ends."""
KEPT: Final = 0.1
"""The share of guests who tick the box."""
CANCELLED: Final = 0.2
TYPED_AGAIN: Final = 0.2
"""The share of second bookings whose page must not offer the card on file."""
KILL_AFTER_SECONDS: Final = (0.1, 1.5)
"""The range of the times between the readiness of the service and its kill."""
RECONCILE_WITHIN_SECONDS: Final = 2
"""The longest pause between two runs of `reconcile`."""
CHECK_EVERY_SECONDS: Final = 0.3
NUMBERS: Final = (GOOD_CARD, OTHER_GOOD_CARD)
YEARS: Final = range(2030, 2060)
"""The years in which cards expire."""
MAX_CARDS: Final = 10_000

LEFT: Final = "cards left after their time"
GONE: Final = "cards gone before it"
NOT_AS_SHOWN: Final = "agreements without what was shown"
OTHER: Final = "other faults"
KINDS: Final = (LEFT, GONE, NOT_AS_SHOWN, OTHER)


@dataclass(kw_only=True)
class Booking(Added):
    """A booking of a guest as the guest and the shop know it.

    `card` and `expiry` are those of the guest's card. No other guest has the same pair. `text`,
    `button` and `general` are the words on the page whose form the guest sent last. `is_ticked` is
    whether the box on this page was ticked. `is_by_click` is whether the form was about the card on
    file. `holds_until` is when the booking ends, or when the shop began to cancel it.
    """

    terms: Mapping[str, object]
    ends_at: datetime
    expiry: tuple[int, int]
    keeps: bool
    cancels: bool
    text: str = ""
    button: str = ""
    general: str = ""
    is_ticked: bool = False
    is_by_click: bool = False
    holds_until: datetime = field(init=False)

    def __post_init__(self) -> None:
        self.holds_until = self.ends_at

    def read(self, page: str) -> Mapping[str, str]:
        """Read the page on which the guest agrees. Return the form that the button sends."""
        agreement = re.search(r'<div id="agreement">(.*?)</div>', page, re.DOTALL)
        button = re.search(r'<button name="agreed" value="(\w+)"[^>]*>(.*?)</button>', page)
        if agreement is None or button is None:
            raise Unexpected(f"the page has no agreement: {page}")
        card = re.search(r'name="card" value="([^"]+)"', page)
        general = re.search(r'<p id="general">(.*?)</p>', page)
        self.text = "\n".join(map(text_of, re.findall(r"<p>(.*?)</p>", agreement[1])))
        self.button = text_of(button[2])
        self.general = text_of(general[1]) if general else ""
        self.is_ticked = self.keeps and 'name="keep"' in page
        self.is_by_click = card is not None
        form = {"agreed": button[1], "keep": "yes" if self.is_ticked else ""}
        return {**form, "card": card[1]} if card else form


class BookingClient(Client):
    """A shop and its guests. The guests book one after another, and some of them book twice."""

    def __init__(
        self, machines: Machines, name: str, number: int, *, longest_seconds: float
    ) -> None:
        super().__init__(machines, name, number)
        self.bookings: list[Booking] = []
        self._name = f"{name}-{number}"
        self._longest_seconds = longest_seconds

    def book(self, guest_id: GuestId, number: int, times: int) -> None:
        """Let a guest book. The `number` of the guest determines the guest's card.

        If a booking ends before its card is on file, the guest makes another booking, which ends
        later.
        """
        for each in range(times):
            further = 1
            while not self._book(
                self._booking(guest_id, number, is_second=each > 0, further=further)
            ):
                further *= 2

    def _book(self, booking: Booking) -> bool:
        """Make a booking. Return False if the booking has ended before its card is on file."""
        self.bookings.append(booking)
        try:
            self._guarantee(booking)
            if booking.cancels:
                self._cancel(booking)
        except Unexpected as unexpected:
            # Once the booking has ended, every step may be refused.
            if datetime.now(UTC) < booking.ends_at:
                self.unexpected.append(f"{booking}: {unexpected}")
                return True
        return booking.status is SessionStatus.COMPLETED

    def _booking(self, guest_id: GuestId, number: int, *, is_second: bool, further: int) -> Booking:
        now, chance = datetime.now(UTC), self._random
        seconds = chance.uniform(SHORTEST_SECONDS, self._longest_seconds)
        ends_at = now + timedelta(seconds=seconds * further)
        # After this time, the page has another text. Some guests are reading the page at this time.
        cancel_by = now + timedelta(seconds=chance.uniform(0, SHORTEST_SECONDS - 1))
        is_offered = is_second and chance.random() >= TYPED_AGAIN
        reference = f"{self._name}-{len(self.bookings)}"
        return Booking(
            guest_id=guest_id,
            key=None,
            redirect_uri=f"{REDIRECT_URI}-{reference}",
            ends_at=ends_at,
            terms={
                "reference": reference,
                "description": f"2 × massage & <tea>, {reference}",
                "starts_at": (ends_at - timedelta(seconds=1)).isoformat(),
                "ends_at": ends_at.isoformat(),
                "no_show": {"amount": "80.00", "currency": "EUR"},
                "cancel_by": cancel_by.isoformat() if chance.random() < 0.5 else None,
                "reuse": "offer" if is_offered else "never",
            },
            card=NUMBERS[number % 2],
            expiry=(number // 2 % 12 + 1, YEARS[number // 24 % len(YEARS)]),
            keeps=chance.random() < KEPT,
            cancels=chance.random() < CANCELLED,
        )

    def _guarantee(self, booking: Booking) -> None:
        """Send the guest through all pages, and wait until the session has ended."""
        adding = self._request_of(booking)
        body = {**json.loads(adding.body or ""), "agreement": booking.terms}
        adding = adding._replace(body=json.dumps(body))
        if self._random.random() < LOST_RESPONSES:
            self._send(0, adding, hangs_up=True)
        self._keep(booking, self._ask(adding, 200))
        link = json.loads(booking.answer)["hosted_payment_uri"]
        answer = self._ask(Request("GET", link, {}), 200)
        while answer.status == 200:
            form = urlencode(booking.read(answer.text))
            answer = self._ask(Request("POST", link, FORM, form), 200, 303)
        if answer.location != booking.redirect_uri:
            month, year = booking.expiry
            expiry = f"{month:02} / {year % 100}"
            self._come_back(self._type_on(answer.location, booking.card, expiry), booking)
        self.look_at(booking)
        while booking.status is SessionStatus.OPEN and datetime.now(UTC) < booking.ends_at:
            # A kill prevented the settling. The worker or the reconciler settles the session.
            time.sleep(CHECK_EVERY_SECONDS)
            self.look_at(booking)
        if booking.status is not SessionStatus.COMPLETED:
            raise Unexpected(f"the session became {booking.state}")

    def _cancel(self, booking: Booking) -> None:
        guest = f"/api/v1/guests/{booking.guest_id}"
        path = f"{guest}/accounts/{booking.account_id}/agreements"
        listed = json.loads(self._ask(Request("GET", path, self._token), 200).text)["agreements"]
        found = [each["agreement_id"] for each in listed if each["token_id"] == booking.token_id]
        if len(found) != 1:
            raise Unexpected(f"the agreements {found}")
        booking.holds_until = min(booking.ends_at, datetime.now(UTC))
        path = f"{guest}/agreements/{found[0]}?reason=cancelled"
        self._ask(Request("DELETE", path, self._token), 200)


class Booked(NamedTuple):
    """What was done, and all faults by kind: `LEFT`, `GONE`, `NOT_AS_SHOWN` and `OTHER`."""

    done: Mapping[str, int]
    faults: Mapping[str, Sequence[str]]


def book_under_kills(
    storage: Storage,
    *,
    bookings: int,
    longest_seconds: float,
    seed: int,
    kill_after_seconds: tuple[float, float] = KILL_AFTER_SECONDS,
) -> Booked:
    """Let guests book while the service and `reconcile` are killed. Check what is kept in the end.

    Every second guest books twice. A booking ends within `longest_seconds`, unless the machine is
    too slow for that. No card is kept after the end, unless the guest ticked the box.
    """
    machines = storage.machines
    (machine,), installation = machines.each, machines.installation
    takes_agreements(installation)
    installation.configure(keep_after_end_days=0)
    times = Counter(number * 2 // 3 for number in range(bookings))
    guests = {number: GuestId(a_uuid(9_000 + number)) for number in times}
    for guest_id in guests.values():
        installation.has_guest(a_guest(id=guest_id))
    clients = [
        BookingClient(machines, f"seed-{seed}", number, longest_seconds=longest_seconds)
        for number in range(CLIENTS)
    ]
    share = ceil(len(guests) / CLIENTS)

    def book(client: BookingClient, place: int) -> None:
        for number in [*guests][place * share : (place + 1) * share]:
            client.book(guests[number], number, times[number])

    stop, chance = Event(), random.Random(seed)
    machines.start()
    with ThreadPoolExecutor(CLIENTS + 2) as pool:
        booking = [pool.submit(book, client, place) for place, client in enumerate(clients)]
        reconciling = pool.submit(_kill_reconcile, machine, f"{seed} reconcile", stop)
        watching = pool.submit(_watch, installation, stop)
        kills = 0
        try:
            while not all(each.done() for each in booking) or not _have_ended(clients):
                time.sleep(chance.uniform(*kill_after_seconds))
                machine.kill()
                machine.start()
                machine.wait_until_ready()
                kills += 1
        finally:
            stop.set()
    for each in booking:
        each.result()
    faults = Faults(machines, watching.result())
    faults.note(OTHER, filter(None, [machine.stop()]))
    # The second run discards at the PSP the cards that the first run removed.
    for _ in range(2):
        machine.command("reconcile")
    for client in clients:
        client.close()
        faults.note(OTHER, client.unexpected)
    faults.note(OTHER, machine.faults())
    done = faults.look_at([each for client in clients for each in client.bookings])
    done |= {"kills of the service": kills, "kills of reconcile": reconciling.result()}
    return Booked(done, faults.found)


def _have_ended(clients: Sequence[BookingClient]) -> bool:
    ends = [each.ends_at for client in clients for each in client.bookings]
    return max(ends) < datetime.now(UTC)


def _kill_reconcile(machine: Machine, seed: str, stop: Event) -> int:
    """Run `cardonfile reconcile` repeatedly. Return how many runs were killed.

    About half of the runs finish. The others are killed after Python has started.
    """
    chance, kills, seconds = random.Random(seed), 0, float(LIMIT_SECONDS)
    while not stop.wait(chance.uniform(0, RECONCILE_WITHIN_SECONDS)):
        running, started_at = machine.begin("reconcile"), time.monotonic()
        try:
            _, errors = running.communicate(timeout=seconds * chance.uniform(0.5, 1.5))
            assert running.returncode == 0, errors
            seconds = time.monotonic() - started_at
        except subprocess.TimeoutExpired:
            running.kill()
            running.communicate()
            kills += 1
            # Without this increase, no run would finish after the machine has become slower.
            seconds *= 1.2
    return kills


def _active(installation: Installation) -> Mapping[AccountId, CardToken]:
    with installation.storage.read() as unit:
        found = unit.accounts.search(AccountFilter(only_active=True), limit=MAX_CARDS)
    return {account.account_id: account.token for account in found}


def _watch(installation: Installation, stop: Event) -> Mapping[AccountId, datetime]:
    """Return when each card was first seen to be gone, here or at the PSP."""
    seen, gone = set[AccountId](), dict[AccountId, datetime]()
    while not stop.wait(CHECK_EVERY_SECONDS):
        before, tokens = _active(installation), installation.tokens_at_psp()
        after, now = _active(installation), datetime.now(UTC)
        # A card that is typed again gets another token.
        same = {each for each, token in before.items() if after.get(each) == token}
        at_psp = {each for each in same if before[each] in tokens}
        for account_id in (seen - after.keys()) | (same - at_psp):
            gone.setdefault(account_id, now)
        seen |= after.keys()
    return gone


class Faults:
    """Compares what is stored with what guests read and clicked. `found` lists faults by kind."""

    def __init__(self, machines: Machines, gone: Mapping[AccountId, datetime]) -> None:
        """Prepare to compare. `gone` contains the time when each missing card was first missed."""
        self.found: dict[str, list[str]] = {kind: [] for kind in KINDS}
        self._machines = machines
        self._installation = machines.installation
        self._gone = gone

    def note(self, kind: str, found: Iterable[object]) -> None:
        """Add faults of a kind."""
        self.found[kind] += map(str, found)

    def look_at(self, bookings: Sequence[Booking]) -> dict[str, int]:
        """Note all faults, and return the counts of what was done.

        The processes must have stopped, and the bookings must have ended.
        """
        # The cards that are on file now stay on file, because the reconciler below removes no card.
        active = _active(self._installation)
        clock = self._installation.clock
        clock.advance(datetime.now(UTC) + BEYOND_LEASES - clock.now())
        self._installation.reconcile()
        records = records_of(self._machines.url)
        given_up = [each for each in bookings if not each.token_id]
        answered = [each for each in bookings if each.token_id]
        lost = records.lost(answered)
        self.note(OTHER, (f"lost: {each}" for each in lost))
        self.note(OTHER, (f"unasked: {each}" for each in records.unasked(answered, given_up)))
        held = dict[AccountId, list[Booking]]()
        for each in answered:
            if each not in lost:
                account_id = self._account_of(each)
                if account_id is not None:
                    held.setdefault(account_id, []).append(each)
        for row in records.accounts:
            account = self._installation.account(AccountId(row.account_id))
            self._look_at_account(account, held.get(account.account_id, []), active)
        tokens = self._installation.tokens_at_psp()
        self.note(LEFT, (f"{each} at the fake PSP" for each in tokens - {*active.values()}))
        self.note(GONE, (f"{each} at the fake PSP" for each in {*active.values()} - tokens))
        guaranteed = [each for of_account in held.values() for each in of_account]
        return {
            "bookings": len(guaranteed),
            "by one click": sum(each.is_by_click for each in guaranteed),
            "cancelled": sum(each.holds_until < each.ends_at for each in guaranteed),
            "with the box": sum(each.is_ticked for each in guaranteed),
            "others over before a card was on file": len(bookings) - len(guaranteed),
            "cards removed": len(records.accounts) - len(active),
        }

    def _account_of(self, booking: Booking) -> AccountId | None:
        """Return the account of a booking. Compare what was stored with what the guest read."""
        session = self._installation.session(booking.token_id)
        with self._installation.storage.read() as unit:
            agreements = [
                (each.account_id, each.shown.text, each.shown.button)
                for each in unit.agreements.of_guest(booking.guest_id)
                if each.token_id == booking.token_id
            ]
        if session.status is not SessionStatus.COMPLETED:
            self.note(OTHER, [session] * (session.status is SessionStatus.OPEN))
            self.note(NOT_AS_SHOWN, (f"{session.status}: {each}" for each in agreements))
            return None
        account = self._installation.account(session.account_id)
        consents = [
            each.text
            for each in self._installation.consents(account)
            if each.token_id == booking.token_id
        ]
        # The text beside the box begins with a sentence of the page's own.
        (consent,) = consents if len(consents) == 1 else [None]
        is_agreed = consent == booking.text
        if booking.is_ticked:
            is_agreed = bool(consent) and booking.general.endswith(str(consent))
        if not is_agreed or agreements != [(account.account_id, booking.text, booking.button)]:
            self.note(NOT_AS_SHOWN, [f"{booking} has {agreements} and {consents}"])
        return account.account_id

    def _look_at_account(
        self, account: Account, bookings: Sequence[Booking], active: Container[AccountId]
    ) -> None:
        card = account.guest_id, account.last_four, (account.expiry_month, account.expiry_year)
        typed = {(each.guest_id, each.card[-4:], each.expiry) for each in bookings}
        if typed != {card}:
            self.note(OTHER, [f"{account} has the cards {typed}"])
        is_kept = any(each.is_ticked for each in bookings)
        if account.account_id in active and not is_kept:
            self.note(LEFT, [account])
        holds_until = max((each.holds_until for each in bookings), default=account.created_at)
        times = filter(None, [account.removed_at, self._gone.get(account.account_id)])
        gone_at = min(times, default=None)
        if gone_at is not None and (is_kept or gone_at < holds_until):
            self.note(GONE, [f"{account} was gone at {gone_at}, its bookings are {bookings}"])


@click.command()
@click.option(
    "--bookings", default=300, show_default=True, help="How many bookings to make on each storage."
)
@click.option("--seed", default=1, show_default=True, help="The seed for all random choices.")
def main(bookings: int, seed: int) -> None:
    """Kill the service while guests book, on each storage, and print which cards are kept."""
    structlog.configure(processors=[], logger_factory=structlog.ReturnLoggerFactory())
    is_broken = False
    for name, storage in STORAGES.items():
        started_at = time.monotonic()
        with tempfile.TemporaryDirectory() as folder, storage(Path(folder)) as lent:
            booked = book_under_kills(
                lent, bookings=bookings, longest_seconds=LONGEST_SECONDS, seed=seed
            )
        done = ", ".join(f"{count} {what}" for what, count in booked.done.items())
        faults = ", ".join(f"{kind} {len(found)}" for kind, found in booked.faults.items())
        seconds = time.monotonic() - started_at
        click.echo(f"{name}: {done}; {faults}; {seconds:.0f} s")
        for kind, found in booked.faults.items():
            for each in found:
                click.echo(f"{name}: {kind}: {each}")
        is_broken = is_broken or any(booked.faults.values())
    raise SystemExit(is_broken)


if __name__ == "__main__":
    main()
