"""Moving an installation from SQLite to PostgreSQL: everything arrives, or nothing."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from io import FileIO
from typing import Final

import psycopg
import pytest
from sqlite_utils import Database

from adapters.postgresql.connection import Connection
from adapters.postgresql.migrations import migrate
from adapters.postgresql.storage import PostgresqlStorage
from adapters.psp.contract.samples import (
    GUEST_ID,
    MERCHANT_ACCOUNT,
    NOW,
    OTHER_GUEST_ID,
    TOKEN_ID,
    a_uuid,
)
from adapters.sqlite.storage import SqliteStorage
from domain.card_sessions import Failure, SessionStatus
from domain.errors import ServiceUnavailable
from domain.hosted_pages import EvidenceOrigin
from domain.identifiers import CardToken, GuestReference, TokenId
from domain.pagination import PageRequest
from domain.ports import Storage
from entrypoints.copy_database import copying
from entrypoints.settings import PostgresqlDatabase
from tests.builders import (
    CALLER,
    CENTER_ID,
    OTHER_CENTER_ID,
    PROVIDER,
    a_caller,
    a_center,
    a_configuration,
    a_discard,
    a_guest,
    a_payment_account,
    a_product,
    a_session,
    an_access_token,
    an_attempt,
    an_evidence,
)
from tests.databases import make_database
from tests.entrypoints.conftest import ROOT, CommandLine
from tests.postgresql import new_database, own_server
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

DEADLINE_SECONDS = 60
DAY: Final = timedelta(days=1)
OTHER_TOKEN_ID: Final = TokenId(a_uuid(22))

# Whatever has a meaning in COPY, in JSON or in SQL.
ODD: Final = (
    "tab\there, line\nbreak\r\n, \\N, \\., back\\slash, \"quotes\", 'too', NULL, \U0001f600"
)

HOLD_UP: Final = """
    CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END';
"""
# The products come last: all other rows are in the target by then.
AT_PRODUCTS: Final = """
    CREATE TRIGGER hold_up BEFORE INSERT ON products FOR EACH ROW EXECUTE FUNCTION hold_up();
"""
AT_PRODUCTS_TO_COME: Final = f"""
    CREATE FUNCTION watch() RETURNS event_trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands()
                   WHERE object_identity = 'public.products') THEN
            {AT_PRODUCTS}
        END IF;
    END $$;
    CREATE EVENT TRIGGER watch ON ddl_command_end WHEN TAG IN ('CREATE TABLE')
        EXECUTE FUNCTION watch();
"""
AT_COMMIT: Final = """
    CREATE CONSTRAINT TRIGGER hold_up AFTER INSERT ON centers
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold_up();
"""
OTHERS: Final = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
TERMINATE_COPIES: Final = """
    SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_database ON oid = database
    WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted
