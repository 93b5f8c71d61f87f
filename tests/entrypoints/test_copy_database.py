"""Copying an installation from SQLite to PostgreSQL. Either everything arrives or nothing."""

from __future__ import annotations

import os
import signal
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from threading import Event
from typing import Final

import psycopg
import pytest
from sqlite_utils import Database

from adapters.postgresql.storage import PostgresqlStorage
from adapters.psp_suite.samples import (
    GUEST_ID,
    MERCHANT_ACCOUNT,
    NOW,
    OTHER_GUEST_ID,
    TOKEN_ID,
    a_uuid,
)
from adapters.sqlite.storage import SqliteStorage
from domain.errors import ServiceUnavailable
from domain.events.event_list import EventFilter
from domain.identifiers import CardToken, GuestId, GuestReference
from domain.installation.installation import Installation as InstallationRecord
from domain.pagination import PageRequest
from domain.personal_data.erasure import Erasure
from domain.sessions.end import Failure, SessionStatus
from domain.storage import Storage
from domain.worker.heartbeat import WorkerState
from entrypoints import copy_database
from entrypoints.copy_database import CopyFailed, copying
from entrypoints.settings import PostgresqlDatabase
from tests.adapters.postgresql.by_hand import set_default
from tests.builders import (
    CALLER,
    CENTER_ID,
    OTHER_CENTER_ID,
    PROVIDER,
    a_caller,
    a_center,
    a_configuration,
    a_consent,
    a_consent_text,
    a_desk_link,
    a_discard,
    a_guest,
    a_portal_session,
    a_product,
    a_psp_guest,
    a_refused_card,
    a_reservation_text,
    a_session,
    a_standing,
    a_worker,
    an_access_token,
    an_account,
    an_agreement,
    an_attempt,
    an_audit_entry,
    an_event_delivery,
    an_event_endpoint,
    an_evidence,
    center_settings,
    terms_of_a_booking,
)
from tests.contracts.storage.records import GET, OTHER_TOKEN_ID, add, kind
from tests.databases import committed, make_database
from tests.entrypoints.conftest import CommandLine
from tests.postgresql import new_database
from tests.waiting import LIMIT_SECONDS, wait_until

DAY: Final = timedelta(days=1)
SHUFFLED: Final = (5, 1, 4, 2, 3)

# Characters with a meaning in COPY, JSON or SQL.
ODD: Final = (
    "tab\there, line\nbreak\r\n, \\N, \\., back\\slash, \"quotes\", 'too', NULL, \U0001f600"
)

ADVISORY_WAITS: Final = """
    SELECT pid FROM pg_locks JOIN pg_database ON oid = database
    WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted
"""
AT_PRODUCTS: Final = "BEFORE INSERT ON products"
"""The products come last: all other rows are in the target by then."""
AT_COMMIT: Final = "AFTER INSERT ON centers DEFERRABLE INITIALLY DEFERRED"


@pytest.fixture
def target(postgresql_server: str) -> Iterator[str]:
    """Return the address of an empty database that has not been migrated."""
    with new_database(postgresql_server, migrated=False) as url:
        yield url


@pytest.fixture
def migrated_target(postgresql_server: str) -> Iterator[str]:
    """Return the address of a database that has been migrated, and is empty."""
    with new_database(postgresql_server) as url:
        yield url


@pytest.fixture
def filled(cardonfile: CommandLine) -> CommandLine:
    """Return the command line on a database with records of every kind."""
    fill(cardonfile.storage)
    with closing(Database(cardonfile.database)) as db:
        # SQLite keeps its statistics in a table of its own.
        db.execute("ANALYZE")
    return cardonfile


