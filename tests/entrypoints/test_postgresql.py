"""A whole installation on PostgreSQL: the command line, the HTTP API, concurrent requests."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

import psycopg
import pytest
from structlog.testing import capture_logs

import adapters.postgresql
from adapters.erasure_file import TextErasureFile
from adapters.fake_psp.plugin import NAME as FAKE
from adapters.postgresql import connection
from adapters.postgresql.storage import PostgresqlStorage
from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import GUEST_ID, a_uuid
from domain.cards.account import READ_FIRST_AFTER, READ_LEASE, Account, AccountFilter
from domain.centers.payment_configuration import CardsPerGuest
from domain.errors import (
    InvalidProductId,
    PaymentAccountNotFound,
    PaymentMethodAlreadyExists,
    Refusal,
    ServiceUnavailable,
)
from domain.events.event import EventType
from domain.identifiers import GuestId, GuestReference, TokenId
from domain.psps.payment_provider import UNKNOWN_FOR
from domain.psps.webhook import WebhookNotice
from domain.sessions.end import SessionStatus
from domain.storage import WriteUnit
from entrypoints.databases import in_a_sentence, refuse_read_only, storage_in
from entrypoints.serve import announce
from entrypoints.settings import Settings
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY, Api, refused
from tests.adapters.postgresql.by_hand import execute, is_waiting, set_default
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center, a_guest
from tests.databases import committed, make_database, references_of
from tests.entrypoints.conftest import CommandLine
from tests.fuzzing import TIMES
from tests.installation import GOOD_CARD, MERCHANT, MISMATCHING_CARD, OTHER_GOOD_CARD, Installation
from tests.postgresql import empty_database, new_database
from tests.simulation.psp import LASTING_TOKENS, LastingTokens
from tests.waiting import wait_until

SECRET: Final = "s3same"
NOBODY_LISTENS: Final = "127.0.0.1:1"
COMMANDS: Final = [("migrate",), ("token", "list"), ("serve",)]
ROUNDS: Final = 3 * TIMES
"""How often the concurrent requests are repeated, each time about another guest."""


@contextmanager
def command_line(folder: Path, url: str) -> Iterator[CommandLine]:
    """Provide the command line on a database."""
    cardonfile = CommandLine(folder)
    cardonfile.environment = {
        "CARDONFILE_DATABASE_URL": url,
        "CARDONFILE_FAKE_PSP_DATABASE": str(folder / "fake-psp.db"),
    }
    with closing(cardonfile.storage):
        yield cardonfile


@contextmanager
def installed(folder: Path, url: str) -> Iterator[Installation]:
    """Provide an installation on a migrated database."""
    installation = Installation(
        folder,
        CARDONFILE_DATABASE_URL=url,
        CARDONFILE_FAKE_PSP_DATABASE=str(folder / "fake-psp.db"),
    )
    with closing(installation):
        yield installation


@pytest.fixture
def url(postgresql_server: str) -> Iterator[str]:
    """Return the address of an empty database, whose schema and settings must stay as they are."""
    with empty_database(postgresql_server) as url:
        yield url


@pytest.fixture
def own_url(postgresql_server: str) -> Iterator[str]:
    """Return the address of a separate empty database, which a test may change."""
    with new_database(postgresql_server) as url:
        yield url


@pytest.fixture
def unforgiving(own_url: str) -> str:
    """Return a database in which units that wait for each other in a circle fail."""
    set_default(own_url, "deadlock_timeout = '1h'")
    return own_url


@pytest.fixture
def empty(postgresql_server: str) -> Iterator[str]:
    """Return the address of a database without tables."""
    with new_database(postgresql_server, migrated=False) as url:
        yield url


@pytest.fixture
def on_postgresql(tmp_path: Path, own_url: str) -> Iterator[CommandLine]:
    """Return the command line on a database that a test may change."""
    with command_line(tmp_path, own_url) as cardonfile:
        yield cardonfile


@pytest.fixture
def installation(tmp_path: Path, url: str) -> Iterator[Installation]:
    """Return an installation on PostgreSQL in place of a file."""
    with installed(tmp_path, url) as installation:
        yield installation


@pytest.fixture
def api(installation: Installation) -> Api:
    """Return a client whose caller may do everything."""
    return Api(installation)


def as_user(url: str, user: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{user}@{parts.hostname}:{parts.port}").geturl()


class TestCommandLine:
    def test_every_command_prints_the_same_on_postgresql_as_on_sqlite(
        self, tmp_path: Path, unmigrated: CommandLine, empty: str
    ) -> None:
        on_sqlite = self.from_nothing(unmigrated)
        with command_line(tmp_path, empty) as cardonfile:
            assert self.from_nothing(cardonfile) == on_sqlite

    def from_nothing(self, cardonfile: CommandLine) -> list[str]:
        files = {
            "centers": f"id,name\n{CENTER_ID},Harbor Spa\n{a_uuid(2)},Zo\u00eb\u2019s \U0001f600 %s\n",
            "guests": "id,first_name,last_name,email\n"
            + "".join(f"{a_uuid(number)},Zo\u00eb,Li,\n" for number in range(20)),
            "products": "center_id,id,code,name,description,amount,currency\n"
            f"{CENTER_ID},{a_uuid(1)},P-1,Massage,An hour,0.10,EUR\n",
        }
        wrong = {
            "guests": files["guests"] + f"{a_uuid(19)},Zo\u00eb,Li,\n",
            "products": files["products"] + f"{a_uuid(404)},{a_uuid(2)},P-2,Sauna,,1.00,EUR\n",
        }
        printed = []

        def run(command: str) -> str:
            result = cardonfile.run(*command.split())
            text = re.sub(r"cof_[\w-]+|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "…", result.output)
            printed.append(f"{result.exit_code} {text}".replace(str(cardonfile.folder), ""))
            return result.stdout

        # Each database has migrations of its own.
        cardonfile.succeeds("migrate")
        run("migrate")
        unknown_center = ("products", files["products"])
        for what, text in [unknown_center, *files.items(), *files.items(), *wrong.items()]:
            file = cardonfile.folder / f"{what}.csv"
            file.write_text(text)
            run(f"import {what} {file}")
        run(f"configure-payments {CENTER_ID} --provider fake --avs")
        token = run("token issue --caller web-store --permission guests:add")
        for command in (
            f"configure-payments {CENTER_ID} --account spa",
            "center list --account spa",
            f"center show {CENTER_ID}",
            f"configure-payments {a_uuid(404)} --none",
            f"token revoke {token}",
            "token revoke cof_nobody",
            *("token list", "audit list", "events list"),
        ):
            run(command)
        return printed


class TestComplaints:
    """Each complaint is one sentence without a traceback and without a password."""

    @pytest.mark.parametrize(
        ("address", "complaint"),
        [
            (f"postgresql://postgres:{SECRET}@{NOBODY_LISTENS}/nowhere", "Connection refused"),
            (f"postgresql://postgres:{SECRET}@nobody.invalid/nowhere", "nobody.invalid"),
            (f"postgresql://postgres:{SECRET}%zz@{NOBODY_LISTENS}/nowhere", "%40"),
        ],
        ids=["away", "host", "percent"],
    )
    def test_an_unreachable_server_address_is_refused_in_one_sentence(
        self, tmp_path: Path, address: str, complaint: str
    ) -> None:
        for arguments in COMMANDS:
            with command_line(tmp_path, address) as cardonfile:
                sentence = cardonfile.refuses(*arguments)
            assert complaint in sentence
            assert SECRET not in sentence

    def test_serve_refuses_a_read_only_postgresql_database(self, own_url: str) -> None:
        set_default(own_url, "default_transaction_read_only = on")
        with (
            closing(PostgresqlStorage(own_url)) as storage,
            pytest.raises(ServiceUnavailable) as refused,
        ):
            refuse_read_only(storage)
        assert str(in_a_sentence(refused.value)).startswith(
            "the database cannot be used (the server allows this role only to read)"
        )

    def test_the_log_names_the_database_without_its_password(self) -> None:
        secrets = urlencode({"password": SECRET, "sslpassword": SECRET})
        address = f"postgresql://postgres:{SECRET}@db.example:5433/cards?{secrets}"
        with capture_logs() as lines:
            announce(Settings.read({"CARDONFILE_DATABASE_URL": address}))

        assert "host=db.example port=5433 dbname=cards" in lines[0]["database"]
        assert SECRET not in str(lines)

    def test_a_postgresql_database_that_is_missing_empty_or_forbidden_is_refused(
        self, tmp_path: Path, url: str, empty: str
    ) -> None:
        clerk = f"clerk_{url.rpartition('/')[2]}"
        execute(url, f"CREATE ROLE {clerk} LOGIN")
        try:
            for address, command, complaint in (
                (
                    f"{url}_not",
                    ("migrate",),
                    r'cannot be used \(.*database "\w+_not" does not exist',
                ),
                *((empty, command, "run `cardonfile migrate`") for command in COMMANDS[1:]),
                (as_user(empty, clerk), ("migrate",), "permission denied for schema public"),
                (as_user(url, clerk), ("token", "list"), "permission denied for table cardonfile_"),
            ):
                with command_line(tmp_path, address) as cardonfile:
                    assert re.search(complaint, cardonfile.refuses(*command))
        finally:
            execute(url, f"DROP ROLE {clerk}")

    @pytest.mark.parametrize(
        ("statement", "complaint"),
        [
            ("INSERT INTO cardonfile_migrations VALUES ('m999_later')", "newer release"),
            ("DROP TABLE access_tokens", "does not fit this release"),
        ],
        ids=["newer", "without a table"],
    )
    def test_a_postgresql_database_from_another_release_is_refused(
        self, own_url: str, on_postgresql: CommandLine, statement: str, complaint: str
    ) -> None:
        execute(own_url, statement)
        assert complaint in on_postgresql.refuses("token", "list")

    def test_a_missing_postgresql_driver_is_refused_in_one_sentence(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        address = f"postgresql://postgres:{SECRET}@localhost/cardonfile"
        make_database(tmp_path / "cards.db")
        monkeypatch.setitem(sys.modules, "psycopg", None)
        # Back afterwards: an import of the package replaces this attribute.
        monkeypatch.setattr(adapters, "postgresql", adapters.postgresql)
        for name in [each for each in sys.modules if each.startswith("adapters.postgresql")]:
            monkeypatch.delitem(sys.modules, name)

        with command_line(tmp_path, address) as cardonfile:
            source = f"sqlite:///{tmp_path / 'cards.db'}"
            for arguments in (*COMMANDS, ("copy-database", source, address)):
                complaint = cardonfile.refuses(*arguments)
                assert re.fullmatch(
                    r"the PostgreSQL client is not installed: .*EXTRAS=postgresql.*", complaint
                )
                assert SECRET not in complaint


class TestHttp:
    @pytest.mark.parametrize("broken", ["\x00", "\ud800"], ids=ascii)
    def test_text_that_postgresql_cannot_store_is_refused_as_a_client_error(
        self, api: Api, broken: str
    ) -> None:
        text = f"a{broken}b"
        quoted = quote(text, errors="surrogatepass")
        session = api.installation.opened_session()

        response = api.post({**GOOD_BODY, "billing_info": {"zipcode": text}})
        assert refused(response) == (400, "billing_info.zipcode is invalid")
        for field in ("center_id", "redirect_uri", "source"):
            assert api.post({**GOOD_BODY, field: text}).status_code == 400
        assert api.post({**GOOD_BODY, "unknown": text}).status_code == 200
        for path, query, status in (
            (f"{ACCOUNTS}/{quoted}", "", 404),
            (f"{ACCOUNTS}/sessions/{quoted}", "", 404),
            (f"/api/v1/guests/{quoted}/accounts", "", 400),
            (f"/v1/centers/{quoted}/products", "", 400),
            (ACCOUNTS, f"center_id={quoted}", 400),
            ("/hosted-payments", f"token_id={quoted}&redirect_uri={quoted}", 404),
            ("/hosted-payments", f"key={quoted}", 404),
            # The redirect_uri of a link is not read.
            ("/hosted-payments", f"key={session.link_key}&redirect_uri={quoted}", 303),
            ("/hosted-payments/return", f"token_id={quoted}", 404),
            (
                "/hosted-payments/return",
                f"token_id={session.token_id}&result={quoted}&{quoted}=1",
                303,
            ),
        ):
            assert api.get(path, query).status_code == status
        with api.installation.storage.read() as unit:
            assert len(unit.evidence.of(session.token_id)) == 1


def all_at_once(*acts: Callable[[], object]) -> None:
    """Run all these functions at once. A rule may refuse some of them."""

    def act(number: int) -> None:
        with suppress(Refusal):
            acts[number]()

    at_once(len(acts), act)


def finish_erasures(installation: Installation) -> None:
    for _ in range(4):
        installation.clock.advance(timedelta(minutes=2))
        installation.reconcile()
        installation.container.finish_erasures()()


class TestConcurrency:
    def test_if_two_centers_put_a_product_with_the_same_id_at_once_only_one_succeeds(
        self, installation: Installation
    ) -> None:
        installation.has_center(a_center(id=OTHER_CENTER_ID))
        put_product = partial(installation.use_cases.put_product, installation.caller)
        put = partial(put_product, product_id=a_uuid(51), code="P", name="P", description="")

        def is_put(number: int) -> bool:
            try:
                put(center_id=(CENTER_ID, OTHER_CENTER_ID)[number % 2], amount="1", currency="EUR")
            except InvalidProductId:
                return False
            return True

        for _ in range(ROUNDS):
            assert at_once(8, is_put) in ([True, False] * 4, [False, True] * 4)
            installation.loses("products")

    # Shows I2, I7, I9, I13.
    def test_accounts_whose_cards_become_the_same_are_joined_even_during_concurrent_changes(
        self, installation: Installation
    ) -> None:
        refresh = installation.container.refresh_account()
        for number in range(ROUNDS):
            guest = a_guest(id=GuestId(a_uuid(4_000 + number)))
            installation.has_guest(guest)
            first = installation.stored_card(guest_id=guest.id)
            installation.clock.advance(timedelta(minutes=1))
            later = installation.stored_card(OTHER_GOOD_CARD, guest_id=guest.id)
            installation.bank_updates(later)
            installation.clock.advance(READ_FIRST_AFTER)
            now = installation.clock.now()

            def make_due(account: Account = first, now: datetime = now) -> None:
                def work(unit: WriteUnit) -> None:
                    reference = account.guest_reference
                    unit.accounts.make_due(
                        account.psp_account, now, token=None, guest_reference=reference
                    )
                    unit.commit()

                installation.storage.transact(work)

            choose = partial(
                installation.use_cases.choose_default_card,
                installation.caller,
                guest_id=guest.id,
                account_id=later.account_id,
            )
            all_at_once(*[installation.read_cards] * 4, *[make_due] * 4, *[choose] * 4)
            installation.clock.advance(READ_LEASE)
            installation.read_cards()

            (left,) = installation.accounts(guest.id)
            assert (left.account_id, left.is_default) == (later.account_id, True)
            while discard := installation.container.discard_token().take():
                installation.container.discard_token()(discard)
            assert later.token in installation.tokens_at_psp()
            assert first.token not in installation.tokens_at_psp()
        assert refresh.take() is None

    # Shows I12.
    def test_an_erasure_is_complete_even_if_there_are_concurrent_requests_about_the_guest(
        self, installation: Installation
    ) -> None:
        for number in range(ROUNDS):
            guest = a_guest(id=GuestId(a_uuid(3_000 + number)))
            installation.has_guest(guest)
            account = installation.stored_card(guest_id=guest.id)
            session = installation.session_with_card(OTHER_GOOD_CARD, guest_id=guest.id)
            renewing = installation.session_with_card(guest_id=guest.id)
            caller, use_cases = installation.caller, installation.use_cases
            erase = installation.container.erase_guest()
            put = partial(use_cases.put_guest, first_name="Grace", last_name="Hopper", email=None)
            account_of = {"guest_id": guest.id, "account_id": account.account_id}
            all_at_once(
                *[partial(erase, caller, guest_id=guest.id)] * 2,
                *[partial(put, caller, guest_id=guest.id)] * 2,
                *[partial(installation.add_card, guest_id=guest.id)] * 2,
                partial(installation.settle, session.token_id),
                partial(installation.settle, renewing.token_id),
                partial(use_cases.remove_account, caller, **account_of),
                partial(use_cases.choose_default_card, caller, **account_of),
            )

        finish_erasures(installation)
        assert installation.tokens_at_psp() == frozenset()
        with installation.storage.read() as unit:
            assert unit.accounts.search(AccountFilter(only_active=True), limit=9) == ()
            assert unit.erasures.due(installation.clock.now() + timedelta(days=1), at_most=9) == ()
            for number in range(ROUNDS):
                guest_id = GuestId(a_uuid(3_000 + number))
                assert unit.guests.get(guest_id) is None
                assert unit.erasures.among([guest_id]) == {guest_id}
                sessions = unit.sessions.of_guest(guest_id)
                assert all(each.is_over and not each.redirect_uri for each in sessions)

    def test_merging_two_guests_does_not_lose_a_card_during_concurrent_work(
        self, installation: Installation
    ) -> None:
        caller, use_cases = installation.caller, installation.use_cases
        for number in range(ROUNDS):
            merged, remaining = (GuestId(a_uuid(5_000 + 10 * number + which)) for which in (0, 1))
            for guest_id in (merged, remaining):
                installation.has_guest(a_guest(id=guest_id))
            installation.stored_card(guest_id=remaining)
            installation.stored_card(guest_id=merged)
            installation.clock.advance(timedelta(minutes=1))
            session = installation.session_with_card(OTHER_GOOD_CARD, guest_id=merged)
            renewing = installation.session_with_card(guest_id=merged, expiry=(9, 2033))
            put = partial(use_cases.put_guest, first_name="Grace", last_name="Hopper", email=None)

            def merge(merged: GuestId = merged, remaining: GuestId = remaining) -> None:
                seen = [
                    each.last_four
                    for it in (merged, remaining)
                    for each in installation.accounts(it)
                ]
                use_cases.merge_guests(
                    caller, guest_id=remaining, merged_id=merged, last_fours=seen
                )

            all_at_once(
                *[merge] * 2,
                *[partial(put, caller, guest_id=merged)] * 2,
                *[partial(installation.add_card, guest_id=merged)] * 2,
                partial(installation.settle, session.token_id),
                partial(installation.settle, renewing.token_id),
                installation.read_cards,
            )
            # If a card was stored first, the digits did not match.
            with suppress(Refusal):
                merge()
            for each in (session, renewing):
                installation.settle(each.token_id)

        finish_erasures(installation)
        tokens = set()
        for number in range(ROUNDS):
            merged, remaining = (GuestId(a_uuid(5_000 + 10 * number + which)) for which in (0, 1))
            accounts = installation.accounts(remaining)
            assert sorted(each.last_four for each in accounts) == ["4242", "4444"]
            assert {each.expiry_year for each in accounts if each.last_four == "4242"} == {2033}
            assert [each.is_default for each in accounts].count(True) == 1
            tokens |= {each.token for each in accounts}
            with installation.storage.read() as unit:
                assert unit.guests.get(merged) is None
                assert unit.sessions.of_guest(merged) == ()
                assert unit.guest_references.of(merged) == []
        assert installation.tokens_at_psp() == tokens

    # Shows F36.
    @pytest.mark.parametrize("numbers", [(GOOD_CARD, GOOD_CARD), (GOOD_CARD, OTHER_GOOD_CARD)])
    def test_if_only_one_of_two_concurrent_sessions_may_store_its_card_the_other_fails(
        self, installation: Installation, numbers: tuple[str, str]
    ) -> None:
        if numbers[0] != numbers[1]:
            installation.configure(cards_per_guest=CardsPerGuest.ONE)
        sessions = [installation.opened_session() for _ in numbers]
        for session, number in zip(sessions, numbers, strict=True):
            installation.type_card(session, number)

        at_once(8, lambda number: installation.settle(sessions[number % 2].token_id))

        (account,) = installation.accounts()
        ends = [installation.session(session.token_id) for session in sessions]
        assert {end.status for end in ends} == {SessionStatus.COMPLETED, SessionStatus.FAILED}
        (failure,) = (end.failure for end in ends if end.failure)
        assert failure.message == PaymentMethodAlreadyExists.message
        installation.reconcile()
        assert installation.tokens_at_psp() == {account.token}

    def test_concurrent_replays_of_an_event_create_one_delivery_per_endpoint(
        self, installation: Installation
    ) -> None:
        add = installation.container.add_event_endpoint()
        add(url="https://shop.example", types=[EventType.ACCOUNT_STORED])
        installation.stored_card()
        add(url="https://later.example", types=[EventType.ACCOUNT_STORED])
        event_id = installation.deliveries()[0].event.event_id

        replay = installation.container.replay_event()
        assert at_once(8, lambda _: replay(event_id)) == [2] * 8
        assert len(installation.deliveries()) == 2

    @pytest.mark.parametrize("is_of_card_first", [False, True])
    def test_webhooks_about_several_sessions_of_a_guest_cause_no_deadlock(
        self, tmp_path: Path, unforgiving: str, is_of_card_first: bool
    ) -> None:
        with installed(tmp_path, unforgiving) as installation, ThreadPoolExecutor(1) as thread:
            account = installation.stored_card()
            opened = [installation.opened_session().token_id for _ in range(2)]
            first, second = sorted(opened)
            notice = WebhookNotice(merchant_account=MERCHANT, content="{}")
            of_card = replace(notice, card_token=account.token)
            of_second = of_card if is_of_card_first else replace(notice, token_id=second)
            told = [of_second, replace(notice, token_id=first)]
            installation.provider.read_webhook = lambda _: told

            with committed(installation.storage) as unit:
                assert unit.sessions.get(first) is not None
                receiving = thread.submit(installation.receive_webhook, installation.webhook())
                wait_until(lambda: is_waiting(unforgiving))
                if is_of_card_first:
                    assert unit.accounts.active_at(GUEST_ID, CENTER_ID)
                else:
                    unit.sessions.make_pages_due(GUEST_ID, installation.clock.now())

            receiving.result()

    def test_repeating_an_erasure_waits_for_a_transaction_that_adds_a_reference_to_the_guest(
        self, tmp_path: Path, unforgiving: str
    ) -> None:
        with installed(tmp_path, unforgiving) as installation, ThreadPoolExecutor(1) as thread:
            session = installation.opened_session()
            at_psps = references_of(installation.storage, GUEST_ID)
            file = TextErasureFile(tmp_path / "erasures.txt")
            file.note(GUEST_ID, installation.clock.now(), at_psps)
            erase_guest = replace(installation.container.erase_guest(), file=file)

            with committed(installation.storage) as unit:
                locked = unit.sessions.get(session.token_id)
                assert locked is not None
                erasing = thread.submit(erase_guest.repeat_from_file)
                wait_until(lambda: is_waiting(unforgiving))
                # The PSP has deleted the guest, and made another.
                psp_guest = locked.psp_guest(locked.current_attempt.request)
                unit.guest_references.keep(psp_guest, GuestReference("another"))

            assert erasing.result() == [GUEST_ID]

    def test_two_guests_cannot_be_merged_into_each_other_concurrently(
        self, tmp_path: Path, unforgiving: str
    ) -> None:
        with installed(tmp_path, unforgiving) as installation:
            merge = partial(
                installation.use_cases.merge_guests, installation.caller, last_fours=["4242"]
            )
            for number in range(ROUNDS):
                first, second = (GuestId(a_uuid(6_000 + 2 * number + which)) for which in (0, 1))
                for guest_id in (first, second):
                    installation.has_guest(a_guest(id=guest_id))
                account = installation.stored_card(guest_id=first)
                all_at_once(
                    *[partial(merge, guest_id=first, merged_id=second)] * 2,
                    *[partial(merge, guest_id=second, merged_id=first)] * 2,
                )

                with installation.storage.read() as unit:
                    assert len(unit.erasures.among([first, second])) == 1
                    (remaining,) = (each for each in (first, second) if unit.guests.get(each))
                (kept,) = installation.accounts(remaining)
                assert kept.account_id == account.account_id

    # Shows I9.
    def test_concurrent_changes_to_cards_leave_exactly_one_default_card(
        self, tmp_path: Path, unforgiving: str
    ) -> None:
        with (
            installed(tmp_path, unforgiving) as installation,
            installed(tmp_path, unforgiving) as other,
        ):
            # A card that is stored again gets the token that its removal locks too.
            installation.configure(merchant_account=LASTING_TOKENS)
            lasting = LastingTokens(installation.provider, installation.psp, late=frozenset())
            installation.settle.providers[FAKE] = lasting
            for again in range(4):
                first, second = map(installation.stored_card, (GOOD_CARD, OTHER_GOOD_CARD))
                session = installation.opened_session()
                number = (GOOD_CARD, MISMATCHING_CARD)[again % 2]
                installation.type_card(session, number, expiry=(9, 2035))

                def change(
                    number: int,
                    first: Account = first,
                    second: Account = second,
                    token_id: TokenId = session.token_id,
                ) -> None:
                    cards = (installation, other)[number % 2].use_cases
                    remove, choose = cards.remove_account, cards.choose_default_card
                    caller = installation.caller
                    changes: list[Callable[[], object]] = [
                        lambda: installation.settle(token_id),
                        lambda: remove(caller, guest_id=GUEST_ID, account_id=first.account_id),
                        lambda: choose(caller, guest_id=GUEST_ID, account_id=first.account_id),
                        lambda: choose(caller, guest_id=GUEST_ID, account_id=second.account_id),
                    ]
                    with suppress(PaymentAccountNotFound):
                        changes[number // 2]()

                at_once(8, change)
                left = installation.accounts()
                assert [each.is_default for each in left].count(True) == 1
                for each in left:
                    installation.use_cases.remove_account(
                        installation.caller, guest_id=GUEST_ID, account_id=each.account_id
                    )
                # The fake PSP does not know a lasting token, and is believed after a while.
                installation.reconcile()
                installation.clock.advance(UNKNOWN_FOR)
                installation.reconcile()
                # A card that was collected before its token was discarded is not stored.
                installation.clock.advance(timedelta(seconds=1))


def test_a_command_may_run_longer_queries_than_a_request(
    on_postgresql: CommandLine, own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "STATEMENT_SECONDS", 1)
    execute(own_url, "ALTER TABLE event_deliveries RENAME TO many_deliveries")
    execute(
        own_url,
        "CREATE VIEW event_deliveries AS SELECT many_deliveries.* "
        "FROM pg_sleep(2) LEFT JOIN many_deliveries ON true",
    )
    database = Settings.read(on_postgresql.environment).database
    with (
        closing(storage_in(database, connections=1)) as storage,
        storage.read() as unit,
        pytest.raises(psycopg.OperationalError),
    ):
        unit.event_deliveries.counts()

    assert on_postgresql.succeeds("events", "list").startswith("ENDPOINT")