"""
TERMINATED: Final = (
    b"Error: nothing was copied: products: terminating connection due to administrator command\n"
)


@pytest.fixture
def target(postgresql_server: str) -> Iterator[str]:
    """Give the address of an empty database that has not been migrated."""
    with new_database(postgresql_server, migrated=False) as url:
        yield url


@pytest.fixture
def migrated_target(postgresql_server: str) -> Iterator[str]:
    """Give the address of a database that has been migrated, and is empty."""
    with new_database(postgresql_server) as url:
        yield url


@pytest.fixture
def filled(cardonfile: CommandLine) -> CommandLine:
    """Give the command line on a database with records of every kind."""
    fill(cardonfile.storage)
    return cardonfile


def fill(storage: Storage) -> None:
    """Store records of every kind, some of which only their order tells apart."""
    with storage.write() as unit:
        unit.centers.put_many([a_center(), a_center(id=OTHER_CENTER_ID, name=ODD)])
        unit.guests.put_many(
            [
                a_guest(),
                a_guest(id=OTHER_GUEST_ID, first_name="\\N", last_name="", email=None),
            ]
        )
        unit.products.put_many(
            [
                *(a_product(number) for number in (7, 3, 9)),
                a_product(1, description=ODD, amount=Decimal("0.10")),
                a_product(2, center_id=OTHER_CENTER_ID, amount=Decimal("99999999.9999")),
            ]
        )
        unit.configurations.put(CENTER_ID, a_configuration())
        unit.configurations.put(OTHER_CENTER_ID, a_configuration(avs=False, redirect_origins=()))
        unit.sessions.add(a_session(attempt=an_attempt(), unanswered_since=NOW))
        unit.sessions.add(
            a_session(
                token_id=OTHER_TOKEN_ID,
                billing_info=None,
                status=SessionStatus.FAILED,
                failure=Failure(code=1, message=ODD),
                due_at=None,
                ended_at=NOW,
            )
        )
        for number in (5, 1, 4, 2, 3):
            content = f"{ODD} {number}"
            unit.evidence.add(TOKEN_ID, an_evidence(content=content))
            unit.evidence.add(
                OTHER_TOKEN_ID, an_evidence(content=content, origin=EvidenceOrigin.RETURN)
            )
            unit.accounts.add(a_payment_account(number))
            unit.access_tokens.add(an_access_token(token_hash=f"hash-{number}"))
        unit.accounts.add(a_payment_account(6, removed_at=NOW))
        unit.access_tokens.add(
            an_access_token(
                token_hash="everywhere", caller=a_caller(centers=None), revoked_at=NOW + DAY
            )
        )
        unit.idempotency_keys.claim(CALLER, "key 1", TOKEN_ID, now=NOW, since=NOW - DAY)
        unit.guest_references.keep(PROVIDER, MERCHANT_ACCOUNT, GUEST_ID, GuestReference("r"))
        unit.merchant_identities.claim(PROVIDER, MERCHANT_ACCOUNT, "acct_1 test")
        unit.discards.add(a_discard())
        unit.discards.add(a_discard(token=CardToken("token-2"), due_at=None, done_at=NOW))
        unit.commit()


def records(storage: Storage) -> dict[str, object]:
    """Read everything that `fill` has stored, as the repositories give it."""
    with storage.read() as unit:
        return {
            "centers": [unit.centers.get(each) for each in (CENTER_ID, OTHER_CENTER_ID)],
            "guests": [unit.guests.get(each) for each in (GUEST_ID, OTHER_GUEST_ID)],
            "products": [
                unit.products.page(each, PageRequest()) for each in (CENTER_ID, OTHER_CENTER_ID)
            ],
            "configurations": [
                unit.configurations.get(each) for each in (CENTER_ID, OTHER_CENTER_ID)
            ],
            "sessions": [unit.sessions.get(each) for each in (TOKEN_ID, OTHER_TOKEN_ID)],
            "paged": unit.sessions.with_page(PROVIDER, MERCHANT_ACCOUNT, "page-1"),
            "evidence": [unit.evidence.of(each) for each in (TOKEN_ID, OTHER_TOKEN_ID)],
            "accounts": unit.accounts.page(GUEST_ID, None, PageRequest()),
            "removed": unit.accounts.get(a_payment_account(6).account_id),
            "tokens": unit.access_tokens.all(),
            "keys": unit.idempotency_keys.get(CALLER, "key 1", since=NOW - DAY),
            "references": unit.guest_references.get(PROVIDER, MERCHANT_ACCOUNT, GUEST_ID),
            "identities": unit.merchant_identities.get(PROVIDER, MERCHANT_ACCOUNT),
            "discards": [
                unit.discards.get(PROVIDER, MERCHANT_ACCOUNT, CardToken(f"token-{number}"))
                for number in (1, 2)
            ],
        }


def copies(cardonfile: CommandLine, target: str) -> str:
    return cardonfile.succeeds("copy-database", f"sqlite:///{cardonfile.database}", target)


def refusal(cardonfile: CommandLine, target: str) -> str:
    return cardonfile.refuses("copy-database", f"sqlite:///{cardonfile.database}", target)


def starts(
    cardonfile: CommandLine, target: str, *, stderr: int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    source = f"sqlite:///{cardonfile.database}"
    return cardonfile.start("copy-database", source, target, stderr=stderr)


def run(target: str, statement: str) -> list[tuple[object, ...]]:
    """Run statements of a superuser in the target; gives the rows of the last one."""
    with psycopg.connect(target, autocommit=True) as connection:
        ran = connection.execute(statement.encode())
        while ran.nextset():
            pass
        return ran.fetchall() if ran.description else []


def rows_in(target: str) -> dict[str, object]:
    """Count the rows of every table that the target has."""
    tables = [str(table) for (table,) in run(target, "SELECT relname FROM pg_stat_user_tables")]
    return {table: run(target, f"SELECT count(*) FROM {table}")[0][0] for table in tables}


def is_empty(target: str, *, migrated: bool) -> bool:
    """Tell whether the target has the tables of this release without a row, or has none at all."""
    rows = rows_in(target)
    if not migrated:
        return rows == {}
    return bool(rows.pop("cardonfile_migrations")) and set(rows.values()) == {0}


@contextmanager
def held_up(target: str, trigger: str) -> Iterator[Callable[[int], None]]:
    """Have copies into the target wait where a trigger says. Gives how to wait for so many."""
    with psycopg.connect(target, autocommit=True) as other:
        other.execute((HOLD_UP + trigger).encode())
        other.execute("SELECT pg_advisory_lock(1)")

        def wait_for(copies: int) -> None:
            wait_until(lambda: waiting() == copies)

        def waiting() -> int:
            row = other.execute(
                "SELECT count(*) FROM pg_locks JOIN pg_database ON oid = database "
                "WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted"
            ).fetchone()
            assert row is not None
            return int(row[0])

        yield wait_for


class TestCopied:
    @pytest.mark.parametrize("migrated", [True, False])
    def test_every_record_reads_the_same(
        self, filled: CommandLine, postgresql_server: str, migrated: bool
    ) -> None:
        with new_database(postgresql_server, migrated=migrated) as target:
            copies(filled, target)

            with closing(PostgresqlStorage(target)) as storage:
                copied = records(storage)

        assert copied == records(filled.storage)
        assert None not in copied.values()

    def test_the_rows_of_every_table_are_counted(self, filled: CommandLine, target: str) -> None:
        printed = copies(filled, target)

        assert printed == (
            "TABLE                         SQLITE  POSTGRESQL\n"
            "centers                            2           2\n"
            "guests                             2           2\n"
            "payment_configurations             2           2\n"
            "card_sessions                      2           2\n"
            "evidence                          10          10\n"
            "idempotency_keys                   1           1\n"
            "payment_accounts                   6           6\n"
            "guest_references                   1           1\n"
            "discards                           2           2\n"
            "access_tokens                      6           6\n"
            "merchant_identities                1           1\n"
            "products                           5           5\n"
        )

    def test_a_target_on_which_a_worker_has_run_counts_as_empty(
        self, filled: CommandLine, target: str
    ) -> None:
        migrate(target)
        for storage in (PostgresqlStorage(target), filled.storage):
            with closing(storage), storage.write() as unit:
                unit.worker_heartbeats.leave(NOW)
                unit.commit()

        assert "worker_heartbeats" not in copies(filled, target)

    def test_what_is_added_afterwards_comes_last(self, filled: CommandLine, target: str) -> None:
        copies(filled, target)

        with closing(PostgresqlStorage(target)) as storage:
            with storage.write() as unit:
                unit.accounts.add(a_payment_account(0))
                unit.evidence.add(TOKEN_ID, an_evidence(content="last"))
                unit.access_tokens.add(an_access_token(token_hash="last"))
                unit.products.put_many([a_product(0)])
                unit.commit()
            with storage.read() as unit:
                accounts = unit.accounts.page(GUEST_ID, None, PageRequest()).items
                evidence = unit.evidence.of(TOKEN_ID)
                tokens = unit.access_tokens.all()
                products = unit.products.page(CENTER_ID, PageRequest()).items

        assert accounts == tuple(map(a_payment_account, (5, 1, 4, 2, 3, 0)))
        assert [each.content[-1] for each in evidence] == ["5", "1", "4", "2", "3", "t"]
        assert [each.token_hash for each in tokens][-2:] == ["everywhere", "last"]
        assert [each.code for each in products] == ["P-7", "P-3", "P-9", "P-1", "P-0"]

    def test_the_source_stays_as_it_is(self, filled: CommandLine, target: str) -> None:
        filled.storage.close()
        before = filled.database.read_bytes()

        copies(filled, target)

        assert filled.database.read_bytes() == before
        assert not list(filled.folder.glob("*-wal"))

    def test_an_installation_without_records_is_moved(
        self, cardonfile: CommandLine, target: str
    ) -> None:
        printed = copies(cardonfile, target)

        assert {line.split()[-1] for line in printed.splitlines()[1:]} == {"0"}
        assert is_empty(target, migrated=True)

    def test_the_planner_knows_the_rows(self, filled: CommandLine, target: str) -> None:
        copies(filled, target)

        estimated = run(target, "SELECT reltuples FROM pg_class WHERE relname = 'products'")
        assert estimated == [(5,)]

    def test_what_sqlite_keeps_for_itself_is_left_out(
        self, filled: CommandLine, target: str
    ) -> None:
        with closing(sqlite3.connect(filled.database)) as db:
            db.execute("ANALYZE")

        copies(filled, target)

    def test_progress_is_shown_on_a_terminal(self, filled: CommandLine, target: str) -> None:
        terminal, end_of_process = os.openpty()
        with FileIO(terminal) as shown:
            with starts(filled, target, stderr=end_of_process) as process:
                printed, _ = process.communicate(timeout=DEADLINE_SECONDS)
            bar = shown.read(10_000)
            os.close(end_of_process)

        assert process.returncode == 0
        assert printed.startswith(b"TABLE ")
        assert b"copying rows" in bar
        assert b"100%" in bar

    def test_limits_of_time_that_a_service_has_do_not_end_it(
        self, filled: CommandLine, migrated_target: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Connection, "statement_seconds", 1)
        run(
            migrated_target,
            """
            CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
                'BEGIN PERFORM pg_sleep(1.5); RETURN NULL; END';
            CREATE TRIGGER slow AFTER INSERT ON products EXECUTE FUNCTION slow();
            DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET statement_timeout = ''1s''',
                                       current_database()); END $$
            """,
        )

        copies(filled, migrated_target)

    def test_ctrl_c_works_as_before_once_it_is_over(self, filled: CommandLine, target: str) -> None:
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            copies(filled, target)

            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        finally:
            signal.signal(signal.SIGINT, before)


class TestSchemas:
    def test_both_have_the_same_columns_and_want_the_same_of_them(
        self, cardonfile: CommandLine, migrated_target: str
    ) -> None:
        with closing(Database(cardonfile.database)) as db:
            in_sqlite = {
                (table, column.name, bool(column.notnull))
                for table in db.table_names()
                for column in db.table(table).columns
                if table != "_sqlite_migrations" and column.name not in {"import_id", "sequence"}
            }
        in_postgresql = run(
            migrated_target,
            "SELECT table_name, column_name, is_nullable = 'NO' FROM information_schema.columns "
            "WHERE table_schema = 'public' AND table_name <> 'cardonfile_migrations' "
            "AND column_name <> 'sequence'",
        )

        assert in_sqlite == set(in_postgresql)

    @pytest.mark.parametrize(
        ("change", "differing"),
        [
            ("ALTER TABLE guests ADD COLUMN phone text", "guests.phone"),
            ("ALTER TABLE guests DROP COLUMN email", "guests.email"),
            ("ALTER TABLE evidence ADD COLUMN number serial", "evidence.number"),
            ("CREATE TABLE pets (id integer, name text)", "pets.id, pets.name"),
            ("DROP TABLE idempotency_keys", "idempotency_keys.caller, idempotency_keys.key, "),
        ],
    )
    def test_a_column_that_only_sqlite_has_or_only_postgresql_is_named(
        self, filled: CommandLine, migrated_target: str, change: str, differing: str
    ) -> None:
        run(migrated_target, change)

        complaint = refusal(filled, migrated_target)

        assert complaint.startswith(
            "nothing was copied: SQLite and PostgreSQL must have the same columns, and only one "
            f"of them has {differing}"
        )

    def test_a_column_that_only_sqlite_has_is_not_forgotten(
        self, filled: CommandLine, target: str
    ) -> None:
        with closing(sqlite3.connect(filled.database)) as db:
            db.execute("ALTER TABLE payment_accounts ADD COLUMN nickname text")

        assert refusal(filled, target).endswith("only one of them has payment_accounts.nickname")
        assert is_empty(target, migrated=False)


class TestRefused:
    @pytest.mark.parametrize(
        ("from_url", "to_url"),
        [
            ("sqlite:///a.db", "sqlite:///b.db"),
            ("postgresql://a@127.0.0.1/a", "postgresql://b:s3cret@127.0.0.1/b"),
            ("postgresql://a:s3cret@127.0.0.1/a", "sqlite:///b.db"),
        ],
    )
    def test_any_other_direction(self, cardonfile: CommandLine, from_url: str, to_url: str) -> None:
        assert cardonfile.refuses("copy-database", from_url, to_url) == (
            "FROM_URL must be an SQLite file, and TO_URL a PostgreSQL database"
        )

    def test_an_address_that_is_none(self, cardonfile: CommandLine) -> None:
        for arguments, name in ((("a.db", "b"), "FROM_URL"), (("sqlite:///a", "b"), "TO_URL")):
            complaint = cardonfile.refuses("copy-database", *arguments)
            assert complaint.startswith(f"{name} must look like ")

    def test_a_source_that_is_not_up_to_date(self, unmigrated: CommandLine, target: str) -> None:
        assert refusal(unmigrated, target) == (
            f"the database {unmigrated.database} is missing or not up to date: "
            "run `cardonfile migrate`"
        )
        assert not unmigrated.database.exists()

    def test_a_source_of_a_newer_release(self, filled: CommandLine, target: str) -> None:
        with closing(sqlite3.connect(filled.database, isolation_level=None)) as db:
            db.execute(
                "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) "
                "VALUES ('cardonfile', 'm999_later', '')"
            )

        assert "newer release" in refusal(filled, target)
        assert is_empty(target, migrated=False)

    def test_a_target_of_a_newer_release(self, filled: CommandLine, migrated_target: str) -> None:
        run(migrated_target, "INSERT INTO cardonfile_migrations (name) VALUES ('m999_later')")

        assert "newer release" in refusal(filled, migrated_target)
        assert is_empty(migrated_target, migrated=True)

    @pytest.mark.parametrize(
        ("table", "row"),
        [
            ("centers", f"('{a_uuid(1)}', 'Harbor Spa')"),
            ("idempotency_keys", f"('web-store', 'key', '{a_uuid(1)}', now())"),
        ],
    )
    def test_a_target_that_is_not_empty(
        self, filled: CommandLine, migrated_target: str, table: str, row: str
    ) -> None:
        run(migrated_target, f"INSERT INTO {table} VALUES {row}")
        before = rows_in(migrated_target)

        assert refusal(filled, migrated_target) == (
            f"nothing was copied: there are rows in {table} of TO_URL already"
        )
        assert rows_in(migrated_target) == before

    def test_a_second_copy(self, filled: CommandLine, target: str) -> None:
        copies(filled, target)

        assert "there are rows in centers" in refusal(filled, target)

    def test_a_target_that_cannot_be_reached(self, filled: CommandLine) -> None:
        complaint = refusal(filled, "postgresql://someone:s3cret@127.0.0.1:1/cards")

        assert complaint.startswith("the database cannot be used (connection failed: ")
        assert "s3cret" not in complaint

    @pytest.mark.parametrize(
        "password", ["s3@cret", "s3/cret", "s3%cret", "s3 cret", "s3\udcffcret"]
    )
    def test_no_part_of_a_password_that_is_not_escaped_is_shown(
        self, filled: CommandLine, password: str
    ) -> None:
        complaint = refusal(filled, f"postgresql://someone:{password}@127.0.0.1:1/cards")

        assert complaint.startswith("the address of the PostgreSQL database cannot be read")
        assert "s3" not in complaint
        assert "cret" not in complaint

    def test_no_address_is_shown_with_the_usage(self, cardonfile: CommandLine) -> None:
        result = cardonfile.run(
            "copy-database", "sqlite:///my", "cards.db", "postgresql://a:s3@b/c"
        )

        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("Usage: ")
        assert "s3" not in result.stderr

    def test_a_password_that_is_wrong_is_shown_nowhere(self, filled: CommandLine) -> None:
        with own_server() as server:
            server.stop()
            access = server._data / "pg_hba.conf"
            access.write_text(f"host all guarded 127.0.0.1/32 scram-sha-256\n{access.read_text()}")
            server.start()
            run(server.url, "CREATE ROLE guarded SUPERUSER LOGIN PASSWORD 'right'")
            without_password = server.url.replace("postgres@", "guarded@")

            complaint = refusal(filled, server.url.replace("postgres@", "guarded:s3cret@"))
            by_environment = filled.succeeds(
                "copy-database",
                f"sqlite:///{filled.database}",
                without_password,
                PGPASSWORD="right",
            )

        assert "password authentication failed" in complaint
        assert "s3cret" not in complaint
        assert by_environment.startswith("TABLE ")

    def test_without_the_client_of_postgresql_it_says_what_to_install(
        self, filled: CommandLine
    ) -> None:
        missing = filled.folder / "missing"
        missing.mkdir()
        (missing / "psycopg.py").write_text("raise ImportError")
        filled.environment["PYTHONPATH"] = f"{missing}{os.pathsep}{ROOT}"

        with starts(filled, "postgresql://someone@127.0.0.1:1/cards") as process:
            printed, complaint = process.communicate(timeout=DEADLINE_SECONDS)

        assert (process.returncode, printed) == (1, b"")
        assert complaint.startswith(b"Error: a PostgreSQL database needs an extra ")
        assert complaint.count(b"\n") == 1

    def test_a_source_that_others_write_to(self, filled: CommandLine, target: str) -> None:
        with filled.storage.write():
            complaint = refusal(filled, target)

        assert complaint == (f"the database cannot be used ({filled.database}: database is locked)")


class TestOthers:
    def test_nobody_else_writes_to_either_side_meanwhile(
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
        with filled.storage.write() as unit:
            unit.guests.put_many([fill_again])
            unit.commit()
        assert is_empty(migrated_target, migrated=True)

    def test_of_two_copies_at_once_one_is_refused(self, filled: CommandLine, target: str) -> None:
        folder = filled.folder / "other"
        folder.mkdir()
        other = CommandLine(folder)
        make_database(other.database)
        run(
            target,
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = "
            "''serializable''', current_database()); END $$",
        )

        with held_up(target, AT_PRODUCTS_TO_COME) as wait_for:
            first = starts(filled, target)
            wait_for(1)
            second = starts(other, target)
            wait_for(2)
        with first, second:
            _, warned = first.communicate(timeout=DEADLINE_SECONDS)
            printed, complaint = second.communicate(timeout=DEADLINE_SECONDS)

        assert (first.returncode, warned) == (0, b"")
        assert (second.returncode, printed) == (1, b"")
        assert complaint == (
            b"Error: nothing was copied: there are rows in centers of TO_URL already\n"
        )


