"""The schema as a list of migrations. A migration never changes after its release.

Tables, columns, defaults and migrations have the same names and values as in SQLite. The list
begins with release 0.2, because release 0.1.0 did not support PostgreSQL. A column `sequence`
contains the order in which rows were created, because several rows may have the same time.
"""

from __future__ import annotations

import re
from contextlib import closing, suppress
from typing import Final

from adapters.postgresql.connection import Conflict, Connection, connect, translated
from adapters.sql.migrations import (
    LONG_AGO,
    QUEUES,
    RECORDS_FOR_OPERATORS,
    RELEASE_0_3,
    pending_migrations,
)
from domain.errors import ServiceUnavailable

WAIT_SECONDS: Final = 60
"""How long to wait for another process that migrates the same database."""

TRIES: Final = 10
"""The maximum number of tries. A try may end in a deadlock with the service, which locks tables in
another order.
"""

_LOCK: Final = 7_290_110_336_212
"""The key of the advisory lock: a number that other programs are unlikely to use."""

_TEXT_ID: Final = (
    r"encode(sha256(convert_to(concat_ws(E'\n', version, language, text), 'UTF8')), 'hex')"
)

_TYPES: Final = {
    "uuid": "uuid",
    "time": "timestamptz",
    "json": "jsonb",
    "boolean": "boolean",
    "strict": "",
}
"""PostgreSQL's types, for the statements that both storages share."""

