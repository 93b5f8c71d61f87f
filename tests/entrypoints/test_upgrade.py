"""A release keeps working after a newer release has migrated the shared database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from adapters.sqlite.storage import SqliteStorage
from domain.cards.account import READ_FIRST_AFTER, Account
from domain.consents.given_consent import GivenConsent
from domain.events.event import EventType
from domain.psps.card import Funding
from domain.sessions.end import SessionStatus
from domain.sessions.session import CardSession
from tests.adapters.http.api import ACCOUNTS, PRODUCTS, Api
from tests.builders import CENTER_ID, a_product, a_shipped_consent
from tests.databases import change_by_hand, committed
from tests.installation import GOOD_CARD, OTHER_GOOD_CARD, Installation
from tests.postgresql import new_database

TABLES = (
    *("access_tokens", "audit_entries", "card_sessions", "centers", "center_settings"),
    *("center_consent_texts", "consent_texts", "consents", "discards", "evidence"),
    *("event_deliveries", "event_endpoints", "guest_references", "guests", "idempotency_keys"),
    *("installations", "merchant_identities", "merchant_standings", "payment_accounts"),
    *("payment_configurations", "products", "psp_guests", "refused_cards", "workers"),
)


@pytest.fixture(params=["sqlite", "postgresql"])
def installation(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Installation]:
    with ExitStack() as stack:
        url = f"sqlite:///{tmp_path / 'cards.db'}"
        if request.param == "postgresql":
            server = request.getfixturevalue("postgresql_server")
            url = stack.enter_context(new_database(server))
        fake_psp = str(tmp_path / "fake-psp.db")
        installed = Installation(
            tmp_path, CARDONFILE_DATABASE_URL=url, CARDONFILE_FAKE_PSP_DATABASE=fake_psp
        )
        yield stack.enter_context(closing(installed))


def migrate_as_the_next_release(installation: Installation) -> None:
    """Add a nullable column to every table, as docs/architecture.md requires."""
    change_by_hand(
        installation.storage,
        *(f"ALTER TABLE {table} ADD COLUMN of_the_next_release TEXT" for table in TABLES),
    )


# Shows F10.
def test_this_release_works_with_columns_that_a_newer_release_added(
    installation: Installation,
) -> None:
    api = Api(installation)
    kept = installation.stored_card(GOOD_CARD)
    under_way = installation.opened_session(idempotency_key="key")

    migrate_as_the_next_release(installation)

    installation.type_card_and_return(under_way, OTHER_GOOD_CARD)
    assert installation.add_card(idempotency_key="key").token_id == under_way.token_id
    with committed(installation.storage) as unit:
        unit.products.put_many([a_product()])
    assert api.get(PRODUCTS).json["page_info"]["total"] == 1
    assert api.get(ACCOUNTS).json["page_info"]["total"] == 2
    assert api.send("DELETE", f"{ACCOUNTS}/{kept.account_id}").status_code == 200
    installation.reconcile()
    (left,) = installation.accounts()
    assert installation.tokens_at_psp() == {left.token}
    assert Api(installation).get(ACCOUNTS).json["page_info"]["total"] == 1


def as_stored_by_a_release_without(
    installation: Installation, table: str, record: type[Account | CardSession], *columns: str
) -> None:
    """Store all rows of a table again as a release that does not know these columns."""
    known = ", ".join(each.name for each in fields(record) if each.name not in columns)
    change_by_hand(
        installation.storage,
        f"CREATE TEMPORARY TABLE stored AS SELECT {known} FROM {table}",
        f"DELETE FROM {table}",
        f"INSERT INTO {table} ({known}) SELECT {known} FROM stored",
    )


def notices(installation: Installation, day: datetime) -> list[str | None]:
    """Do the work of this day. Return the reasons of all expiry notices so far."""
    installation.clock.advance(day - installation.clock.now())
    installation.read_cards()
    installation.container.notice_expiry()()
    deliveries = installation.deliveries()
    return [each.event.reason for each in reversed(deliveries)]


def test_a_refresh_adds_details_to_cards_stored_by_a_release_without_card_refreshes(
    installation: Installation,
) -> None:
    account_id = installation.stored_card().account_id
    installation.has_endpoint("https://shop.example/events")
    unknown: tuple[str, ...] = ("due_at", "asked_at", "read_at", "unanswered_since")
    unknown += ("charge_reference", "authenticated", "funding", "issuer_country", "wallet")
    as_stored_by_a_release_without(installation, "payment_accounts", Account, *unknown)
    assert installation.account(account_id).funding is None
    installation.clock.advance(READ_FIRST_AFTER)

    assert installation.read_cards() == 1

    account = installation.account(account_id)
    assert account.read_at == installation.clock.now()
    assert (account.charge_reference, account.authenticated) == (None, None)
    assert (account.funding, account.issuer_country) == (Funding.CREDIT, "US")
    assert not installation.deliveries()


@pytest.fixture
def account(installation: Installation) -> Account:
    """Return a card whose expiry notices are stored for an endpoint."""
    account = installation.stored_card()
    installation.has_endpoint(types=[EventType.ACCOUNT_EXPIRING])
    return account


@pytest.mark.usefixtures("account")
def test_cards_stored_by_a_release_without_expiry_notices_get_their_notices(
    installation: Installation,
) -> None:
    as_stored_by_a_release_without(installation, "payment_accounts", Account, "expiry_notice_at")

    assert notices(installation, installation.clock.now()) == []
    assert notices(installation, datetime(2031, 8, 30, tzinfo=UTC)) == []
    month = ["expires_in_30_days"]
    assert notices(installation, datetime(2031, 8, 31, tzinfo=UTC)) == month
    both = [*month, "expires_in_7_days"]
    assert notices(installation, datetime(2031, 9, 23, tzinfo=UTC)) == both


def test_a_card_that_an_older_release_removed_gets_no_expiry_notice(
    installation: Installation, account: Account
) -> None:
    assert account.expiry_notice_at is not None
    installation.remove_card(account)
    at = account.expiry_notice_at.isoformat()
    change_by_hand(installation.storage, f"UPDATE payment_accounts SET expiry_notice_at = '{at}'")

    assert notices(installation, datetime(2031, 9, 1, tzinfo=UTC)) == []
    assert notices(installation, datetime(2031, 9, 23, tzinfo=UTC)) == []


# Shows I11.
def test_a_card_stored_by_a_release_without_consents_has_the_consent_of_its_session(
    installation: Installation,
) -> None:
    first = installation.stored_card()
    renewal = installation.opened_session()
    installation.clock.advance(timedelta(minutes=1))
    installation.type_card(renewal, expiry=(9, 2035))
    installation.settle(renewal.token_id)
    account = installation.account(first.account_id)

    def read() -> Sequence[GivenConsent]:
        return installation.use_cases.read_consent(
            installation.caller, guest_id=account.guest_id, account_id=account.account_id
        )

    kept = read()
    change_by_hand(
        installation.storage,
        f"DELETE FROM consents WHERE token_id = '{renewal.token_id}'",
        "DELETE FROM consent_texts WHERE text_id NOT IN (SELECT text_id FROM consents)",
    )

    assert [each.agreed_at for each in kept] == [account.consented_at, first.consented_at]
    assert read() == kept
    change_by_hand(installation.storage, "DELETE FROM consents", "DELETE FROM consent_texts")
    assert read() == kept
    # Another session of the guest, whose card became another account.
    installation.stored_card(OTHER_GOOD_CARD)
    assert read() == kept


# Shows S28.
def test_the_page_for_a_session_from_an_earlier_release_is_in_english_without_guest_details(
    installation: Installation,
) -> None:
    installation.container.set_consent()(CENTER_ID, "de")
    opened, unopened = installation.opened_session(), installation.add_card()
    remove = {
        True: "attempt = json_remove(attempt, '$.request.consent.language')",
        False: "attempt = attempt #- '{request,consent,language}'",
    }[isinstance(installation.storage, SqliteStorage)]
    change_by_hand(
        installation.storage, f"UPDATE card_sessions SET {remove} WHERE attempt IS NOT NULL"
    )
    unknown = ("locale", "shows_guest")
    as_stored_by_a_release_without(installation, "card_sessions", CardSession, *unknown)

    installation.open_page(unopened)

    requests = [
        installation.session(session.token_id).current_attempt.request
        for session in (opened, unopened)
    ]
    for request in requests:
        assert request.consent == a_shipped_consent()
        assert request.language == "en"
    assert (requests[1].guest_name, requests[1].guest_email) == ("", None)


def test_no_card_is_lost_if_an_earlier_release_drops_fields_that_it_does_not_know(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    installation.type_card(session)

    def update_as_the_earlier_release() -> None:
        with committed(installation.storage) as unit:
            current = unit.sessions.get(session.token_id)
            assert current is not None
            request = replace(current.current_attempt.request, center_id=None)
            attempt = replace(current.current_attempt, request=request)
            unit.sessions.update(replace(current, attempt=attempt))

    installation.provider.meanwhile["outcome"] = update_as_the_earlier_release
    installation.return_to_shop(session)

    assert installation.session(session.token_id).status is SessionStatus.COMPLETED
    assert len(installation.accounts()) == 1
