"""The service on PostgreSQL behind PgBouncer. Any connection may serve a transaction.

`make test-deploy` runs it. `make test` does not: it has no PgBouncer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import psycopg
import pytest

from adapters.postgresql.migrations import MIGRATIONS, migrate, pending
from adapters.postgresql.storage import PostgresqlStorage
from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import TOKEN_ID, a_uuid
from domain.identifiers import GuestId
from domain.sessions.end import SessionStatus
from domain.storage import WriteUnit
from tests.adapters.postgresql.by_hand import cut_off, execute
from tests.adapters.postgresql.relay import relay_to
from tests.builders import a_guest, a_session
from tests.databases import transaction_of
from tests.deploy.pgbouncer import pgbouncer
from tests.installation import Installation
from tests.postgresql import new_database

SETTINGS: Final = ("TimeZone", "lock_timeout", "idle_in_transaction_session_timeout")

REFUSE_UNSAFE_WRITES: Final = """
    CREATE FUNCTION refuse_unsafe() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF current_setting('synchronous_commit') <> 'on'
            OR current_setting('TimeZone') <> 'UTC'
            OR current_setting('lock_timeout') <> '5s'
            OR current_setting('idle_in_transaction_session_timeout') <> '1min'
        THEN RAISE 'the transaction lacks a setting' USING ERRCODE = 'syntax_error'; END IF;
        RETURN NULL;
    END $$;
    DO $$ DECLARE each text; BEGIN
        FOR each IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
            EXECUTE format('CREATE TRIGGER safe BEFORE INSERT OR UPDATE OR DELETE ON %I '
                'EXECUTE FUNCTION refuse_unsafe()', each);
        END LOOP;
    END $$
"""


@pytest.fixture
def database(postgresql_server: str) -> Iterator[str]:
    """Return the address of a database whose role has unsafe settings for commits."""
    with new_database(postgresql_server) as url:
        role = f"ALTER ROLE CURRENT_USER IN DATABASE {url.rpartition('/')[2]} SET"
        execute(url, f"{role} synchronous_commit = off; {role} TimeZone = 'Asia/Tokyo'")
        execute(url, REFUSE_UNSAFE_WRITES)
        yield url


@pytest.fixture
def pooled(database: str) -> Iterator[str]:
    """Return the address of the database behind PgBouncer."""
    with pgbouncer(database) as url:
        yield url


@pytest.fixture
def installation(tmp_path: Path, pooled: str) -> Iterator[Installation]:
    """Return an installation behind PgBouncer."""
    with closing(
        Installation(
            tmp_path,
            CARDONFILE_DATABASE_URL=pooled,
            CARDONFILE_FAKE_PSP_DATABASE=str(tmp_path / "fake-psp.db"),
        )
    ) as installation:
        yield installation


def add(unit: WriteUnit) -> str:
    unit.sessions.add(a_session())
    unit.commit()
    return "added"


def has_session(url: str) -> bool:
    with closing(PostgresqlStorage(url)) as storage, storage.read() as unit:
        return unit.sessions.get(TOKEN_ID) is not None


def test_clients_that_share_two_pooled_connections_can_store_cards(
    installation: Installation,
) -> None:
    guests = [GuestId(a_uuid(500 + number)) for number in range(8)]
    for guest_id in guests:
        installation.has_guest(a_guest(id=guest_id))

    def add_cards(number: int) -> None:
        for _ in range(3):
            account = installation.stored_card(guest_id=guests[number])
            installation.use_cases.remove_account(
                installation.caller, guest_id=guests[number], account_id=account.account_id
            )
        installation.stored_card(guest_id=guests[number])

    at_once(8, add_cards)

    installation.reconcile()
    accounts = [account for each in guests for account in installation.accounts(each)]
    assert len(accounts) == 8
    assert installation.tokens_at_psp() == {account.token for account in accounts}


def test_our_transactions_use_safe_settings_that_other_users_of_the_pool_do_not_get(
    pooled: str, installation: Installation
) -> None:
    session = installation.opened_session()

    # This keeps the only used connection busy, so that the service gets a new connection.
    with psycopg.connect(pooled) as other:
        other.execute("SELECT 1")
        installation.type_card_and_return(session)

        assert installation.session(session.token_id).status is SessionStatus.COMPLETED
        with installation.storage.read() as unit:
            settings = [transaction_of(unit).one(f"SHOW {name}")[0] for name in SETTINGS]
        of_others = [other.execute(f"SHOW {name}".encode()).fetchone() for name in SETTINGS]
    assert settings == ["UTC", "5s", "1min"]
    assert of_others == [("Asia/Tokyo",), ("0",), ("0",)]


def test_requests_work_after_postgresql_behind_pgbouncer_was_restarted(
    database: str, installation: Installation
) -> None:
    installation.stored_card()
    cut_off(database)
    assert installation.add_card().status is SessionStatus.OPEN


def test_the_outcome_of_a_commit_whose_response_was_lost_is_looked_up(pooled: str) -> None:
    with relay_to(pooled) as relay, closing(PostgresqlStorage(relay.url)) as relayed:
        relay.after_commit = relay.cut
        assert relayed.transact(add) == "added"
    assert has_session(pooled)


def test_migrations_can_be_applied_through_pgbouncer(postgresql_server: str) -> None:
    with new_database(postgresql_server, migrated=False) as url, pgbouncer(url) as pooled:
        assert migrate(pooled) == list(MIGRATIONS)
        assert migrate(pooled) == pending(pooled) == []