MIGRATIONS: Final = {
    "m005_release_0_2": f"""
        CREATE TABLE centers (
            id uuid PRIMARY KEY,
            name text NOT NULL
        );
        CREATE TABLE guests (
            id uuid PRIMARY KEY,
            first_name text NOT NULL,
            last_name text NOT NULL,
            email text
        );
        CREATE TABLE products (
            id uuid PRIMARY KEY,
            center_id uuid NOT NULL REFERENCES centers,
            position bigint NOT NULL,
            code text NOT NULL,
            name text NOT NULL,
            description text NOT NULL,
            amount numeric NOT NULL,
            currency text NOT NULL
        );
        CREATE UNIQUE INDEX products_position ON products (center_id, position);
        CREATE TABLE payment_configurations (
            center_id uuid PRIMARY KEY,
            provider text NOT NULL,
            merchant_account text NOT NULL,
            avs boolean NOT NULL,
            cards_per_guest text NOT NULL,
            redirect_origins jsonb NOT NULL,
            session_minutes integer NOT NULL,
            link_minutes integer
        );
        -- From here on no foreign key refers to guests or centers: when one is deleted, its cards stay.
        CREATE TABLE card_sessions (
            token_id uuid PRIMARY KEY,
            guest_id uuid NOT NULL,
            center_id uuid NOT NULL,
            caller text NOT NULL,
            source smallint NOT NULL,
            redirect_uri text NOT NULL,
            billing_info jsonb,
            configuration jsonb NOT NULL,
            created_at timestamptz NOT NULL,
            expires_at timestamptz NOT NULL,
            due_at timestamptz,
            status text NOT NULL,
            attempt jsonb,
            unanswered_since timestamptz,
            account_id uuid,
            failure jsonb,
            ended_at timestamptz,
            progress text NOT NULL DEFAULT 'created',
            cancelled_at timestamptz,
            link_minutes integer,
            ask_again_at timestamptz,
            shows_guest boolean NOT NULL DEFAULT false
        );
        CREATE INDEX card_sessions_page ON card_sessions ((attempt #>> '{{page,reference}}'))
            WHERE (attempt #>> '{{page,reference}}') IS NOT NULL;
        CREATE TABLE evidence (
            token_id uuid NOT NULL,
            origin text NOT NULL,
            content text NOT NULL,
            received_at timestamptz NOT NULL,
            content_hash text NOT NULL,
            sequence bigint GENERATED ALWAYS AS IDENTITY,
            PRIMARY KEY (token_id, origin, content_hash)
        );
        CREATE TABLE idempotency_keys (
            caller text NOT NULL,
            key text NOT NULL,
            token_id uuid NOT NULL,
            used_at timestamptz NOT NULL,
            PRIMARY KEY (caller, key)
        );
        CREATE INDEX idempotency_keys_used_at ON idempotency_keys (used_at);

        CREATE TABLE payment_accounts (
            account_id uuid PRIMARY KEY,
            token_id uuid NOT NULL UNIQUE,
            guest_id uuid NOT NULL,
            center_id uuid NOT NULL,
            provider text NOT NULL,
            merchant_account text NOT NULL,
            guest_reference text NOT NULL,
            token text NOT NULL,
            fingerprint text NOT NULL,
            card_logo text NOT NULL,
            last_four text NOT NULL,
            expiry_month smallint NOT NULL,
            expiry_year smallint NOT NULL,
            source smallint NOT NULL,
            consent_version text NOT NULL,
            consented_at timestamptz NOT NULL,
            created_at timestamptz NOT NULL,
            removed_at timestamptz,
            sequence bigint GENERATED ALWAYS AS IDENTITY,
            expiry_notice_at timestamptz DEFAULT '2000-01-01 00:00:00+00',
            is_default boolean NOT NULL DEFAULT false
        );
        CREATE UNIQUE INDEX payment_accounts_active_card ON payment_accounts
            (guest_id, center_id, provider, merchant_account, fingerprint)
            WHERE removed_at IS NULL;
        CREATE INDEX payment_accounts_active_of_guest ON payment_accounts (guest_id, sequence)
            WHERE removed_at IS NULL;
        CREATE INDEX payment_accounts_active_token ON payment_accounts
            (provider, merchant_account, token) WHERE removed_at IS NULL;
        CREATE TABLE guest_references (
            provider text NOT NULL,
            merchant_account text NOT NULL,
            guest_id uuid NOT NULL,
            reference text NOT NULL,
            PRIMARY KEY (provider, merchant_account, guest_id)
        );
        CREATE TABLE discards (
            provider text NOT NULL,
            merchant_account text NOT NULL,
            guest_reference text NOT NULL,
            token text NOT NULL,
            due_at timestamptz,
            begun_at timestamptz,
            unanswered_since timestamptz,
            done_at timestamptz,
            PRIMARY KEY (provider, merchant_account, token)
        );

        CREATE TABLE access_tokens (
            token_hash text PRIMARY KEY,
            prefix text NOT NULL,
            caller jsonb NOT NULL,
            issued_at timestamptz NOT NULL,
            expires_at timestamptz NOT NULL,
            revoked_at timestamptz,
            sequence bigint GENERATED ALWAYS AS IDENTITY
        );

        CREATE TABLE merchant_identities (
            provider text NOT NULL,
            merchant_account text NOT NULL,
            identity text NOT NULL,
            PRIMARY KEY (provider, merchant_account)
        );

        CREATE TABLE worker_heartbeats (
            id bigint PRIMARY KEY,
            left_at timestamptz NOT NULL
        );

        CREATE INDEX card_sessions_of_guest ON card_sessions (guest_id, created_at, token_id);

        CREATE TABLE event_endpoints (
            endpoint_id text PRIMARY KEY,
            url text NOT NULL,
            types jsonb NOT NULL,
            centers jsonb,
            secrets jsonb NOT NULL,
            created_at timestamptz NOT NULL,
            disabled_at timestamptz,
            removed_at timestamptz
        );
        CREATE UNIQUE INDEX event_endpoints_url ON event_endpoints (url) WHERE removed_at IS NULL;
        CREATE TABLE event_deliveries (
            event_id text NOT NULL,
            endpoint_id text NOT NULL,
            event jsonb NOT NULL,
            occurred_at timestamptz NOT NULL,
            due_at timestamptz,
            attempts integer NOT NULL,
            attempted_at timestamptz,
            last_result text,
            status text NOT NULL,
            PRIMARY KEY (event_id, endpoint_id)
        );
        CREATE INDEX event_deliveries_latest ON event_deliveries
            (occurred_at, event_id, endpoint_id);
        CREATE INDEX event_deliveries_failed ON event_deliveries
            (occurred_at, event_id, endpoint_id) WHERE status = 'failed';
        CREATE INDEX payment_accounts_expiry_notice ON payment_accounts (expiry_notice_at)
            WHERE expiry_notice_at IS NOT NULL;
        CREATE UNIQUE INDEX payment_accounts_default ON payment_accounts (guest_id, center_id)
            WHERE is_default AND removed_at IS NULL;
        CREATE INDEX payment_accounts_expiring ON payment_accounts
            (center_id, expiry_year, expiry_month, sequence) WHERE removed_at IS NULL;
        CREATE TABLE refused_cards (
            token_id uuid NOT NULL,
            attempt integer NOT NULL,
            number integer NOT NULL,
            guest_id uuid NOT NULL,
            caller text NOT NULL,
            center_id uuid NOT NULL,
            refused_at timestamptz NOT NULL,
            PRIMARY KEY (token_id, attempt, number)
        );
        CREATE INDEX refused_cards_refused_at ON refused_cards (refused_at, center_id);
        CREATE INDEX refused_cards_of_guest ON refused_cards (guest_id, refused_at);
        CREATE INDEX refused_cards_of_caller ON refused_cards (caller, refused_at);
        CREATE INDEX refused_cards_of_center ON refused_cards (center_id, refused_at);
        CREATE INDEX card_sessions_of_caller ON card_sessions (caller, created_at);
        CREATE INDEX card_sessions_of_center ON card_sessions (center_id, created_at);
        CREATE TABLE psp_guests (
            provider text NOT NULL,
            merchant_account text NOT NULL,
            guest_id uuid NOT NULL,
            center_id uuid NOT NULL,
            prefill text NOT NULL,
            reference text NOT NULL,
            PRIMARY KEY (provider, merchant_account, guest_id, center_id, prefill)
        );
        {QUEUES}
    """,
    "m006_operators": RECORDS_FOR_OPERATORS.format(
        **_TYPES,
        text_id=_TEXT_ID,
        within_30_days="now() + random() * interval '30 days'",
    ),
    "m007_release_0_3": RELEASE_0_3.format(
        **_TYPES,
        big_integer="bigint",
        sequence=", sequence bigint GENERATED ALWAYS AS IDENTITY",
        created="sequence",
        long_ago=LONG_AGO,
    ),
}


