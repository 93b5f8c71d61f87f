"""The schema as a list of migrations. A migration never changes after its release.

Tables are plural nouns, and columns have the names of their record's fields. Times are texts of
fixed width in UTC, so that they can be sorted as texts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from sqlite_utils import Database, Migrations

from adapters.sql.migrations import (
    LONG_AGO,
    QUEUES,
    RECORDS_FOR_OPERATORS,
    RELEASE_0_3,
    pending_migrations,
    text_id,
)
from adapters.sqlite.connection import connect, translated

MIGRATIONS: Final = Migrations("cardonfile")

BUSY_TIMEOUT_SECONDS: Final = 60
"""How long to wait for another process that migrates the same database."""

_TYPES: Final = {
    "uuid": "text",
    "time": "text",
    "json": "text",
    "boolean": "integer",
    "strict": " STRICT",
}
"""SQLite's types, for the statements that both storages share."""


def migrate(path: Path) -> list[str]:
    """Apply all pending migrations in one transaction, and return their names in order.

    May be called more than once, and in several processes at once: one process applies the
    migrations, and the others return an empty list. A missing file is created with mode 0600.
    SQLite gives the same mode to the write-ahead log and its index. Raises DatabaseUnusable,
    ServiceUnavailable, or OSError if the file cannot be created.
    """
    with suppress(FileExistsError):
        path.touch(mode=0o600, exist_ok=False)
    with translated(path), closing(_connect(path)) as db:
        db.execute("PRAGMA query_only=OFF")
        db.execute("BEGIN IMMEDIATE")
        names = _pending(db)
        MIGRATIONS.apply(db)
        db.commit()
        return names


def pending(path: Path) -> list[str]:
    """Return the names of the pending migrations in order. Changes nothing.

    If the file is missing, all migrations are pending. Raises DatabaseUnusable or
    ServiceUnavailable.
    """
    try:
        path.stat()
    except FileNotFoundError:
        return known()
    except OSError:
        pass  # SQLite fails below, with an error that states the reason.
    with translated(path), closing(_connect(path)) as db:
        return _pending(db)


def _connect(path: Path) -> Database:
    return connect(path, busy_timeout_seconds=BUSY_TIMEOUT_SECONDS)


def _pending(db: Database) -> list[str]:
    return pending_migrations(known(), [each.name for each in MIGRATIONS.applied(db)])


def known() -> list[str]:
    """Return the names of all migrations in order."""
    with closing(Database(memory=True)) as empty:
        return [migration.name for migration in MIGRATIONS.pending(empty)]


def _create(
    db: Database,
    table: str,
    columns: Mapping[str, type],
    *,
    key: str | tuple[str, ...],
    optional: Collection[str] = (),
    foreign_keys: Sequence[tuple[str, str, str]] = (),
) -> None:
    db.table(table).create(
        dict(columns),
        pk=key,
        not_null=[column for column in columns if column not in optional],
        foreign_keys=list(foreign_keys),
        strict=True,
    )


@MIGRATIONS()
def m001_records_on_file(db: Database) -> None:
    """Create centers, guests, products and payment configurations."""
    # `import_id` identifies the last import that wrote the row.
    _create(db, "centers", {"id": str, "name": str, "import_id": int}, key="id")
    _create(
        db,
        "guests",
        {"id": str, "first_name": str, "last_name": str, "email": str, "import_id": int},
        key="id",
        optional={"email"},
    )
    _create(
        db,
        "products",
        {
            "id": str,
            "center_id": str,
            "position": int,
            "code": str,
            "name": str,
            "description": str,
            "amount": str,
            "currency": str,
            "import_id": int,
        },
        key="id",
        foreign_keys=[("center_id", "centers", "id")],
    )
    db.table("products").create_index(["center_id", "position"], unique=True)
    _create(
        db,
        "payment_configurations",
        {
            "center_id": str,
            "provider": str,
            "merchant_account": str,
            "avs": int,
            "cards_per_guest": str,
            "redirect_origins": str,
            "session_minutes": int,
        },
        key="center_id",
    )


# From here on, foreign keys do not refer to guests or centers, so their cards stay if one is
# deleted.