RECORDS: Final = (
    *(a_center(), a_center(id=OTHER_CENTER_ID, name=ODD)),
    *(a_guest(), a_guest(id=OTHER_GUEST_ID, first_name="\\N", last_name="", email=None)),
    *(a_product(number) for number in (7, 3, 9)),
    a_product(1, description=ODD, amount=Decimal("0.10")),
    a_product(2, amount=Decimal("99999999.9999")),
    *(a_configuration(), center_settings()),
    *(a_consent_text(language="ar", text=ODD), a_reservation_text(text=ODD)),
    an_agreement(terms=terms_of_a_booking(description=ODD)),
    a_session(attempt=an_attempt(), unanswered_since=NOW),
    a_session(
        token_id=OTHER_TOKEN_ID,
        billing_info=None,
        status=SessionStatus.FAILED,
        failure=Failure(code=1, message=ODD, type=ODD),
        due_at=None,
        ended_at=NOW,
    ),
    *(an_evidence(content=f"{ODD} {number}") for number in SHUFFLED),
    *(an_account(number) for number in SHUFFLED),
    an_account(6, removed_at=NOW, is_default=True),
    a_consent(),
    *(an_access_token(token_hash=f"hash-{number}") for number in SHUFFLED),
    an_access_token(token_hash="everywhere", caller=a_caller(centers=None), revoked_at=NOW + DAY),
    *(a_desk_link(label=ODD), a_portal_session(return_uri=ODD)),
    Erasure(guest_id=GuestId(a_uuid(77)), erased_at=NOW, due_at=NOW, merged_into=OTHER_GUEST_ID),
    *(a_standing(closed_at=NOW), an_audit_entry()),
    *(a_discard(), a_discard(token=CardToken("token-2"), due_at=None, done_at=NOW)),
    *(an_event_endpoint(), an_event_delivery()),
)
"""Records of every kind. Some have equal times and differ in the order of creation."""


def fill(storage: Storage) -> None:
    """Store all these records, and others that have no type of their own."""
    with committed(storage) as unit:
        add(unit, *RECORDS)
        unit.refused_cards.add(a_refused_card(number=number) for number in range(3))
        unit.idempotency_keys.claim(CALLER, "key 1", TOKEN_ID, now=NOW, since=NOW - DAY)
        unit.guest_references.keep(a_psp_guest(), GuestReference("r"))
        unit.merchant_identities.claim(PROVIDER, MERCHANT_ACCOUNT, "acct_1 test")
        unit.installations.put(InstallationRecord(origin="https://a.example", is_copy=True))
        add(unit, *(an_event_delivery(number).event for number in (2, 1)))
        unit.events.number()
        add(unit, *(an_event_delivery(number).event for number in (4, 3)))
        unit.workers.leave_heartbeat(a_worker(), NOW)


def records(storage: Storage) -> list[object]:
    """Read everything that `fill` has stored, except for the heartbeat."""
    with storage.read() as unit:
        return [
            *(GET[kind(each)](unit, each) for each in RECORDS),
            unit.evidence.of(TOKEN_ID),
            unit.refused_cards.at_centers(since=NOW - DAY, at_least=1),
            unit.sessions.with_page(PROVIDER, MERCHANT_ACCOUNT, "page-1"),
            unit.idempotency_keys.get(CALLER, "key 1", since=NOW - DAY),
            unit.guest_references.get(a_psp_guest()),
            unit.merchant_identities.get(PROVIDER, MERCHANT_ACCOUNT),
            unit.installations.get(),
            unit.events.between(0, unit.events.ends().last.number, EventFilter(), limit=9),
            *(unit.events.get(an_event_delivery(each).event.event_id) for each in (3, 4)),
        ]


def copies(cardonfile: CommandLine, target: str, *options: str) -> str:
    addresses = f"sqlite:///{cardonfile.database}", target
    return cardonfile.succeeds("copy-database", *addresses, *options)


def refusal(cardonfile: CommandLine, target: str) -> str:
    return cardonfile.refuses("copy-database", f"sqlite:///{cardonfile.database}", target)


def run(target: str, statement: str) -> list[tuple[object, ...]]:
    """Run statements as superuser in the target. Return the rows of the last statement."""
    with psycopg.connect(target, autocommit=True) as connection:
        ran = connection.execute(statement.encode())
        while ran.nextset():
            pass
        return ran.fetchall() if ran.description else []