def migrate(url: str) -> list[str]:
    """Apply all pending migrations in one transaction, and return their names in order.

    May be called more than once, and in several processes at once: one process applies the
    migrations, and the others wait and return an empty list. The database must exist. Raises
    DatabaseUnusable or ServiceUnavailable.
    """
    for _ in range(TRIES):
        with suppress(Conflict), translated(), closing(connect(url)) as connection:
            names = apply(connection)
            connection.commit()
            return names
    raise ServiceUnavailable


def apply(connection: Connection) -> list[str]:
    """Apply all pending migrations in a connection's open transaction, but do not commit it.

    Return their names in order.
    """
    with connection.limited_to(None):
        connection.execute(f"SET LOCAL lock_timeout = '{WAIT_SECONDS}s'")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        connection.execute(
            "CREATE TABLE IF NOT EXISTS cardonfile_migrations "
            "(name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"
        )
        names = _pending(connection)
        if names:
            _lock_tables(connection)
        for name in names:
            connection.execute(MIGRATIONS[name].encode(), prepare=False)
            connection.execute("INSERT INTO cardonfile_migrations (name) VALUES (%s)", (name,))
    return names


def _lock_tables(connection: Connection) -> None:
    """Lock all tables first, so that a deadlock cannot happen after some of the work is done.

    Tables of other programs or owners in the schema are not locked. While this call waits for the
    locks, the service's requests wait behind it. They fail after 5 seconds, so this call gives up
    after 3 seconds.
    """
    ours = re.findall(r"CREATE TABLE (\w+)", "".join(MIGRATIONS.values()))
    found = connection.execute(
        "SELECT quote_ident(tablename) FROM pg_tables "
        "WHERE schemaname = current_schema() AND tablename = ANY(%s) ORDER BY 1",
        (ours,),
    ).fetchall()
    if found:
        connection.execute("SET LOCAL lock_timeout = '3s'")
        tables = ", ".join(table for (table,) in found)
        connection.execute(f"LOCK TABLE {tables}".encode(), prepare=False)


def pending(url: str) -> list[str]:
    """Return the names of the pending migrations in order. Changes nothing.

    Raises DatabaseUnusable or ServiceUnavailable.
    """
    with translated(), closing(connect(url)) as connection:
        return _pending(connection)


def _pending(connection: Connection) -> list[str]:
    found = connection.execute("SELECT to_regclass('cardonfile_migrations')").fetchone()
    if found == (None,):
        return list(MIGRATIONS)
    applied = connection.execute("SELECT name FROM cardonfile_migrations ORDER BY name").fetchall()
    return pending_migrations(list(MIGRATIONS), [name for (name,) in applied])
