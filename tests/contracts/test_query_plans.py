"""Frequent queries and queries on growing tables use an index instead of a scan or a sort."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from adapters.postgresql.connection import Transaction
from adapters.postgresql.storage import PostgresqlStorage
from adapters.psp_suite.samples import GUEST_ID, MERCHANT_ACCOUNT, NOW, OTHER_GUEST_ID, TOKEN_ID
from adapters.sql.transaction import Values
from adapters.sqlite.storage import SqliteStorage
from domain.cards.account import AccountFilter
from domain.centers.card_limit import DEFAULT_LIMITS, CountedPer
from domain.events.event_list import EventFilter
from domain.identifiers import CardToken, LinkKey
from domain.pagination import PageRequest
from domain.portal.portal_session import PortalId
from domain.sessions.session import SessionFilter
from domain.storage import WriteUnit
from tests.builders import (
    CALLER,
    CENTER_ID,
    PROVIDER,
    a_center,
    a_consent,
    a_discard,
    a_product,
    a_psp_guest,
    a_refused_card,
    a_session,
    an_access_token,
    an_account,
    an_agreement,
    an_attempt,
    an_audit_entry,
    an_event_delivery,
    an_event_endpoint,
    an_evidence,
)
from tests.databases import make_database, transaction_of
from tests.postgresql import new_database

DAY: Final = timedelta(days=1)
SECOND_PAGE: Final = PageRequest(page=2, size=1)
TOKEN: Final = CardToken("token-1")
DELIVERY: Final = an_event_delivery()
ENDPOINT: Final = DELIVERY.endpoint_id

USES: Final[dict[str, Callable[[WriteUnit], object]]] = {
    "page of products": lambda unit: unit.products.page(CENTER_ID, SECOND_PAGE),
    "page of accounts": lambda unit: unit.accounts.page(GUEST_ID, None, SECOND_PAGE),
    "page at centers": lambda unit: unit.accounts.page(
        GUEST_ID, frozenset({CENTER_ID}), SECOND_PAGE
    ),
    "agreements of an account": lambda unit: unit.agreements.of_account(an_account().account_id),
    "page of agreements": lambda unit: unit.agreements.page(an_account().account_id, SECOND_PAGE),
    "agreements given with an account": lambda unit: unit.agreements.made_with(
        an_account().account_id
    ),
    "old agreements": lambda unit: unit.agreements.forget(before=an_agreement().kept_until + DAY),
    "agreements to end": lambda unit: unit.agreements.due(NOW, at_most=1),
    "sessions without an agreement": lambda unit: unit.sessions.without_agreement(since=NOW),
    "session of a booking": lambda unit: unit.agreements.session_of(GUEST_ID, CENTER_ID, "17"),
    "agreements of a guest": lambda unit: unit.agreements.of_guest(GUEST_ID),
    "accounts to remove": lambda unit: unit.accounts.due_for_removal(NOW, at_most=1),
    "expiring accounts": lambda unit: unit.accounts.page_expiring(
        CENTER_ID, before=date(2040, 1, 1), request=SECOND_PAGE
    ),
    "cards of a guest": lambda unit: unit.accounts.search(
        AccountFilter(guest_id=GUEST_ID, only_active=True), limit=1
    ),
    "expiring cards at a center": lambda unit: unit.accounts.search(
        AccountFilter(center_id=CENTER_ID, expires_before=date(2040, 1, 1), only_active=True),
        limit=1,
    ),
    "active accounts": lambda unit: unit.accounts.active_at(GUEST_ID, CENTER_ID),
    "account": lambda unit: unit.accounts.get(an_account().account_id),
    "consents of an account": lambda unit: unit.consents.of(an_account()),
    "held token": lambda unit: unit.accounts.is_held(PROVIDER, MERCHANT_ACCOUNT, TOKEN),
    "page of sessions": lambda unit: unit.sessions.page(GUEST_ID, None, SECOND_PAGE),
    "session": lambda unit: unit.sessions.get(TOKEN_ID),
    "session by its prefix": lambda unit: unit.sessions.between(TOKEN_ID, TOKEN_ID, limit=2),
    "sessions of a guest": lambda unit: unit.sessions.search(
        SessionFilter(guest_id=GUEST_ID), limit=9
    ),
    "events of a session": lambda unit: unit.event_deliveries.of_session(TOKEN_ID, since=NOW),
    "session of a page": lambda unit: unit.sessions.with_page(PROVIDER, MERCHANT_ACCOUNT, "page-1"),
    "session of a link": lambda unit: unit.sessions.with_link_key(LinkKey("a" * 26)),
    "sessions without a key": lambda unit: unit.sessions.is_any_without_key(since=NOW, before=NOW),
    "update of a session": lambda unit: unit.sessions.update(a_session()),
    "due session": lambda unit: unit.sessions.take_due(NOW, until=NOW),
    "due discard": lambda unit: unit.discards.take_due(NOW, until=NOW),
    "due card": lambda unit: unit.accounts.take_due(NOW, until=NOW),
    "due cards": lambda unit: unit.accounts.count_due(NOW),
    "cards read within a minute": lambda unit: unit.accounts.count_asked(NOW),
    "card that a webhook names": lambda unit: unit.accounts.make_due(
        an_account().psp_account, NOW, token=TOKEN, guest_reference=None
    ),
    "cards of a guest whom a webhook names": lambda unit: unit.accounts.make_due(
        an_account().psp_account, NOW, token=None, guest_reference=an_account().guest_reference
    ),
    "unanswered cards": lambda unit: unit.accounts.unanswered(),
    "discard": lambda unit: unit.discards.get(PROVIDER, MERCHANT_ACCOUNT, TOKEN),
    "key": lambda unit: unit.idempotency_keys.get(CALLER, "key", since=NOW),
    "claim of a key": lambda unit: unit.idempotency_keys.claim(
        CALLER, "key", TOKEN_ID, now=NOW, since=NOW
    ),
    "old keys": lambda unit: unit.idempotency_keys.forget(before=NOW),
    "guests with an e-mail address": lambda unit: unit.guests.with_email("x", SECOND_PAGE),
    "refused cards of a session": lambda unit: unit.refused_cards.of(TOKEN_ID),
    "limits": lambda unit: unit.refused_cards.reached(DEFAULT_LIMITS, a_session(), since=NOW),
    "limits of a guest at a center": lambda unit: unit.refused_cards.reached(
        [each for each in DEFAULT_LIMITS if each.per is CountedPer.GUEST], a_session(), since=NOW
    ),
    "refused cards of a guest": lambda unit: unit.refused_cards.of_guest(GUEST_ID),
    "pages of a guest": lambda unit: unit.sessions.make_pages_due(GUEST_ID, NOW),
    "open sessions of a caller": lambda unit: unit.sessions.open_of(CALLER),
    "centers with refused cards": lambda unit: unit.refused_cards.at_centers(
        since=NOW - timedelta(days=1), at_least=1
    ),
    "evidence": lambda unit: unit.evidence.add(TOKEN_ID, an_evidence(), at_most=50),
    "guest reference": lambda unit: unit.guest_references.get(a_psp_guest()),
    "merchant identity": lambda unit: unit.merchant_identities.get(PROVIDER, MERCHANT_ACCOUNT),
    "due delivery": lambda unit: unit.event_deliveries.take_due(NOW, until=NOW),
    "delivery": lambda unit: unit.event_deliveries.get(DELIVERY.event.event_id, ENDPOINT),
    "deliveries of an event": lambda unit: unit.event_deliveries.of(DELIVERY.event.event_id),
    "old deliveries": lambda unit: unit.event_deliveries.forget(before=NOW),
    "due notices": lambda unit: unit.accounts.with_expiry_notice_due(
        NOW, at_most=9, unreadable_until=NOW
    ),
    "browsers of clicks": lambda unit: unit.sessions.forget_browsers(before=NOW),
    "events of an account": lambda unit: unit.event_deliveries.of_account(an_account().account_id),
    "events of an erased guest": (lambda unit: unit.event_deliveries.unmark_evidence(GUEST_ID)),
    "old sessions": lambda unit: unit.sessions.forget(before=NOW),
    "old accounts": lambda unit: unit.accounts.forget(before=NOW),
    "whether a guest is on file": lambda unit: unit.guests.is_on_file(GUEST_ID),
    "cards of an erased guest": lambda unit: unit.accounts.blank(GUEST_ID),
    "guests with a reference": lambda unit: unit.guest_references.guests(
        an_account().psp_account, an_account().guest_reference
    ),
    "references of a guest": lambda unit: unit.guest_references.of(GUEST_ID),
    "references of an erased guest": lambda unit: unit.guest_references.remove(GUEST_ID),
    "discards of a guest": lambda unit: unit.discards.of_guest(
        an_account().psp_account, an_account().guest_reference
    ),
    "audit entries": lambda unit: unit.audit_trail.latest(since=NOW),
    "audit entries about a card": lambda unit: unit.audit_trail.latest(
        since=NOW, about=an_audit_entry().about
    ),
    "due sessions": lambda unit: unit.sessions.count_due(NOW),
    "due discards": lambda unit: unit.discards.count_due(NOW),
    "event": lambda unit: unit.events.get(DELIVERY.event.event_id),
    "whether an event has no number": lambda unit: unit.events.is_any_unnumbered(),
    "ends of the events": lambda unit: unit.events.ends(),
    "position": lambda unit: unit.events.position(1),
    "events after a position": lambda unit: unit.events.between(0, 9, EventFilter(), limit=1),
    "events at centers": lambda unit: unit.events.between(
        0, 9, EventFilter(centers=frozenset({CENTER_ID}), types=[DELIVERY.event.type]), limit=1
    ),
    "old events": lambda unit: unit.events.forget(before=NOW + DAY, until=NOW + DAY),
    "unopened links": lambda unit: unit.sessions.with_unopened_notice_due(NOW, at_most=1, skip=0),
    "due deliveries": lambda unit: unit.event_deliveries.count_due(NOW),
    "merged guests": lambda unit: unit.erasures.merged_into(GUEST_ID),
    "the last merge": lambda unit: unit.erasures.last_merge_into(GUEST_ID),
    "active cards of a guest": lambda unit: unit.accounts.active_of(GUEST_ID),
    "cards that a merge gives": lambda unit: unit.accounts.reassign(GUEST_ID, OTHER_GUEST_ID),
    "sessions that a merge gives": lambda unit: unit.sessions.reassign(GUEST_ID, OTHER_GUEST_ID),
    "refused cards that a merge gives": (
        lambda unit: unit.refused_cards.reassign(GUEST_ID, OTHER_GUEST_ID)
    ),
    "guests who were merged before": (
        lambda unit: unit.erasures.merge_on(GUEST_ID, OTHER_GUEST_ID)
    ),
    "erasures that are left": lambda unit: unit.erasures.count_unfinished(),
    "unanswered sessions": lambda unit: unit.sessions.unanswered(),
    "unanswered discards": lambda unit: unit.discards.unanswered(),
    "deliveries not taken": lambda unit: unit.event_deliveries.counts(),
    "expiring tokens": lambda unit: unit.access_tokens.expiring(NOW, until=NOW),
    "desk link": lambda unit: unit.desk_links.get("hash"),
    "desk links of a session": lambda unit: unit.desk_links.of(TOKEN_ID),
    "portal session": lambda unit: unit.portal_sessions.get(PortalId(TOKEN_ID)),
    "portal session of a link": lambda unit: unit.portal_sessions.with_secret("hash"),
    "portal sessions of a guest": lambda unit: unit.portal_sessions.of(GUEST_ID),
    "portal sessions of an erased guest": lambda unit: unit.portal_sessions.remove(GUEST_ID),
    "old portal sessions": lambda unit: unit.portal_sessions.forget(before=NOW),
    "desk links of an erased guest": lambda unit: unit.desk_links.remove(TOKEN_ID),
    "access token": lambda unit: unit.access_tokens.get(an_access_token().token_hash),
}


SEARCHED_IN_SQLITE: Final = {
    "page of products": "position>? AND position<?",
    "expiring accounts": "center_id=? AND (expiry_year,expiry_month)<(?,?)",
    "limits of a guest at a center": "card_sessions_guest_id_created_at",
    "open sessions of a caller": "card_sessions_due",
    "due session": "<expr>=? AND due_at>? AND due_at<?",
    "due discard": "<expr>=? AND due_at>? AND due_at<?",
    "due card": "<expr>=? AND due_at>? AND due_at<?",
    "unanswered cards": "INDEX payment_accounts_unanswered (<expr>>?)",
    "due delivery": "<expr>=? AND due_at>? AND due_at<?",
    "due sessions": "COVERING INDEX card_sessions_due (<expr>=? AND due_at<?",
    "guests with a reference": "guest_references_reference",
    "discards of a guest": "guest_reference=?",
    "unanswered sessions": "INDEX card_sessions_unanswered (<expr>>?)",
    "unanswered discards": "INDEX discards_unanswered (<expr>>?)",
    "deliveries not taken": "COVERING INDEX event_deliveries_not_taken (endpoint_id>?)",
    "expiring tokens": "access_tokens_expiring",
    "events of a session": "INDEX event_deliveries_of_session (<expr>=? AND occurred_at>?)",
    "old agreements": "INDEX agreements_kept_until (kept_until<?)",
    "old deliveries": "INDEX event_deliveries_old (occurred_at<?)",
    "old sessions": "INDEX card_sessions_ended (ended_at<?)",
    "events after a position": "events_number (number>? AND number<?)",
    "events at centers": "events_number (number>? AND number<?)",
    "unopened links": "card_sessions_unopened (unopened_at<?)",
    "old accounts": "INDEX payment_accounts_removed (removed_at<?)",
}
"""Indexes or conditions that SQLite must use, although another index is possible."""

SEARCHED: Final = {
    "page of products": '"position" <=',
    "expiring accounts": "ROW(expiry_year, expiry_month) <",
    "discards of a guest": "guest_reference =",
    "old keys": "used_at <",
    "due session": "= queues.queue) AND (due_at >",
    "due discard": "= queues.queue) AND (due_at >",
    "due card": "= queues.queue) AND (due_at >",
    "due delivery": "= queues.queue) AND (due_at >",
    "old agreements": "kept_until <",
    "old deliveries": "occurred_at <",
    "old sessions": "ended_at <",
    "old accounts": "removed_at <",
}
"""Conditions that PostgreSQL must use, although another index is possible."""

WALKS: Final = ("old keys", "old portal sessions", "whether an event has no number")
"""Queries for which PostgreSQL reads the whole primary key if the table is small."""


def fill(unit: WriteUnit) -> None:
    """Store two records of each kind, so that no query is skipped because of an empty list."""
    unit.centers.put_many([a_center()])
    unit.products.put_many([a_product(1), a_product(2)])
    unit.sessions.add(a_session(attempt=an_attempt(), due_at=NOW))
    unit.refused_cards.add([a_refused_card()])
    unit.accounts.add(an_account(1, due_at=NOW))
    unit.accounts.add(an_account(2))
    unit.consents.add(a_consent(2))
    unit.agreements.add(an_agreement(due_at=None, ended_at=NOW))
    unit.discards.add(a_discard())
    unit.event_endpoints.add(an_event_endpoint())
    unit.event_deliveries.add(DELIVERY)
    for number in (1, 2):
        unit.events.add(an_event_delivery(number).event)
    unit.events.number()


def test_every_query_uses_an_index_on_sqlite(tmp_path: Path) -> None:
    make_database(tmp_path / "cards.db")
    with closing(SqliteStorage(tmp_path / "cards.db")) as storage, storage.write() as unit:
        fill(unit)
        wrong = {
            name: plan for name in USES if (plan := wrong_plan_on_sqlite(unit, name)) is not None
        }
    assert wrong == {}


def wrong_plan_on_sqlite(unit: WriteUnit, name: str) -> list[str] | None:
    """Return the plan of a query, or None if the plan uses the right index."""
    statements: list[str] = []
    connection = transaction_of(unit).db.conn
    connection.execute("SAVEPOINT filled")
    connection.set_trace_callback(statements.append)
    USES[name](unit)
    connection.set_trace_callback(None)
    plan = [
        detail
        for statement in statements
        for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {statement}")
    ]
    connection.execute("ROLLBACK TO filled")
    # These are not large tables: a list of values in a statement, a SELECT without FROM, queues.
    allowed = ("SCAN json_each", "SCAN CONSTANT ROW", "SCAN queues")
    of_tables = [detail for detail in plan if not detail.startswith(allowed)]
    is_right = (
        any("USING" in detail for detail in plan)
        and not any(re.search("SCAN|TEMP B-TREE", detail) for detail in of_tables)
        and any(SEARCHED_IN_SQLITE.get(name, "") in detail for detail in plan)
    )
    return None if is_right else plan


Plan = dict[str, Any]  # PostgreSQL's JSON


def steps_of(plan: Plan) -> list[Plan]:
    return [plan, *(step for below in plan.get("Plans", ()) for step in steps_of(below))]


def test_every_query_uses_an_index_on_postgresql(
    postgresql_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[tuple[str, Values | None]] = []
    execute = Transaction.execute

    def note(transaction: Transaction, statement: str, values: Values | None = None) -> Any:
        statements.append((statement, values))
        return execute(transaction, statement, values)

    def wrong_plan(unit: WriteUnit, name: str) -> list[Plan] | None:
        """Return the steps of a query, or None if they use the right index."""
        transaction = transaction_of(unit)
        transaction.execute("SAVEPOINT filled")
        statements.clear()
        with monkeypatch.context() as patch:
            patch.setattr(Transaction, "execute", note)
            USES[name](unit)
        # PostgreSQL prefers to scan small tables. Without a suitable index, it still scans.
        for step in ("seqscan", "bitmapscan", "sort"):
            transaction.execute(f"SET LOCAL enable_{step} = off")
        steps = [
            step
            for statement, values in statements
            for (plan,) in transaction.execute(f"EXPLAIN (FORMAT JSON) {statement}", values)
            for step in steps_of(plan[0]["Plan"])
        ]
        transaction.execute("ROLLBACK TO filled")
        conditions = [step.get("Index Cond") or "" for step in steps if "Index Name" in step]
        is_right = (
            not any(re.search("Seq Scan|Sort", step["Node Type"]) for step in steps)
            and conditions
            and (all(conditions) or name in WALKS)
            and any(SEARCHED.get(name, "") in each for each in conditions)
        )
        return None if is_right else steps

    # Plans depend on the contents of tables, so no other test may have filled this database.
    with (
        new_database(postgresql_server) as url,
        closing(PostgresqlStorage(url)) as storage,
        storage.write() as unit,
    ):
        fill(unit)
        wrong = {name: steps for name in USES if (steps := wrong_plan(unit, name)) is not None}
    assert wrong == {}