@MIGRATIONS()
def m002_card_sessions(db: Database) -> None:
    """Create card sessions, evidence and idempotency keys."""
    _create(
        db,
        "card_sessions",
        {
            "token_id": str,
            "guest_id": str,
            "center_id": str,
            "caller": str,
            "source": int,
            "redirect_uri": str,
            "billing_info": str,
            "configuration": str,
            "created_at": str,
            "expires_at": str,
            "due_at": str,
            "status": str,
            "attempt": str,
            "unanswered_since": str,
            "account_id": str,
            "failure": str,
            "ended_at": str,
        },
        key="token_id",
        optional={
            "billing_info",
            "due_at",
            "attempt",
            "unanswered_since",
            "account_id",
            "failure",
            "ended_at",
        },
    )
    db.execute("CREATE INDEX card_sessions_due ON card_sessions (due_at) WHERE due_at IS NOT NULL")
    db.execute(
        "CREATE INDEX card_sessions_page "
        "ON card_sessions (json_extract(attempt, '$.page.reference')) "
        "WHERE json_extract(attempt, '$.page.reference') IS NOT NULL"
    )
    _create(
        db,
        "evidence",
        {
            "token_id": str,
            "origin": str,
            "content": str,
            "received_at": str,
            "content_hash": str,
        },
        key=("token_id", "origin", "content_hash"),
    )
    _create(
        db,
        "idempotency_keys",
        {"caller": str, "key": str, "token_id": str, "used_at": str},
        key=("caller", "key"),
    )
    db.table("idempotency_keys").create_index(["used_at"])


@MIGRATIONS()
def m003_payment_accounts(db: Database) -> None:
    """Create payment accounts, guest references and discards."""
    _create(
        db,
        "payment_accounts",
        {
            # The order of creation, unique even if times of creation are equal.
            "sequence": int,
            "account_id": str,
            "token_id": str,
            "guest_id": str,
            "center_id": str,
            "provider": str,
            "merchant_account": str,
            "guest_reference": str,
            "token": str,
            "fingerprint": str,
            "card_logo": str,
            "last_four": str,
            "expiry_month": int,
            "expiry_year": int,
            "source": int,
            "consent_version": str,
            "consented_at": str,
            "created_at": str,
            "removed_at": str,
        },
        key="sequence",
        optional={"sequence", "removed_at"},
    )
    db.table("payment_accounts").create_index(["account_id"], unique=True)
    db.table("payment_accounts").create_index(["token_id"], unique=True)
    db.execute(
        "CREATE UNIQUE INDEX payment_accounts_active_card ON payment_accounts "
        "(guest_id, center_id, provider, merchant_account, fingerprint) WHERE removed_at IS NULL"
    )
    db.execute(
        "CREATE INDEX payment_accounts_active_of_guest ON payment_accounts "
        "(guest_id, sequence) WHERE removed_at IS NULL"
    )
    db.execute(
        "CREATE INDEX payment_accounts_active_token ON payment_accounts "
        "(provider, merchant_account, token) WHERE removed_at IS NULL"
    )
    _create(
        db,
        "guest_references",
        {"provider": str, "merchant_account": str, "guest_id": str, "reference": str},
        key=("provider", "merchant_account", "guest_id"),
    )
    _create(
        db,
        "discards",
        {
            "provider": str,
            "merchant_account": str,
            "guest_reference": str,
            "token": str,
            "due_at": str,
            "begun_at": str,
            "unanswered_since": str,
            "done_at": str,
        },
        key=("provider", "merchant_account", "token"),
        optional={"due_at", "begun_at", "unanswered_since", "done_at"},
    )
    db.table("discards").create_index(["due_at"])


@MIGRATIONS()
def m004_access_tokens(db: Database) -> None:
    """Create access tokens."""
    _create(
        db,
        "access_tokens",
        {
            "token_hash": str,
            "prefix": str,
            "caller": str,
            "issued_at": str,
            "expires_at": str,
            "revoked_at": str,
        },
        key="token_hash",
        optional={"revoked_at"},
    )


@MIGRATIONS()
def m005_release_0_2(db: Database) -> None:
    """Migrate a database from release 0.1.0 to 0.2.

    Some new columns have defaults, because processes of 0.1.0 that are still running may add rows
    without these columns. Only 0.1.0 uses the table `guest_references`.
    """
    _create(
        db,
        "merchant_identities",
        {"provider": str, "merchant_account": str, "identity": str},
        key=("provider", "merchant_account"),
    )
    # A single row, with the time of the last heartbeat.
    _create(db, "worker_heartbeats", {"id": int, "left_at": str}, key="id")
    for table in ("centers", "guests", "products"):
        db.execute(f"ALTER TABLE {table} DROP COLUMN import_id")
    _create_events(db)
    _create_refused_cards(db)
    key = ("provider", "merchant_account", "guest_id", "center_id", "prefill")
    _create(db, "psp_guests", dict.fromkeys((*key, "reference"), str), key=key)
    _extend_card_sessions(db)
    _extend_payment_accounts(db)
    # Due rows are indexed by the target of their calls and by their kind, not by time alone.
    db.execute("DROP INDEX card_sessions_due")
    db.execute("DROP INDEX idx_discards_due_at")
    for statement in QUEUES.split(";"):
        db.execute(statement)