def rows_in(target: str) -> dict[str, object]:
    """Count the rows of every table that the target has."""
    tables = [str(table) for (table,) in run(target, "SELECT relname FROM pg_stat_user_tables")]
    return {table: run(target, f"SELECT count(*) FROM {table}")[0][0] for table in tables}


def is_empty(target: str) -> bool:
    """Return whether a migrated target has no other rows."""
    rows = rows_in(target)
    return bool(rows.pop("cardonfile_migrations")) and set(rows.values()) == {0}


def on_insert(when: str, action: str) -> str:
    """Return SQL that makes a database do something when a row is inserted."""
    constraint = "CONSTRAINT" if "DEFERRABLE" in when else ""
    return (
        f"CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {action}; END';"
        f"CREATE {constraint} TRIGGER act {when} FOR EACH ROW EXECUTE FUNCTION act()"
    )


@contextmanager
def held_up(target: str, when: str) -> Iterator[None]:
    """Make copies into the target wait until the block ends."""
    run(target, on_insert(when, "PERFORM pg_advisory_xact_lock(1); RETURN NEW"))
    with psycopg.connect(target, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(1)")
        yield


class TestCompletedCopies:
    @pytest.mark.parametrize("migrated", [True, False])
    def test_copy_database_copies_every_record_without_changing_the_source(
        self, filled: CommandLine, postgresql_server: str, migrated: bool
    ) -> None:
        filled.storage.close()
        before = filled.database.read_bytes()
        with (
            new_database(postgresql_server, migrated=migrated) as target,
            closing(PostgresqlStorage(target)) as storage,
        ):
            if migrated:
                # A worker may already have run there.
                with committed(storage) as unit:
                    unit.workers.leave_heartbeat(a_worker(), NOW + DAY)

            copies(filled, target)

            copied = records(storage)
        assert filled.database.read_bytes() == before
        assert not list(filled.folder.glob("*-wal"))
        assert copied == records(filled.storage)
        assert None not in copied

    def test_copy_database_prints_row_counts_and_updates_the_statistics_of_the_query_planner(
        self, filled: CommandLine, target: str
    ) -> None:
        header, *lines = (line.split() for line in copies(filled, target).splitlines())

        assert header == ["TABLE", "SQLITE", "POSTGRESQL"]
        counted = {table: int(arrived) for table, sent, arrived in lines if sent == arrived}
        assert {*rows_in(target)} == {*counted, "cardonfile_migrations", "workers"}
        assert (counted["card_sessions"], counted["evidence"], counted["erasures"]) == (2, 5, 1)
        estimated = run(target, "SELECT reltuples FROM pg_class WHERE relname = 'products'")
        assert estimated == [(counted["products"],)] == [(5,)]

    def test_rows_that_are_added_after_a_database_was_copied_are_listed_last(
        self, filled: CommandLine, target: str
    ) -> None:
        copies(filled, target)

        with closing(PostgresqlStorage(target)) as storage:
            with committed(storage) as unit:
                unit.accounts.add(an_account(0))
                unit.evidence.add(TOKEN_ID, an_evidence(content="last"), at_most=50)
                unit.access_tokens.add(an_access_token(token_hash="last"))
                unit.products.put_many([a_product(0)])
            with storage.read() as unit:
                accounts = unit.accounts.page(GUEST_ID, None, PageRequest()).items
                evidence = unit.evidence.of(TOKEN_ID)
                tokens = unit.access_tokens.all()
                products = unit.products.page(CENTER_ID, PageRequest()).items

        assert accounts == tuple(map(an_account, (*SHUFFLED, 0)))
        assert [each.content[-1] for each in evidence] == ["5", "1", "4", "2", "3", "t"]
        assert [each.token_hash for each in tokens][-2:] == ["everywhere", "last"]
        assert [each.code for each in products] == ["P-7", "P-3", "P-9", "P-1", "P-2", "P-0"]

    def test_copy_database_is_exempt_from_the_time_limits_of_the_service(
        self, cardonfile: CommandLine, target: str
    ) -> None:
        limits = ("statement_timeout", "idle_in_transaction_session_timeout")
        for limit in limits:
            set_default(target, f"{limit} = '7s'")

        with copying(cardonfile.database, PostgresqlDatabase(target)) as copy:
            connection = copy._target
            assert connection.statement_seconds is None
            for limit in limits:
                assert connection.execute(f"SHOW {limit}".encode()).fetchone() == ("0",)


class TestRefusedCopies:
    def test_copy_database_refuses_a_source_with_pending_migrations(
        self, unmigrated: CommandLine, target: str
    ) -> None:
        assert refusal(unmigrated, target) == (
            f"the database {unmigrated.database} is missing or not up to date: "
            "run `cardonfile migrate`"
        )
        assert not unmigrated.database.exists()

    def test_copy_database_refuses_a_source_that_another_process_writes_to(
        self, filled: CommandLine, target: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(copy_database, "WAIT_SECONDS", 0.01)
        with filled.storage.write():
            complaint = refusal(filled, target)

        assert complaint.startswith(
            f"the database cannot be used ({filled.database}: database is locked)"
        )

    def test_copy_database_refuses_a_source_with_a_running_worker_unless_it_is_forced(
        self, filled: CommandLine, target: str, migrated_target: str
    ) -> None:
        worker, now = a_worker(7), datetime.now(UTC)
        with committed(filled.storage) as unit:
            unit.workers.leave_heartbeat(worker, now)

        complaint = refusal(filled, target)

        assert complaint.startswith(
            f"nothing was copied: a worker is running (process {worker.pid} on {worker.host})"
        )
        assert "--anyway" in complaint
        copies(filled, migrated_target, "--anyway")
        with committed(filled.storage) as unit:
            unit.workers.leave_heartbeat(worker, now, WorkerState.STOPPED)
        copies(filled, target)


class TestOtherProcesses:
    def test_other_processes_cannot_write_to_source_or_target_during_the_copy(
        self, filled: CommandLine, migrated_target: str
    ) -> None:
        before = records(filled.storage)
        with (
            closing(SqliteStorage(filled.database, busy_timeout_seconds=0.1)) as storage,
            psycopg.connect(migrated_target, autocommit=True) as other,
            copying(filled.database, PostgresqlDatabase(migrated_target)),
        ):
            with pytest.raises(ServiceUnavailable), storage.write():
                pass
            assert records(storage) == before
            other.execute("SET lock_timeout = '100ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute("INSERT INTO centers VALUES (gen_random_uuid(), 'Harbor Spa')")
            assert other.execute("SELECT FROM centers").rowcount == 0

        fill_again = replace(a_guest(), first_name="Ana")
        with committed(filled.storage) as unit:
            unit.guests.put_many([fill_again])
        assert is_empty(migrated_target)

    def test_a_second_copy_of_the_database_at_the_same_time_is_refused(
        self, filled: CommandLine, target: str
    ) -> None:
        other = filled.database.with_name("other.db")
        make_database(other)
        set_default(target, "default_transaction_isolation = serializable")

        def copy_other() -> None:
            with (
                pytest.raises(CopyFailed, match="TO_URL is not empty: it has rows in centers"),
                copying(other, PostgresqlDatabase(target)),
            ):
                pass

        with (
            ThreadPoolExecutor(1) as thread,
            copying(filled.database, PostgresqlDatabase(target)) as copy,
        ):
            second = thread.submit(copy_other)
            wait_until(lambda: run(target, ADVISORY_WAITS))
            copy.run(on_copied=ignore)
            copy.commit()
            second.result()


@pytest.mark.parametrize(
    ("when", "products"),
    [(AT_PRODUCTS, 0), (AT_COMMIT, 5)],
    ids=["during the copy", "at the commit"],
)
def test_ctrl_c_interrupts_a_copy_of_the_database_only_before_the_commit(
    filled: CommandLine, migrated_target: str, when: str, products: int
) -> None:
    def interrupt() -> None:
        with held_up(migrated_target, when):
            holding.set()
            wait_until(lambda: run(migrated_target, ADVISORY_WAITS))
            os.kill(os.getpid(), signal.SIGINT)

    holding = Event()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with ThreadPoolExecutor(1) as thread:
            interrupting = thread.submit(interrupt)
            assert holding.wait(LIMIT_SECONDS)
            copied = filled.run("copy-database", f"sqlite:///{filled.database}", migrated_target)
            interrupting.result()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    interrupted = (130, "interrupted: nothing was copied\n")
    assert (copied.exit_code, copied.stderr) == ((0, "") if products else interrupted)
    assert rows_in(migrated_target)["products"] == products
    assert is_empty(migrated_target) is not bool(products)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """SQL that makes a copy impossible on one side, and the beginning of the error message."""

    complaint: str
    at_source: str = ""
    at_target: str = ""
    migrated: bool = True


DIFFERING: Final = "nothing was copied: SQLite and PostgreSQL must have the same columns, but only one of them has "
CUT_OFF: Final = "PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW"
FAULTS: Final = {
    "other columns": Fault(
        at_target="CREATE TABLE pets (id integer); ALTER TABLE guests DROP COLUMN email",
        complaint=f"{DIFFERING}guests.email, pets.id",
    ),
    "rows in the target": Fault(
        at_target=f"INSERT INTO idempotency_keys VALUES ('shop', 'key', '{a_uuid(1)}', now())",
        complaint="nothing was copied: TO_URL is not empty: it has rows in idempotency_keys\n",
    ),
    "a connection that is lost": Fault(
        at_target=on_insert(AT_PRODUCTS, CUT_OFF),
        complaint="nothing was copied: products: terminating connection",
    ),
    "a connection that is lost at the commit": Fault(
        at_target=on_insert(AT_COMMIT, CUT_OFF),
        complaint="the connection was lost during the commit",
    ),
    "rows that do not arrive": Fault(
        at_target=on_insert("BEFORE INSERT ON access_tokens", "RETURN NULL"),
        complaint="nothing was copied: access_tokens has 6 rows in SQLite, of which 0 arrived in "
        "PostgreSQL\n",
    ),
    "no UUID": Fault(
        at_source="UPDATE guests SET id = 'none' WHERE rowid = 1",
        complaint='nothing was copied: guests: invalid input syntax for type uuid: "none"\n',
    ),
    "a NUL": Fault(
        at_source="UPDATE evidence SET content = char(0) || content WHERE rowid = 1",
        complaint="nothing was copied: evidence: PostgreSQL text fields cannot contain NUL (0x00) "
        "bytes\n",
        migrated=False,
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_during_the_copy_leaves_the_target_unchanged(
    filled: CommandLine, postgresql_server: str, fault: Fault
) -> None:
    with closing(Database(filled.database)) as db:
        db.conn.executescript(fault.at_source)
    with new_database(postgresql_server, migrated=fault.migrated) as target:
        run(target, fault.at_target)
        before = rows_in(target)

        assert f"{refusal(filled, target)}\n".startswith(fault.complaint)

        assert rows_in(target) == before


def ignore(_: int) -> None:
    """Do nothing with the number of rows."""


def test_the_memory_use_of_copy_database_does_not_grow_with_the_number_of_rows(
    cardonfile: CommandLine, postgresql_server: str
) -> None:
    def peak(rows: int) -> int:
        with committed(cardonfile.storage) as unit:
            unit.guests.put_many(a_guest(id=a_uuid(number)) for number in range(rows))
        with (
            new_database(postgresql_server) as target,
            copying(cardonfile.database, PostgresqlDatabase(target)) as copy,
        ):
            tracemalloc.start()
            try:
                copy.run(on_copied=ignore)
                assert copy.total == rows
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    peak(1)
    few = peak(1_000)
    assert peak(10_000) < few + 500_000
