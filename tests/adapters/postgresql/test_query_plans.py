"""What is asked often, or of tables that grow, is answered from an index and never sorted.

The planner chooses by itself here, over tables of some thousand rows of which it has statistics.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final

import pytest

from adapters.postgresql.connection import Transaction
from adapters.postgresql.storage import PostgresqlStorage
from adapters.psp.contract.samples import GUEST_ID, MERCHANT_ACCOUNT, NOW, a_uuid
from adapters.sql.transaction import Values
from domain.identifiers import CardToken, TokenId
from domain.pagination import PageRequest
from domain.ports import UnitOfWork, WriteUnit
from tests.adapters.postgresql.by_hand import execute, statements_of
from tests.builders import (
    CALLER,
    CENTER_ID,
    PROVIDER,
    a_center,
    a_discard,
    a_payment_account,
    a_product,
    a_session,
    an_access_token,
    an_attempt,
    an_evidence,
)
from tests.postgresql import new_database

SECOND_PAGE: Final = PageRequest(page=2, size=1)
PAGE_SIZE: Final = 20
ROWS: Final = 20_000
"""How many products one center has; other tables have a fourth of it."""

# Rows like those that the builders make, which the repositories have stored before.
MULTIPLY: Final = f"""
    CREATE FUNCTION numbered(n bigint) RETURNS uuid IMMUTABLE LANGUAGE sql
        RETURN ('00000000-0000-4000-9000-' || lpad(n::text, 12, '0'))::uuid;
    CREATE FUNCTION later(n bigint) RETURNS interval IMMUTABLE LANGUAGE sql
        RETURN n * interval '1 second';
    INSERT INTO products
        SELECT numbered(n), center_id, n + 1, code, name, description, amount, currency
        FROM products, generate_series(1, {ROWS - 1}) AS n;
    INSERT INTO card_sessions
        SELECT (jsonb_populate_record(card_sessions, jsonb_build_object(
            'token_id', numbered(n), 'due_at', due_at + later(n),
            'attempt', jsonb_set(attempt, '{{page,reference}}', to_jsonb('page-' || n))
        ))).* FROM card_sessions, generate_series(2, {ROWS // 4}) AS n;
    INSERT INTO payment_accounts (
        account_id, token_id, guest_id, center_id, provider, merchant_account, guest_reference,
        token, fingerprint, card_logo, last_four, expiry_month, expiry_year, source,
        consent_version, consented_at, created_at
    )
        SELECT numbered(n), numbered(n), CASE n % 500 WHEN 0 THEN guest_id ELSE numbered(n / 5) END,
            center_id, provider, merchant_account, guest_reference, 'token-' || n,
            'fingerprint-' || n, card_logo, last_four, expiry_month, expiry_year, source,
            consent_version, consented_at, created_at
        FROM payment_accounts, generate_series(2, {ROWS // 4}) AS n;
    INSERT INTO discards
        SELECT provider, merchant_account, guest_reference, 'token-' || n, due_at + later(n)
        FROM discards, generate_series(2, {ROWS // 4}) AS n;
    INSERT INTO evidence
        SELECT numbered(n / 5), origin, content, received_at, content_hash || n
        FROM evidence, generate_series(2, {ROWS // 4}) AS n;
    INSERT INTO idempotency_keys
        SELECT caller, 'key-' || n, numbered(n), used_at + later(n)
        FROM idempotency_keys, generate_series(2, {ROWS // 4}) AS n;
    INSERT INTO access_tokens
        SELECT token_hash || n, prefix, caller, issued_at, expires_at
        FROM access_tokens, generate_series(2, {ROWS // 4}) AS n;
    INSERT INTO guest_references
        SELECT provider, merchant_account, numbered(n), reference
        FROM guest_references, generate_series(2, {ROWS // 4}) AS n;
    INSERT INTO merchant_identities
        SELECT provider, 'account-' || n, identity
        FROM merchant_identities, generate_series(2, {ROWS // 4}) AS n;
"""


@pytest.fixture(scope="module")
def filled(postgresql_server: str) -> Iterator[PostgresqlStorage]:
    """Give a storage with many rows."""
    with new_database(postgresql_server) as url, closing(PostgresqlStorage(url)) as storage:
        with storage.write() as unit:
            unit.centers.put_many([a_center()])
            unit.products.put_many([a_product()])
            unit.sessions.add(a_session(attempt=an_attempt(), due_at=NOW))
            unit.accounts.add(a_payment_account())
            unit.discards.add(a_discard())
            unit.evidence.add(TokenId(a_uuid(21)), an_evidence())
            unit.idempotency_keys.claim(
                CALLER, "key-1", TokenId(a_uuid(21)), now=NOW, since=NOW.replace(year=2025)
            )
            unit.access_tokens.add(an_access_token())
            account = a_payment_account()
            unit.guest_references.keep(
                PROVIDER, MERCHANT_ACCOUNT, GUEST_ID, account.guest_reference
            )
            unit.merchant_identities.claim(PROVIDER, MERCHANT_ACCOUNT, "acct_1 test")
            unit.commit()
        execute(url, MULTIPLY)
        execute(url, "VACUUM ANALYZE")
        yield storage


Plan = dict[str, Any]  # JSON of PostgreSQL's own making


def plans_of(
    storage: PostgresqlStorage, use: Callable[[WriteUnit], object], *, analyzed: bool = False
) -> list[Plan]:
    """Give each step of the plans of all statements that a use of the repositories runs."""
    statements: list[tuple[str, Values | None]] = []
    options = "ANALYZE, BUFFERS, FORMAT JSON" if analyzed else "FORMAT JSON"
    original = Transaction.execute

    def note(transaction: Transaction, statement: str, values: Values | None = None) -> Any:
        statements.append((statement, values))
        return original(transaction, statement, values)

    with storage.write() as unit, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transaction, "execute", note)
        use(unit)
        patch.undo()
        return [
            step
            for statement, values in statements
            for (found,) in statements_of(unit).execute(f"EXPLAIN ({options}) {statement}", values)
            for step in steps_of(found[0]["Plan"])
        ]


def steps_of(plan: Plan) -> Iterator[Plan]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from steps_of(below)


def in_words(step: Plan) -> str:
    condition = re.sub(
        r"'.*?'::\w+|\$\d+|\(InitPlan \d+\)\.col\d+", "?", step.get("Index Cond", "")
    )
    return f"{step['Node Type']} {step.get('Index Name', '')} {condition}".strip()


@pytest.mark.parametrize(
    ("use", "indexes"),
    [
        (
            lambda unit: unit.products.page(CENTER_ID, SECOND_PAGE),
            ["products_position"],
        ),
        (
            lambda unit: unit.accounts.page(GUEST_ID, None, SECOND_PAGE),
            ["payment_accounts_active_of_guest"],
        ),
        (
            lambda unit: unit.accounts.page(GUEST_ID, frozenset({CENTER_ID}), SECOND_PAGE),
            ["payment_accounts_active_of_guest", "payment_accounts_active_card"],
        ),
        (
            lambda unit: unit.accounts.active_at(GUEST_ID, CENTER_ID),
            ["payment_accounts_active_of_guest"],
        ),
        (
            lambda unit: unit.accounts.get(a_payment_account().account_id),
            ["payment_accounts_pkey"],
        ),
        (
            lambda unit: unit.accounts.is_held(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-1")),
            ["payment_accounts_active_token"],
        ),
        (
            lambda unit: unit.sessions.take_due(NOW, until=NOW),
            ["card_sessions_due", "card_sessions_pkey"],
        ),
        (
            lambda unit: unit.sessions.with_page(PROVIDER, MERCHANT_ACCOUNT, "page-7"),
            ["card_sessions_page"],
        ),
        (lambda unit: unit.sessions.get(TokenId(a_uuid(21))), ["card_sessions_pkey"]),
        (lambda unit: unit.sessions.update(a_session()), ["card_sessions_pkey"]),
        (
            lambda unit: unit.discards.take_due(NOW, until=NOW),
            ["discards_due", "discards_pkey"],
        ),
        (
            lambda unit: unit.discards.get(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-1")),
            ["discards_pkey"],
        ),
        (
            lambda unit: unit.idempotency_keys.get(CALLER, "key-7", since=NOW),
            ["idempotency_keys_pkey"],
        ),
        (
            lambda unit: unit.idempotency_keys.claim(
                CALLER, "key-7", TokenId(a_uuid(21)), now=NOW, since=NOW
            ),
            ["idempotency_keys_pkey"],
        ),
        (lambda unit: unit.evidence.add(TokenId(a_uuid(21)), an_evidence()), ["evidence_pkey"]),
        (
            lambda unit: unit.guest_references.get(PROVIDER, MERCHANT_ACCOUNT, GUEST_ID),
            ["guest_references_pkey"],
        ),
        (
            lambda unit: unit.merchant_identities.get(PROVIDER, MERCHANT_ACCOUNT),
            ["merchant_identities_pkey"],
        ),
        (
            lambda unit: unit.access_tokens.get(an_access_token().token_hash),
            ["access_tokens_pkey"],
        ),
    ],
)
def test_an_index_answers_without_scan_or_sort(
    filled: PostgresqlStorage, use: Callable[[WriteUnit], object], indexes: list[str]
) -> None:
    plans = plans_of(filled, use)
    shown = list(map(in_words, plans))
    used = [step["Index Name"] for step in plans if "Index Name" in step]
    assert used, shown
    assert set(used) <= set(indexes), shown
    assert all("Index Cond" in step for step in plans if "Index Name" in step), shown
    assert not any(re.search("Seq Scan|Sort", step["Node Type"]) for step in plans), shown


def test_old_keys_are_found_by_their_time(filled: PostgresqlStorage) -> None:
    plans = plans_of(filled, lambda unit: unit.idempotency_keys.forget(before=NOW))
    shown = list(map(in_words, plans))
    assert any(
        each.startswith("Index Scan idempotency_keys_used_at (used_at < ?") for each in shown
    )
    assert not any(re.search("Seq Scan|Sort", step["Node Type"]) for step in plans), shown


def test_a_late_page_of_products_costs_what_the_first_one_costs(
    filled: PostgresqlStorage,
) -> None:
    def buffers(page: int) -> int:
        request = PageRequest(page=page, size=PAGE_SIZE)

        def read(unit: UnitOfWork) -> None:
            assert len(unit.products.page(CENTER_ID, request).items) == PAGE_SIZE

        plans = plans_of(filled, read, analyzed=True)
        # A step counts what the steps below it have touched.
        whole = [step for step in plans if step["Node Type"] in ("Result", "Index Scan")]
        return sum(step["Shared Hit Blocks"] + step["Shared Read Blocks"] for step in whole)

    first, late, last = buffers(1), buffers(ROWS // PAGE_SIZE // 2), buffers(ROWS // PAGE_SIZE)
    assert first > 0
    assert late <= first + 2
    assert last <= first + 2