def _create_events(db: Database) -> None:
    _create(
        db,
        "event_endpoints",
        {
            "endpoint_id": str,
            "url": str,
            "types": str,
            "centers": str,
            "secrets": str,
            "created_at": str,
            "disabled_at": str,
            "removed_at": str,
        },
        key="endpoint_id",
        optional={"centers", "disabled_at", "removed_at"},
    )
    db.execute(
        "CREATE UNIQUE INDEX event_endpoints_url ON event_endpoints (url) WHERE removed_at IS NULL"
    )
    _create(
        db,
        "event_deliveries",
        {
            "event_id": str,
            "endpoint_id": str,
            "event": str,
            "occurred_at": str,
            "due_at": str,
            "attempts": int,
            "attempted_at": str,
            "last_result": str,
            "status": str,
        },
        key=("event_id", "endpoint_id"),
        optional={"due_at", "attempted_at", "last_result"},
    )
    db.table("event_deliveries").create_index(["occurred_at", "event_id", "endpoint_id"])
    db.execute(
        "CREATE INDEX event_deliveries_failed ON event_deliveries "
        "(occurred_at, event_id, endpoint_id) "
        "WHERE status = 'failed'"
    )


def _create_refused_cards(db: Database) -> None:
    _create(
        db,
        "refused_cards",
        {
            "token_id": str,
            "attempt": int,
            "number": int,
            "guest_id": str,
            "caller": str,
            "center_id": str,
            "refused_at": str,
        },
        key=("token_id", "attempt", "number"),
    )
    db.table("refused_cards").create_index(["refused_at", "center_id"])
    for column in ("guest_id", "caller", "center_id"):
        db.table("refused_cards").create_index([column, "refused_at"])


def _extend_card_sessions(db: Database) -> None:
    for column in (
        "progress TEXT NOT NULL DEFAULT 'created'",
        "cancelled_at TEXT",
        "link_minutes INTEGER",
        "ask_again_at TEXT",
        "shows_guest INTEGER NOT NULL DEFAULT 0",
    ):
        db.execute(f"ALTER TABLE card_sessions ADD COLUMN {column}")
    db.execute("ALTER TABLE payment_configurations ADD COLUMN link_minutes INTEGER")
    db.execute("UPDATE card_sessions SET progress = 'opened' WHERE attempt IS NOT NULL")
    db.table("card_sessions").create_index(["guest_id", "created_at", "token_id"])
    for column in ("caller", "center_id"):
        db.table("card_sessions").create_index([column, "created_at"])


def _extend_payment_accounts(db: Database) -> None:
    # The default makes a card of 0.1.0 due for reading; the reading computes the time of its first
    # notice.
    for column in (
        "expiry_notice_at TEXT DEFAULT '2000-01-01T00:00:00.000000+00:00'",
        "is_default INTEGER NOT NULL DEFAULT 0",
    ):
        db.execute(f"ALTER TABLE payment_accounts ADD COLUMN {column}")
    db.execute(
        "UPDATE payment_accounts SET expiry_notice_at = CASE WHEN removed_at IS NULL THEN "
        "strftime('%Y-%m-%dT00:00:00.000000+00:00', "
        "printf('%04d-%02d-01', expiry_year, expiry_month), '+1 month', '-31 days') END"
    )
    # The oldest active card of each guest and center.
    db.execute(
        "UPDATE payment_accounts SET is_default = 1 WHERE sequence IN ("
        "SELECT min(sequence) FROM payment_accounts WHERE removed_at IS NULL "
        "GROUP BY guest_id, center_id)"
    )
    db.execute(
        "CREATE INDEX payment_accounts_expiry_notice ON payment_accounts (expiry_notice_at) "
        "WHERE expiry_notice_at IS NOT NULL"
    )
    db.execute(
        "CREATE UNIQUE INDEX payment_accounts_default ON payment_accounts "
        "(guest_id, center_id) WHERE is_default AND removed_at IS NULL"
    )
    db.execute(
        "CREATE INDEX payment_accounts_expiring ON payment_accounts "
        "(center_id, expiry_year, expiry_month, sequence) WHERE removed_at IS NULL"
    )


@MIGRATIONS()
def m006_operators(db: Database) -> None:
    """Create the tables for operators."""
    db.register_function(text_id)
    statements = RECORDS_FOR_OPERATORS.format(
        **_TYPES,
        text_id="text_id(version, language, text)",
        within_30_days="strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now', "
        "abs(random() % 2592000) || ' seconds')",
    )
    for statement in statements.split(";"):
        db.execute(statement)


@MIGRATIONS()
def m007_release_0_3(db: Database) -> None:
    """Create the tables that release 0.3.0 adds."""
    statements = RELEASE_0_3.format(
        **_TYPES,
        big_integer="integer",
        sequence="",
        # An index contains the row's id, which is in the order of creation.
        created="number",
        long_ago=LONG_AGO,
    )
    for statement in statements.split(";"):
        db.execute(statement)
