"""A release keeps working after a newer one has migrated the shared database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.http.api import ACCOUNTS, PRODUCTS, Api
from tests.builders import a_product
from tests.installation import GOOD_CARD, OTHER_GOOD_CARD, Installation
from tests.postgresql import new_database

TABLES = (
    *("access_tokens", "card_sessions", "centers", "discards", "evidence"),
    *("event_deliveries", "event_endpoints", "guest_references"),
    *("guests", "idempotency_keys", "merchant_identities", "payment_accounts"),
    *("payment_configurations", "products", "refused_cards", "worker_heartbeats"),
)


@pytest.fixture(params=["sqlite", "postgresql"])
def installation(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Installation]:
    if request.param == "sqlite":
        installed = Installation(tmp_path)
        yield installed
        installed.close()
        return
    with new_database(request.getfixturevalue("postgresql_server")) as url:
        installed = Installation(
            tmp_path,
            CARDONFILE_DATABASE_URL=url,
            CARDONFILE_FAKE_PSP_DATABASE=str(tmp_path / "fake-psp.db"),
        )
        yield installed
        installed.close()


def migrate_as_the_next_release(installation: Installation) -> None:
    """Add a nullable column to every table, as docs/architecture.md requires."""
    with installation.storage.write() as unit:
        by_hand: Any = unit  # no part of the port
        for table in TABLES:
            by_hand._transaction.execute(f"ALTER TABLE {table} ADD COLUMN of_the_next_release TEXT")
        unit.commit()


def test_everything_works_with_unknown_columns(installation: Installation) -> None:
    api = Api(installation)
    kept = installation.stored_card(GOOD_CARD)
    under_way = installation.opened_session(idempotency_key="key")

    migrate_as_the_next_release(installation)

    installation.type_card(under_way, OTHER_GOOD_CARD)
    installation.return_to_shop(under_way)
    assert installation.add_card(idempotency_key="key").token_id == under_way.token_id
    with installation.storage.write() as unit:
        unit.products.put_many([a_product()])
        unit.commit()
    assert api.get(PRODUCTS).json["page_info"]["total"] == 1
    assert api.get(ACCOUNTS).json["page_info"]["total"] == 2
    assert api.send("DELETE", f"{ACCOUNTS}/{kept.account_id}").status_code == 200
    installation.reconcile_until_idle()
    (left,) = installation.accounts()
    assert installation.tokens_at_psp() == {left.token}
    assert Api(installation).get(ACCOUNTS).json["page_info"]["total"] == 1