class TestInterrupted:
    @pytest.mark.parametrize("migrated", [True, False])
    @pytest.mark.parametrize(
        ("interrupt", "status", "expected"),
        [
            ("Ctrl-C", 130, b"interrupted: nothing was copied\n"),
            ("SIGKILL", -signal.SIGKILL, b""),
            (
                "connection lost",
                1,
                TERMINATED,
            ),
        ],
    )
    def test_one_leaves_an_empty_target_and_can_be_done_again(
        self,
        filled: CommandLine,
        postgresql_server: str,
        migrated: bool,
        interrupt: str,
        status: int,
        expected: bytes,
    ) -> None:
        with new_database(postgresql_server, migrated=migrated) as target:
            with (
                held_up(target, AT_PRODUCTS if migrated else AT_PRODUCTS_TO_COME) as wait_for,
                starts(filled, target) as process,
            ):
                wait_for(1)
                if interrupt == "connection lost":
                    run(target, TERMINATE_COPIES)
                else:
                    process.send_signal(signal.SIGINT if interrupt == "Ctrl-C" else signal.SIGKILL)
                printed, complaint = process.communicate(timeout=DEADLINE_SECONDS)
            # PostgreSQL learns of a client that is gone once nothing else keeps it busy.
            wait_until(lambda: not run(target, OTHERS))

            assert (process.returncode, printed, complaint) == (status, b"", expected)
            assert is_empty(target, migrated=migrated)
            copies(filled, target)

    def test_ctrl_c_comes_too_late_at_the_commit(
        self, filled: CommandLine, migrated_target: str
    ) -> None:
        with held_up(migrated_target, AT_COMMIT) as wait_for:
            process = starts(filled, migrated_target)
            wait_for(1)
            process.send_signal(signal.SIGINT)
        with process:
            printed, complaint = process.communicate(timeout=DEADLINE_SECONDS)

        assert (process.returncode, complaint) == (0, b"")
        assert printed.startswith(b"TABLE ")
        assert rows_in(migrated_target)["products"] == 5

    def test_a_connection_lost_at_the_commit_is_no_success(
        self, filled: CommandLine, migrated_target: str
    ) -> None:
        run(
            migrated_target,
            """
            CREATE FUNCTION hang_up() RETURNS trigger LANGUAGE plpgsql AS
                'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END';
            CREATE CONSTRAINT TRIGGER hang_up AFTER INSERT ON centers
                DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hang_up();
            """,
        )

        complaint = refusal(filled, migrated_target)

        assert complaint.startswith("the connection was lost at the last moment")
        assert is_empty(migrated_target, migrated=True)

    def test_a_row_that_does_not_arrive_undoes_the_copy(
        self, filled: CommandLine, migrated_target: str
    ) -> None:
        run(
            migrated_target,
            f"""
            CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS
                'BEGIN RETURN NULL; END';
            CREATE TRIGGER swallow BEFORE INSERT ON guests
                FOR EACH ROW WHEN (NEW.id = '{OTHER_GUEST_ID}') EXECUTE FUNCTION swallow();
            """,
        )

        assert refusal(filled, migrated_target) == (
            "nothing was copied: guests has 2 rows in SQLite, of which 1 arrived in PostgreSQL"
        )
        assert is_empty(migrated_target, migrated=True)

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            ("UPDATE guests SET id = 'none'", 'guests: invalid input syntax for type uuid: "none"'),
            (
                "UPDATE card_sessions SET billing_info = '{'",
                "card_sessions: invalid input syntax for type json",
            ),
            (
                "UPDATE evidence SET content = char(0) || content",
                "evidence: PostgreSQL text fields cannot contain NUL (0x00) bytes",
            ),
        ],
    )
    def test_a_row_that_postgresql_does_not_take_undoes_it_and_is_not_shown(
        self, filled: CommandLine, target: str, change: str, problem: str
    ) -> None:
        with closing(sqlite3.connect(filled.database, isolation_level=None)) as db:
            db.execute("DELETE FROM guests WHERE rowid > 1")
            db.execute(change + " WHERE rowid = 1")

        assert refusal(filled, target) == f"nothing was copied: {problem}"
        assert is_empty(target, migrated=False)


def ignore(_: int) -> None:
    """Take no notice of what was copied."""


def test_memory_does_not_grow_with_the_rows(
    cardonfile: CommandLine, postgresql_server: str
) -> None:
    def peak(rows: int) -> int:
        with cardonfile.storage.write() as unit:
            unit.guests.put_many(a_guest(id=a_uuid(number)) for number in range(rows))
            unit.commit()
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
    assert peak(30_000) < few + 1_000_000
