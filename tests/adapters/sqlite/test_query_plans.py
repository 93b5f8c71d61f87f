"""What is asked often, or of tables that grow, is answered from an index and never sorted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from adapters.psp.contract.samples import GUEST_ID, MERCHANT_ACCOUNT, NOW, TOKEN_ID
from adapters.sql.unit_of_work import WriteUnit
from adapters.sqlite.connection import Connections
from adapters.sqlite.imports import Imports
from adapters.sqlite.storage import SqliteStorage
from domain.identifiers import CardToken
from domain.pagination import PageRequest
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

SECOND_PAGE = PageRequest(page=2, size=1)


def fill(unit: WriteUnit) -> None:
    """Store two of what is listed, so that no list is skipped for being empty."""
    unit.centers.put_many([a_center()])
    unit.products.put_many([a_product(1), a_product(2)])
    unit.sessions.add(a_session(attempt=an_attempt(), due_at=NOW))
    unit.accounts.add(a_payment_account(1))
    unit.accounts.add(a_payment_account(2))
    unit.discards.add(a_discard())


def plan_of(storage: SqliteStorage, use: Callable[[WriteUnit], object]) -> list[str]:
    """Give the plans of every statement that a use of the repositories runs."""
    connections: Connections = storage._connections
    statements: list[str] = []
    with connections.transaction(writing=True) as transaction:
        unit = WriteUnit(transaction, Imports(transaction))
        fill(unit)
        transaction.db.conn.set_trace_callback(statements.append)
        use(unit)
        transaction.db.conn.set_trace_callback(None)
        return [
            detail
            for statement in statements
            for _, _, _, detail in transaction.execute(f"EXPLAIN QUERY PLAN {statement}")
        ]


@pytest.mark.parametrize(
    ("use", "indexes"),
    [
        (
            lambda unit: unit.products.page(CENTER_ID, SECOND_PAGE),
            ["idx_products_center_id_position (center_id=? AND position>? AND position<?)"],
        ),
        (
            lambda unit: unit.accounts.page(GUEST_ID, None, SECOND_PAGE),
            ["payment_accounts_active_of_guest (guest_id=?)"],
        ),
        (
            lambda unit: unit.accounts.page(GUEST_ID, frozenset({CENTER_ID}), SECOND_PAGE),
            ["payment_accounts_active_of_guest (guest_id=?)"],
        ),
        (
            lambda unit: unit.accounts.is_held(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-1")),
            ["payment_accounts_active_token (provider=? AND merchant_account=? AND token=?)"],
        ),
        (
            lambda unit: unit.sessions.take_due(NOW, until=NOW),
            ["card_sessions_due (due_at<?)", "sqlite_autoindex_card_sessions_1 (token_id=?)"],
        ),
        (
            lambda unit: unit.sessions.with_page(PROVIDER, MERCHANT_ACCOUNT, "page-1"),
            ["card_sessions_page (<expr>=?)"],
        ),
        (
            lambda unit: unit.discards.take_due(NOW, until=NOW),
            ["idx_discards_due_at (due_at<?)"],
        ),
        (
            lambda unit: unit.idempotency_keys.forget(before=NOW),
            ["idx_idempotency_keys_used_at (used_at<?)"],
        ),
        (
            lambda unit: unit.merchant_identities.get(PROVIDER, MERCHANT_ACCOUNT),
            ["sqlite_autoindex_merchant_identities_1 (provider=? AND merchant_account=?)"],
        ),
        (
            lambda unit: unit.idempotency_keys.get(CALLER, "key", since=NOW),
            ["sqlite_autoindex_idempotency_keys_1 (caller=? AND key=?)"],
        ),
        (
            lambda unit: unit.evidence.add(TOKEN_ID, an_evidence()),
            ["sqlite_autoindex_evidence_1 (token_id=? AND origin=?)"],
        ),
        (
            lambda unit: unit.access_tokens.get(an_access_token().token_hash),
            ["sqlite_autoindex_access_tokens_1 (token_hash=?)"],
        ),
    ],
)
def test_an_index_answers_without_scan_or_sort(
    storage: SqliteStorage, use: Callable[[WriteUnit], object], indexes: list[str]
) -> None:
    plan = plan_of(storage, use)
    for index in indexes:
        assert any(index in detail for detail in plan), plan
    # The list of centers that a statement carries with it is read from its start to its end.
    tables = [detail for detail in plan if not detail.startswith("SCAN json_each")]
    assert not any("SCAN" in detail or "ORDER BY" in detail for detail in tables), plan
