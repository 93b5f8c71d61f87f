"""What every storage adapter promises (domain/storage.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from threading import Event
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from adapters.psp.contract.concurrency import at_once
from adapters.psp.contract.samples import (
    GUEST_ID,
    MERCHANT_ACCOUNT,
    NOW,
    OTHER_GUEST_ID,
    TOKEN_ID,
    a_page_request,
    a_uuid,
)
from adapters.sql.repositories.cards import _ACCOUNTS, _DISCARDS
from domain.billing import BillingInfo
from domain.cards.discard import Discard
from domain.centers.payment_configuration import CardsPerGuest
from domain.events.event import LONGEST_WAIT, DueDelivery, EventType
from domain.guests.guest import Guest
from domain.identifiers import (
    AccountId,
    CallerName,
    CardToken,
    CenterId,
    EndpointId,
    EventId,
    GuestId,
    GuestReference,
    MerchantAccount,
    ProviderName,
    PspAccount,
    TokenId,
)
from domain.pagination import PageRequest
from domain.products.product import Product
from domain.psps.hosted_page import EvidenceOrigin, PageAttempt, Prefill
from domain.retries import MAX_BACKOFF, latest_due
from domain.sessions.limit import CardLimit, CardsAtCenter, Counted, CountedPer
from domain.sessions.session import (
    POLL_EVERY,
    CardSession,
    DueSession,
    Failure,
    Progress,
    SessionStatus,
)
from domain.storage import AlreadyStored, RecordUnreadable, Storage, UnitOfWork, WriteUnit
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
    a_page,
    a_payment_account,
    a_product,
    a_psp_guest,
    a_refused_card,
    a_session,
    an_access_token,
    an_attempt,
    an_event_delivery,
    an_event_endpoint,
    an_evidence,
)
from tests.concurrency import elsewhere
from tests.databases import transaction_of

MINUTE: Final = timedelta(minutes=1)
DAY: Final = timedelta(days=1)
MICROSECOND: Final = timedelta(microseconds=1)
OTHER_TOKEN_ID: Final = TokenId(a_uuid(22))
EAST: Final = timezone(timedelta(hours=9, minutes=30))

AWKWARD: Final = (
    "\U0001f600 Zo\u00eb \u200dZe\u0301"
    "O'Neill; DROP TABLE guests; --"
    '"quoted" and \\backslashed\\ \\N \\.'
    "100 % %s %(id)s %% $1 {0} :id ::uuid ?"
    "\ttab and line\r\n"
)


@contextmanager
def committed(storage: Storage) -> Iterator[WriteUnit]:
    """Provide a write unit that is committed at the end."""
    with storage.write() as unit:
        yield unit
        unit.commit()


def put_products(storage: Storage, *products: Product) -> None:
    with committed(storage) as unit:
        unit.centers.put_many([a_center(), a_center(id=OTHER_CENTER_ID)])
        unit.products.put_many(products)


def products_of(
    storage: Storage, center_id: CenterId = CENTER_ID, *, page: int = 1, size: int = 100
) -> tuple[Product, ...]:
    with storage.read() as unit:
        return unit.products.page(center_id, PageRequest(page=page, size=size)).items


def accounts_of(
    storage: Storage, centers: frozenset[CenterId] | None = None, *, page: int = 1, size: int = 100
) -> tuple[list[AccountId], int]:
    with storage.read() as unit:
        found = unit.accounts.page(GUEST_ID, centers, PageRequest(page=page, size=size))
    return [account.account_id for account in found.items], found.total


def read_session(storage: Storage, token_id: TokenId = TOKEN_ID) -> CardSession | None:
    with storage.read() as unit:
        return unit.sessions.get(token_id)


class TestUnits:
    def test_what_is_written_is_seen_by_others_once_it_is_committed(self, storage: Storage) -> None:
        with storage.write() as unit:
            unit.sessions.add(a_session())
            assert unit.sessions.get(TOKEN_ID) == a_session()
            assert elsewhere(lambda: read_session(storage)) is None
            unit.commit()
        assert elsewhere(lambda: read_session(storage)) == a_session()

    # Shows F3.
    def test_leaving_without_a_commit_undoes_everything(self, storage: Storage) -> None:
        with storage.write() as unit:
            unit.guests.put_many([a_guest()])
            unit.sessions.add(a_session())
        storage.transact(lambda unit: unit.sessions.add(a_session()))
        with storage.read() as reading:
            assert reading.guests.get(GUEST_ID) is None
            assert reading.sessions.get(TOKEN_ID) is None

    def test_an_error_undoes_everything_and_passes_through(self, storage: Storage) -> None:
        calls = []

        def add_and_fail(unit: WriteUnit) -> None:
            calls.append(unit)
            unit.sessions.add(a_session())
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError), storage.write() as unit:
            add_and_fail(unit)
        with pytest.raises(ZeroDivisionError):
            storage.transact(add_and_fail)
        assert len(calls) == 2
        assert read_session(storage) is None

    def test_transact_returns_the_result_of_the_work(self, storage: Storage) -> None:
        def add(unit: WriteUnit) -> str:
            unit.sessions.add(a_session())
            unit.commit()
            return "added"

        assert storage.transact(add) == "added"
        assert read_session(storage) == a_session()

    def test_a_read_unit_sees_one_state_throughout(self, storage: Storage) -> None:
        def add() -> None:
            with committed(storage) as unit:
                unit.sessions.add(a_session())

        with storage.read() as unit:
            assert unit.sessions.get(TOKEN_ID) is None
            elsewhere(add)
            assert unit.sessions.get(TOKEN_ID) is None
        assert read_session(storage) == a_session()

    def test_a_read_unit_refuses_to_write(self, storage: Storage) -> None:
        with pytest.raises(RuntimeError, match="may not write"), storage.read() as unit:
            unit.sessions.add(a_session())
        assert read_session(storage) is None

    @pytest.mark.parametrize("is_committed", [True, False])
    def test_a_unit_that_is_over_refuses_everything(
        self, storage: Storage, is_committed: bool
    ) -> None:
        def refuses_everything(unit: WriteUnit) -> None:
            for use in (unit.sessions.add, unit.sessions.update):
                with pytest.raises(RuntimeError, match="is over"):
                    use(a_session())
            with pytest.raises(RuntimeError, match="is over"):
                unit.sessions.get(TOKEN_ID)
            with pytest.raises(RuntimeError, match="is over"):
                unit.commit()

        with storage.write() as unit:
            if is_committed:
                unit.commit()
                refuses_everything(unit)
        refuses_everything(unit)
        assert read_session(storage) is None

    # Shows F13.
    def test_units_do_not_nest(self, storage: Storage) -> None:
        for outer in (storage.read, storage.write):
            for inner in (storage.read, storage.write):
                with outer(), pytest.raises(RuntimeError, match="do not nest"), inner():
                    pass
            with outer(), pytest.raises(RuntimeError, match="do not nest"):
                storage.transact(lambda unit: unit.commit())
        with storage.write(), pytest.raises(RuntimeError, match="do not nest"):
            storage.check()
        storage.transact(lambda unit: unit.commit())

    def test_a_check_leaves_the_storage_free(self, storage: Storage) -> None:
        storage.check()
        storage.check()
        with committed(storage) as unit:
            unit.sessions.add(a_session())

    def test_a_storage_may_be_closed_again_and_opens_again(self, storage: Storage) -> None:
        storage.close()
        with committed(storage) as unit:
            unit.sessions.add(a_session())
        at_once(4, lambda _: read_session(storage))
        storage.close()
        storage.close()
        assert read_session(storage) == a_session()


# Records of many types go through the same functions, so their types are Any.
ADD: Final[dict[str, Callable[[WriteUnit, Any], object]]] = {
    "Center": lambda unit, each: unit.centers.put_many([each]),
    "Guest": lambda unit, each: unit.guests.put_many([each]),
    "Product": lambda unit, each: unit.products.put_many([each]),
    "PaymentConfiguration": lambda unit, each: unit.configurations.put(CENTER_ID, each),
    "CardSession": lambda unit, each: unit.sessions.add(each),
    "Evidence": lambda unit, each: unit.evidence.add(TOKEN_ID, each, at_most=50),
    "PaymentAccount": lambda unit, each: unit.accounts.add(each),
    "Discard": lambda unit, each: unit.discards.add(each),
    "EventEndpoint": lambda unit, each: unit.event_endpoints.add(each),
    "EventDelivery": lambda unit, each: unit.event_deliveries.add(each),
    "AccessToken": lambda unit, each: unit.access_tokens.add(each),
}
UPDATE: Final[dict[str, Callable[[WriteUnit, Any], object]]] = {
    **{each: ADD[each] for each in ("Center", "Guest", "Product", "PaymentConfiguration")},
    "CardSession": lambda unit, each: unit.sessions.update(each),
    "PaymentAccount": lambda unit, each: unit.accounts.update(each),
    "Discard": lambda unit, each: unit.discards.update(each),
    "EventEndpoint": lambda unit, each: unit.event_endpoints.update(each),
    "EventDelivery": lambda unit, each: unit.event_deliveries.update(each),
    "AccessToken": lambda unit, each: unit.access_tokens.update(each),
}
GET: Final[dict[str, Callable[[UnitOfWork, Any], object]]] = {
    "Center": lambda unit, each: unit.centers.get(each.id),
    "Guest": lambda unit, each: unit.guests.get(each.id),
    "Product": lambda unit, each: next(
        (found for found in unit.products.page(CENTER_ID, PageRequest()).items if found == each),
        None,
    ),
    "PaymentConfiguration": lambda unit, _: unit.configurations.get(CENTER_ID),
    "CardSession": lambda unit, each: unit.sessions.get(each.token_id),
    "Evidence": lambda unit, _: next(iter(unit.evidence.of(TOKEN_ID)), None),
    "PaymentAccount": lambda unit, each: unit.accounts.get(each.account_id),
    "Discard": lambda unit, each: unit.discards.get(
        each.provider, each.merchant_account, each.token
    ),
    "EventEndpoint": lambda unit, each: unit.event_endpoints.get(each.endpoint_id),
    "EventDelivery": lambda unit, each: unit.event_deliveries.get(
        each.event.event_id, each.endpoint_id
    ),
    "AccessToken": lambda unit, each: unit.access_tokens.get(each.token_hash),
}


def kind(record: object) -> str:
    return type(record).__name__


class TestRecords:
    @pytest.mark.parametrize(
        "record",
        [
            a_center(name=AWKWARD),
            a_guest(first_name="", last_name="null", email=None),
            a_guest(first_name=AWKWARD, last_name="x" * 1_000_000, email=" "),
            a_product(description="", amount=Decimal("0.10")),
            a_product(code=AWKWARD, amount=Decimal("12345678901234567890.123456789")),
            a_configuration(),
            a_configuration(avs=False, redirect_origins=(), cards_per_guest=CardsPerGuest.ONE),
            a_session(billing_info=None, due_at=None),
            a_session(
                redirect_uri=AWKWARD,
                billing_info=BillingInfo(last_name=AWKWARD, city="null"),
                due_at=NOW.astimezone(EAST),
            ),
            a_session(
                status=SessionStatus.FAILED,
                attempt=an_attempt(over=True),
                unanswered_since=NOW - DAY,
                failure=Failure(code=400, message=AWKWARD, type=AWKWARD),
                ended_at=NOW.replace(microsecond=0),
            ),
            a_session(status=SessionStatus.COMPLETED, account_id=AccountId(a_uuid(101))),
            a_session(link_minutes=43_200, progress=Progress.CANCELLED, cancelled_at=NOW),
            an_evidence(content=AWKWARD, origin=EvidenceOrigin.RETURN),
            a_payment_account(guest_reference=GuestReference(AWKWARD), token=CardToken(AWKWARD)),
            a_payment_account(removed_at=NOW),
            a_payment_account(expiry_notice_at=NOW + DAY),
            a_discard(begun_at=NOW, unanswered_since=NOW, due_at=NOW + DAY),
            a_discard().done(NOW),
            an_event_endpoint(disabled_at=NOW, removed_at=NOW + DAY),
            an_event_endpoint(
                centers=None,
                types=tuple(EventType),
                secrets=an_event_endpoint().secrets.rolled(AWKWARD, NOW),
            ),
            an_event_delivery(),
            an_event_delivery().refused(AWKWARD, NOW),
            an_event_delivery(event=replace(an_event_delivery().event, card=None, reason=AWKWARD)),
            an_access_token(caller=a_caller(centers=None)),
            an_access_token(caller=a_caller(centers=frozenset(), permissions=frozenset())),
        ],
        ids=kind,
    )
    def test_one_comes_back_as_it_was_stored(self, storage: Storage, record: object) -> None:
        with storage.read() as unit:
            assert GET[kind(record)](unit, record) is None
        with committed(storage) as unit:
            if isinstance(record, Product):
                unit.centers.put_many([a_center()])
            ADD[kind(record)](unit, record)
        with storage.read() as unit:
            found: Any = GET[kind(record)](unit, record)
        assert found == record
        if isinstance(record, Product):
            assert str(found.amount) == str(record.amount)
        if isinstance(record, CardSession) and record.due_at:
            assert found.due_at.utcoffset() == timedelta(0)

    @pytest.mark.parametrize(
        ("before", "other", "after"),
        [
            (
                a_guest(),
                a_guest(id=OTHER_GUEST_ID),
                a_guest(first_name="A", last_name="Ríos", email=None),
            ),
            (
                a_configuration(),
                None,
                a_configuration(
                    avs=False,
                    cards_per_guest=CardsPerGuest.ONE,
                    redirect_origins=(),
                    session_minutes=1440,
                    link_minutes=43_200,
                ),
            ),
            (
                a_session(),
                a_session(token_id=OTHER_TOKEN_ID),
                a_session(attempt=an_attempt()).completed(AccountId(a_uuid(101)), NOW),
            ),
            (
                a_payment_account(),
                a_payment_account(2),
                a_payment_account(token=CardToken("new"), expiry_year=2035, removed_at=NOW),
            ),
            (
                a_discard(),
                a_discard(merchant_account=MerchantAccount("other")),
                a_discard(
                    guest_reference=GuestReference("other"),
                    begun_at=NOW,
                    unanswered_since=NOW,
                    due_at=NOW + DAY,
                ),
            ),
            (
                an_access_token(),
                an_access_token(token_hash="other"),
                an_access_token(revoked_at=NOW, caller=a_caller(name=CallerName("kiosk"))),
            ),
        ],
        ids=kind,
    )
    def test_an_update_replaces_every_field_of_one_record(
        self, storage: Storage, before: object, other: object, after: object
    ) -> None:
        with committed(storage) as unit:
            for record in (before, other):
                if record is not None:
                    ADD[kind(before)](unit, record)
        with committed(storage) as unit:
            UPDATE[kind(before)](unit, after)
        with storage.read() as unit:
            assert GET[kind(before)](unit, before) == after
            if other is not None:
                assert GET[kind(before)](unit, other) == other


class TestGuests:
    def test_of_an_id_given_twice_the_last_record_counts(self, storage: Storage) -> None:
        with committed(storage) as unit:
            unit.guests.put_many([a_guest(), a_guest(id=OTHER_GUEST_ID)])
            unit.guests.put_many([a_guest(last_name="Li"), a_guest(last_name="Ríos")])
        with storage.read() as reading:
            assert reading.guests.get(GUEST_ID) == a_guest(last_name="Ríos")
            assert reading.guests.get(OTHER_GUEST_ID) == a_guest(id=OTHER_GUEST_ID)

    def test_a_guest_that_exists_is_not_added_again(self, storage: Storage) -> None:
        with committed(storage) as unit:
            unit.guests.add(a_guest())
        with pytest.raises(AlreadyStored), storage.write() as unit:
            unit.guests.add(a_guest(last_name="Li"))
        with committed(storage) as unit:
            unit.guests.update(a_guest(last_name="Ríos"))
        with storage.read() as reading:
            assert reading.guests.get(GUEST_ID) == a_guest(last_name="Ríos")

    def test_of_many_additions_at_once_one_wins(self, storage: Storage) -> None:
        def add(number: int) -> bool:
            try:
                with committed(storage) as unit:
                    unit.guests.add(a_guest(last_name=str(number)))
            except AlreadyStored:
                return False
            return True

        assert sum(at_once(8, add)) == 1

    def test_an_error_of_the_source_passes_through_and_nothing_stays(
        self, storage: Storage
    ) -> None:
        def guests() -> Iterator[Guest]:
            yield a_guest()
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError), storage.write() as unit:
            unit.guests.put_many(guests())
        with storage.read() as reading:
            assert reading.guests.get(GUEST_ID) is None


class TestCenters:
    def test_pages_are_by_name_and_of_the_centers_asked_for(self, storage: Storage) -> None:
        first, second = a_center(name="A"), a_center(id=OTHER_CENTER_ID, name="B")
        third = a_center(id=CenterId(a_uuid(404)), name="C")
        with committed(storage) as unit:
            unit.centers.put_many([third, second, first])
        with storage.read() as reading:
            page = reading.centers.page(None, PageRequest(page=2, size=2))
            assert (page.items, page.total) == ((third,), 3)
            page = reading.centers.page(frozenset({first.id, second.id}), PageRequest())
            assert (page.items, page.total) == ((first, second), 2)
            assert reading.centers.page(frozenset(), PageRequest()).total == 0

    def test_those_of_one_name_are_on_one_page_each(self, storage: Storage) -> None:
        numbers = (31, 33, 32)
        with committed(storage) as unit:
            unit.centers.put_many(a_center(id=CenterId(a_uuid(number))) for number in numbers)
        with storage.read() as reading:
            pages = [reading.centers.page(None, PageRequest(page=n, size=1)) for n in (1, 2, 3)]
        assert [each.id for page in pages for each in page.items] == [*map(a_uuid, sorted(numbers))]


class TestProducts:
    def test_a_product_of_another_center_is_refused_and_nothing_stays(
        self, storage: Storage
    ) -> None:
        put_products(storage, a_product(0))
        with pytest.raises(AlreadyStored):
            put_products(storage, a_product(1), a_product(0, center_id=OTHER_CENTER_ID))
        assert products_of(storage) == (a_product(0),)
        assert products_of(storage, OTHER_CENTER_ID) == ()

    def test_pages_are_in_the_order_of_creation(self, storage: Storage) -> None:
        put_products(storage, *map(a_product, [7, 3, 9, 1, 5]))
        put_products(storage, *map(a_product, [8, 2]))
        pages = [products_of(storage, page=page, size=3) for page in (1, 2, 3, 4)]
        assert pages == [
            (a_product(7), a_product(3), a_product(9)),
            (a_product(1), a_product(5), a_product(8)),
            (a_product(2),),
            (),
        ]

    def test_centers_have_pages_of_their_own(self, storage: Storage) -> None:
        sold_elsewhere = a_product(2, center_id=OTHER_CENTER_ID)
        put_products(storage, a_product(1), sold_elsewhere, a_product(3))
        assert products_of(storage) == (a_product(1), a_product(3))
        assert products_of(storage, OTHER_CENTER_ID, size=1) == (sold_elsewhere,)

    @pytest.mark.parametrize("page", [1, 2, 3, 10**4000], ids=["1", "2", "3", "far"])
    def test_the_total_is_true_on_every_page(self, storage: Storage, page: int) -> None:
        put_products(storage, *map(a_product, range(3)))
        request = PageRequest(page=page, size=2)
        with storage.read() as unit:
            found = unit.products.page(CENTER_ID, request)
            none = unit.products.page(OTHER_CENTER_ID, request)
        assert found.total == 3
        assert len(found.items) == {1: 2, 2: 1}.get(page, 0)
        assert found.request == request
        assert (none.items, none.total) == ((), 0)

    def test_an_update_keeps_the_position_and_leaves_no_gap(self, storage: Storage) -> None:
        put_products(storage, a_product(1), a_product(2))
        renamed = a_product(2, name="Sauna", amount=Decimal(9))
        put_products(storage, a_product(4), renamed, a_product(3))
        assert products_of(storage, size=2) == (a_product(1), renamed)
        assert products_of(storage, page=2, size=2) == (a_product(4), a_product(3))

    def test_an_import_that_is_not_committed_leaves_no_gap(self, storage: Storage) -> None:
        put_products(storage, a_product(1))
        with storage.write() as unit:
            unit.products.put_many([a_product(1, name="Sauna"), a_product(2)])
        put_products(storage, a_product(3))
        assert products_of(storage, size=2) == (a_product(1), a_product(3))

    def test_pages_stay_full_and_in_order_under_concurrent_imports(self, storage: Storage) -> None:
        # No importer writes it, so none waits for the row of another.
        put_products(storage, a_product(0))
        importers, imports, of_each = 3, 3, 10
        importing = set(range(1, importers + 1))

        def import_some(importer: int) -> None:
            for number in range(imports):
                first = (importer * imports + number) * of_each
                # Some of them exist already, and keep their positions.
                known = [] if number == 0 else [first - 1]
                with committed(storage) as unit:
                    unit.products.put_many(map(a_product, [*range(first, first + of_each), *known]))

        def read_pages() -> list[Product]:
            with storage.read() as unit:
                total = unit.products.page(CENTER_ID, PageRequest(size=7)).total
                pages = [
                    unit.products.page(CENTER_ID, PageRequest(page=number, size=7)).items
                    for number in range(1, total // 7 + 2)
                ]
            assert [len(page) for page in pages] == [*[7] * (total // 7), total % 7]
            return [product for page in pages for product in page]

        def import_or_read(number: int) -> None:
            seen: list[Product] = []
            while number == 0 and importing:
                products = read_pages()
                assert products[: len(seen)] == seen
                seen = products
            try:
                if number:
                    import_some(number)
            finally:
                importing.discard(number)

        at_once(importers + 1, import_or_read)

        lowest, highest = imports * of_each, (importers + 1) * imports * of_each
        numbers = {0, *range(lowest, highest)}
        products = read_pages()
        assert len(products) == len(numbers)
        assert set(products) == set(map(a_product, numbers))


class TestPaymentConfigurations:
    def test_one_may_be_removed_more_than_once(self, storage: Storage) -> None:
        with committed(storage) as unit:
            for center_id in (CENTER_ID, OTHER_CENTER_ID):
                unit.configurations.put(center_id, a_configuration())
        for _ in range(2):
            with committed(storage) as unit:
                unit.configurations.remove(CENTER_ID)
        with storage.read() as unit:
            assert unit.configurations.get(CENTER_ID) is None
            assert unit.configurations.get(OTHER_CENTER_ID) == a_configuration()

    def test_those_of_all_centers_are_returned(self, storage: Storage) -> None:
        first = a_configuration()
        second = a_configuration(merchant_account=MerchantAccount("harbor"), redirect_origins=())
        with storage.write() as unit:
            assert unit.configurations.all() == ()
            unit.configurations.put(CENTER_ID, first)
            unit.configurations.put(OTHER_CENTER_ID, second)
            assert sorted(unit.configurations.all(), key=repr) == sorted([first, second], key=repr)


class TestCardSessions:
    def test_those_of_a_guest_are_listed_newest_first(self, storage: Storage) -> None:
        sessions = [
            a_session(
                token_id=TokenId(a_uuid(30 + number)),
                created_at=NOW + number * MICROSECOND,
                center_id=OTHER_CENTER_ID if number == 1 else CENTER_ID,
            )
            for number in range(3)
        ]
        with committed(storage) as unit:
            for session in (sessions[1], sessions[2], sessions[0]):
                unit.sessions.add(session)
            unit.sessions.add(a_session(token_id=TokenId(a_uuid(40)), guest_id=OTHER_GUEST_ID))
        with storage.read() as reading:
            page = reading.sessions.page(GUEST_ID, None, PageRequest(page=2, size=2))
            assert (page.items, page.total) == ((sessions[0],), 3)
            page = reading.sessions.page(GUEST_ID, frozenset({CENTER_ID}), PageRequest())
            assert (page.items, page.total) == ((sessions[2], sessions[0]), 2)

    def test_those_of_one_moment_are_on_one_page_each(self, storage: Storage) -> None:
        numbers = (31, 33, 32)
        with committed(storage) as unit:
            for number in numbers:
                unit.sessions.add(a_session(token_id=TokenId(a_uuid(number))))
        with storage.read() as reading:
            pages = [
                reading.sessions.page(GUEST_ID, None, PageRequest(page=n, size=1))
                for n in (1, 2, 3)
            ]
        listed = [each.token_id for page in pages for each in page.items]
        assert listed == [a_uuid(number) for number in sorted(numbers, reverse=True)]

    def test_one_is_found_by_its_current_page_only(self, storage: Storage) -> None:
        with committed(storage) as unit:
            unit.sessions.add(a_session(attempt=an_attempt()))
            unit.sessions.add(a_session(token_id=OTHER_TOKEN_ID))
            next_one = a_session(attempt=an_attempt(page=a_page(reference="page-2")))
            unit.sessions.update(next_one)
        with storage.read() as unit:
            assert unit.sessions.with_page(PROVIDER, MERCHANT_ACCOUNT, "page-2") == next_one
            assert unit.sessions.with_page(PROVIDER, MERCHANT_ACCOUNT, "page-1") is None
            other = ProviderName("other")
            assert unit.sessions.with_page(other, MERCHANT_ACCOUNT, "page-2") is None

    def test_the_same_page_reference_at_two_merchant_accounts_is_distinguished(
        self, storage: Storage
    ) -> None:
        other = MerchantAccount("other")
        session = a_session(
            token_id=OTHER_TOKEN_ID,
            configuration=a_configuration(merchant_account=other),
            attempt=an_attempt(request=a_page_request(merchant_account=other)),
        )
        with committed(storage) as unit:
            unit.sessions.add(a_session(attempt=an_attempt()))
            unit.sessions.add(session)
        with storage.read() as unit:
            assert unit.sessions.with_page(PROVIDER, other, "page-1") == session

    def test_an_id_that_is_no_uuid_is_of_no_session(self, storage: Storage) -> None:
        with storage.write() as unit:
            unit.sessions.add(a_session())
            for token_id in ("", "order-7", TOKEN_ID.replace("-", ""), f"{TOKEN_ID}\x00"):
                assert unit.sessions.get(TokenId(token_id)) is None
            assert unit.sessions.get(TOKEN_ID) == a_session()

    def test_one_that_another_unit_changes_is_not_taken_as_it_was(self, storage: Storage) -> None:
        with committed(storage) as unit:
            unit.sessions.add(a_session(due_at=NOW - MINUTE))
            unit.sessions.add(a_session(token_id=OTHER_TOKEN_ID, due_at=NOW))
        looked = Event()

        def change(unit: WriteUnit) -> None:
            session = unit.sessions.get(TOKEN_ID)
            assert session is not None
            looked.set()
            unit.sessions.update(replace(session, due_at=NOW + 5 * MINUTE))
            unit.commit()

        def change_or_take(number: int) -> list[TokenId | None]:
            taken: list[TokenId | None] = []
            if number == 0:
                storage.transact(change)
                return taken
            assert looked.wait(30)
            for _ in range(2):
                with committed(storage) as unit:
                    session = unit.sessions.take_due(NOW, until=NOW + MINUTE)
                    taken.append(None if session is None else session.token_id)
            return taken

        assert at_once(2, change_or_take)[1] == [OTHER_TOKEN_ID, None]
        session = read_session(storage)
        assert session is not None
        assert session.due_at == NOW + 5 * MINUTE

    def test_open_sessions_of_a_guest_with_a_page_are_made_due(self, storage: Storage) -> None:
        with_page: dict[str, Any] = {"attempt": an_attempt(), "due_at": NOW + DAY}
        of_another = {"guest_id": OTHER_GUEST_ID}
        ended = {"status": SessionStatus.EXPIRED, "due_at": None}
        listed: list[dict[str, Any]] = [
            with_page,
            {"due_at": NOW + DAY},
            with_page | of_another,
            with_page | ended,
            with_page | {"attempt": an_attempt(over=True)},
        ]
        ids = [TokenId(a_uuid(500 + number)) for number in range(len(listed))]
        with committed(storage) as unit:
            for token_id, changes in zip(ids, listed, strict=True):
                unit.sessions.add(a_session(token_id=token_id, **changes))
        with committed(storage) as unit:
            unit.sessions.make_pages_due(GUEST_ID, NOW)
        with storage.read() as unit:
            due = [session.due_at for each in ids if (session := unit.sessions.get(each))]
        assert due == [NOW, NOW + DAY, NOW + DAY, None, NOW + DAY]

    def test_open_sessions_of_a_caller_are_found(self, storage: Storage) -> None:
        listed: list[dict[str, Any]] = [
            {},
            {"attempt": an_attempt()},
            {"caller": CallerName("kiosk")},
            {"status": SessionStatus.COMPLETED, "due_at": None},
            {"cancelled_at": NOW},
        ]
        ids = [TokenId(a_uuid(500 + number)) for number in range(len(listed))]
        with committed(storage) as unit:
            for token_id, changes in zip(ids, listed, strict=True):
                unit.sessions.add(a_session(token_id=token_id, **changes))
        with storage.read() as unit:
            assert sorted(unit.sessions.open_of(CALLER)) == ids[:2]


@dataclass(frozen=True)
class DueRecords:
    """Records with a due time, each identified by a UUID."""

    add: Callable[[WriteUnit, str, datetime | None], None]
    take: Callable[[WriteUnit, datetime, datetime], str | None]


def take_session(unit: WriteUnit, now: datetime, until: datetime) -> str | None:
    taken = unit.sessions.take_due(now, until=until)
    return taken.token_id if taken else None


def take_discard(unit: WriteUnit, now: datetime, until: datetime) -> str | None:
    taken = unit.discards.take_due(now, until=until)
    assert taken is None or taken.due_at == until
    return taken.token if taken else None


def add_delivery(unit: WriteUnit, event_id: str, due_at: datetime | None) -> None:
    with suppress(AlreadyStored):
        unit.event_endpoints.add(an_event_endpoint())
    event = replace(an_event_delivery().event, event_id=EventId(event_id))
    unit.event_deliveries.add(an_event_delivery(event=event, due_at=due_at))


def take_delivery(unit: WriteUnit, now: datetime, until: datetime) -> str | None:
    taken = unit.event_deliveries.take_due(now, until=until)
    assert taken is None or taken.due_at == until
    return taken.event_id if taken else None


DUE: Final = [
    DueRecords(
        lambda unit, each, at: unit.sessions.add(a_session(token_id=TokenId(each), due_at=at)),
        take_session,
    ),
    DueRecords(
        lambda unit, each, at: unit.discards.add(a_discard(token=CardToken(each), due_at=at)),
        take_discard,
    ),
    DueRecords(add_delivery, take_delivery),
]


class TestLeases:
    @pytest.mark.parametrize("due", DUE, ids=["sessions", "discards", "events"])
    def test_what_is_due_is_taken_in_the_order_of_its_time_and_due_again_later(
        self, storage: Storage, due: DueRecords
    ) -> None:
        waits = {2: timedelta(0), 0: -MINUTE, 1: -MICROSECOND, 3: MICROSECOND}
        until = NOW + MINUTE
        with committed(storage) as unit:
            for number, wait in waits.items():
                due.add(unit, a_uuid(number), NOW + wait)
            due.add(unit, a_uuid(4), None)
        with committed(storage) as unit:
            taken = [due.take(unit, NOW, until) for _ in range(4)]
        assert taken == [a_uuid(0), a_uuid(1), a_uuid(2), None]
        with storage.write() as unit:
            assert due.take(unit, until - MICROSECOND, until) == a_uuid(3)
            assert due.take(unit, until - MICROSECOND, until) is None
            assert due.take(unit, until, until + DAY) is not None

    # Shows F6.
    @pytest.mark.parametrize("due", DUE, ids=["sessions", "discards", "events"])
    def test_nothing_is_taken_without_a_commit(self, storage: Storage, due: DueRecords) -> None:
        with committed(storage) as unit:
            due.add(unit, TOKEN_ID, NOW)
        for _ in range(2):
            with storage.write() as unit:
                assert due.take(unit, NOW, NOW + MINUTE) == TOKEN_ID

    # Shows F14.
    @pytest.mark.parametrize("due", DUE, ids=["sessions", "discards", "events"])
    def test_of_many_takers_at_once_one_gets_each(self, storage: Storage, due: DueRecords) -> None:
        each = [a_uuid(number) for number in range(300, 324)]
        with committed(storage) as unit:
            for number in each:
                due.add(unit, number, NOW)

        def take_all(_: int) -> list[str]:
            taken: list[str] = []
            for _ in range(len(each) + 1):
                with committed(storage) as unit:
                    found = due.take(unit, NOW, NOW + MINUTE)
                taken += [found] if found else []
            return taken

        assert sorted(found for taker in at_once(8, take_all) for found in taker) == each

    def test_a_taken_session_names_its_psp_account_and_has_the_new_time(
        self, storage: Storage
    ) -> None:
        with storage.write() as unit:
            unit.sessions.add(a_session(due_at=NOW))
            assert unit.sessions.take_due(NOW, until=NOW + MINUTE) == DueSession(
                TOKEN_ID, PspAccount(PROVIDER, MERCHANT_ACCOUNT)
            )
            assert unit.sessions.get(TOKEN_ID) == a_session(due_at=NOW + MINUTE)

    def test_those_of_excepted_merchant_accounts_are_not_taken(self, storage: Storage) -> None:
        accounts = [
            PspAccount(ProviderName(provider), MerchantAccount(account))
            for provider in ("fake", "stripe")
            for account in ("main", "other")
        ]
        with committed(storage) as unit:
            for number, (provider, merchant_account) in enumerate(accounts):
                at = {"provider": provider, "merchant_account": merchant_account}
                configuration = a_configuration(**at)
                unit.sessions.add(
                    a_session(
                        token_id=TokenId(a_uuid(number)), configuration=configuration, due_at=NOW
                    )
                )
                unit.discards.add(a_discard(**at, due_at=NOW))
        busy = {accounts[0], accounts[3]}

        with storage.write() as unit:
            for repository in (unit.sessions, unit.discards):
                assert not repository.is_any_due(NOW - MINUTE)
                assert repository.is_any_due(NOW, except_at=busy)
                taken = [
                    repository.take_due(NOW, until=NOW + MINUTE, except_at=busy) for _ in range(3)
                ]
                assert {each.psp_account for each in taken if each} == set(accounts) - busy
                assert repository.is_any_due(NOW)
                assert not repository.is_any_due(NOW, except_at=busy)

    def test_deliveries_to_excepted_endpoints_are_not_taken(self, storage: Storage) -> None:
        endpoints = [EndpointId(a_uuid(number)) for number in (400, 401)]
        with storage.write() as unit:
            for each in endpoints:
                at = {"endpoint_id": each, "url": f"https://shop.example/{each}"}
                unit.event_endpoints.add(an_event_endpoint(**at))
                unit.event_deliveries.add(an_event_delivery(endpoint_id=each))
            repository = unit.event_deliveries
            assert not repository.is_any_due(NOW - MINUTE)
            assert repository.is_any_due(NOW, except_to=endpoints[:1])
            taken = repository.take_due(NOW, until=NOW + MINUTE, except_to=endpoints[:1])
            event_id = an_event_delivery().event.event_id
            assert taken == DueDelivery(event_id, endpoints[1], due_at=NOW + MINUTE)
            assert unit.event_deliveries.get(event_id, endpoints[1]) == an_event_delivery(
                endpoint_id=endpoints[1], due_at=NOW + MINUTE
            )
            assert not repository.is_any_due(NOW, except_to=endpoints[:1])
            assert repository.take_due(NOW, until=NOW, except_to=endpoints) is None

    def test_the_endpoint_that_has_waited_the_longest_comes_first(self, storage: Storage) -> None:
        with committed(storage) as unit:
            for number, wait in ((401, MINUTE), (402, 3 * MINUTE), (400, 2 * MINUTE)):
                each = EndpointId(a_uuid(number))
                unit.event_endpoints.add(
                    an_event_endpoint(endpoint_id=each, url=f"https://{number}.example")
                )
                unit.event_deliveries.add(an_event_delivery(endpoint_id=each, due_at=NOW - wait))
        with committed(storage) as unit:
            taken = [unit.event_deliveries.take_due(NOW, until=NOW + DAY) for _ in range(3)]
        assert [each.endpoint_id for each in taken if each] == [a_uuid(n) for n in (402, 400, 401)]

    def test_of_many_tellers_at_once_one_gets_each_account(self, storage: Storage) -> None:
        numbers = range(40)
        with committed(storage) as unit:
            for number in numbers:
                unit.accounts.add(a_payment_account(number, expiry_notice_at=NOW))

        def tell_all(_: int) -> list[AccountId]:
            told: list[AccountId] = []
            for _ in numbers:
                with committed(storage) as unit:
                    for account in unit.accounts.with_expiry_notice_due(
                        NOW, at_most=3, unreadable_until=NOW + DAY
                    ):
                        assert account is not None
                        unit.accounts.update(replace(account, expiry_notice_at=None))
                        told.append(account.account_id)
            return told

        told = [account_id for teller in at_once(4, tell_all) for account_id in teller]
        assert sorted(told) == sorted(a_payment_account(number).account_id for number in numbers)

    # Shows F40.
    @pytest.mark.parametrize(
        ("state", "waits_at_most"),
        [
            ({"unanswered_since": NOW}, MAX_BACKOFF),
            ({"attempt": an_attempt(), "unanswered_since": NOW}, MAX_BACKOFF),
            ({"attempt": an_attempt()}, POLL_EVERY),
            ({"attempt": an_attempt(page=None)}, POLL_EVERY),
            ({"expires_at": NOW}, POLL_EVERY),
        ],
    )
    def test_a_session_due_later_than_it_ever_waits_is_due_now(
        self, storage: Storage, state: dict[str, Any], waits_at_most: timedelta
    ) -> None:
        latest = latest_due(NOW, longest_wait=waits_at_most)
        session = a_session(**{"expires_at": NOW + 9 * DAY, **state})
        for due_at, is_due in ((latest, False), (latest + MICROSECOND, True)):
            with storage.write() as unit:
                unit.sessions.add(replace(session, due_at=due_at))
                assert unit.sessions.is_any_due(NOW) == is_due
                taken = unit.sessions.take_due(NOW, until=NOW + MINUTE)
                assert (taken is not None) == is_due
                assert unit.sessions.take_due(NOW, until=NOW + MINUTE) is None

    @pytest.mark.parametrize("attempt", [None, an_attempt(over=True)])
    def test_a_link_without_a_page_waits_for_its_own_end(
        self, storage: Storage, attempt: PageAttempt | None
    ) -> None:
        end = NOW + 365 * DAY
        with storage.write() as unit:
            unit.sessions.add(a_session(attempt=attempt, expires_at=end, due_at=end))
            assert not unit.sessions.is_any_due(NOW)
            assert unit.sessions.take_due(NOW, until=NOW + MINUTE) is None

    # Shows F40.
    @pytest.mark.parametrize(
        ("due", "waits_at_most"),
        [(DUE[1], MAX_BACKOFF), (DUE[2], LONGEST_WAIT)],
        ids=["discards", "events"],
    )
    def test_what_is_due_later_than_it_ever_waits_is_due_now(
        self, storage: Storage, due: DueRecords, waits_at_most: timedelta
    ) -> None:
        latest = latest_due(NOW, longest_wait=waits_at_most)
        with storage.write() as unit:
            due.add(unit, a_uuid(1), latest)
            assert due.take(unit, NOW, NOW + MINUTE) is None
            due.add(unit, a_uuid(2), latest + 365 * DAY)
            due.add(unit, a_uuid(3), NOW)
            taken = [due.take(unit, NOW, NOW + MINUTE) for _ in range(3)]
        assert taken == [a_uuid(3), a_uuid(2), None]

    def test_merchant_accounts_take_turns_however_long_one_has_waited(
        self, storage: Storage
    ) -> None:
        with storage.write() as unit:
            for number in range(9):
                merchant_account = MerchantAccount("backlog" if number < 7 else f"new {number}")
                at = {"merchant_account": merchant_account, "due_at": NOW - (9 - number) * MINUTE}
                configuration = a_configuration(merchant_account=merchant_account)
                unit.sessions.add(
                    a_session(
                        token_id=TokenId(a_uuid(number)),
                        configuration=configuration,
                        due_at=at["due_at"],
                    )
                )
                unit.discards.add(a_discard(token=CardToken(f"token-{number}"), **at))
            for repository in (unit.sessions, unit.discards):
                taken = [
                    repository.take_due(NOW + turn * MICROSECOND, until=NOW + MINUTE)
                    for turn in range(3)
                ]
                assert {each.psp_account.merchant_account for each in taken if each} == {
                    "backlog",
                    "new 7",
                    "new 8",
                }

    def test_notices_of_cards_that_expire_come_after_all_other_events(
        self, storage: Storage
    ) -> None:
        first, second = (EndpointId(a_uuid(number)) for number in (400, 401))
        told = [
            (first, EventType.ACCOUNT_EXPIRING, -DAY),
            (first, EventType.ACCOUNT_STORED, timedelta(0)),
            (first, EventType.ACCOUNT_EXPIRING, -2 * DAY),
            (second, EventType.SESSION_FAILED, -MINUTE),
            (second, EventType.ACCOUNT_STORED, MICROSECOND),
        ]
        with storage.write() as unit:
            for number, (endpoint_id, event_type, wait) in enumerate(told):
                event = replace(an_event_delivery(number).event, type=event_type)
                unit.event_deliveries.add(
                    an_event_delivery(event=event, endpoint_id=endpoint_id, due_at=NOW + wait)
                )
            taken = [unit.event_deliveries.take_due(NOW, until=NOW + MINUTE) for _ in range(5)]
        expected = [an_event_delivery(number).event.event_id for number in (3, 1, 2, 0)]
        assert [each.event_id for each in taken if each] == expected

    def test_accounts_with_a_due_notice_are_found_soonest_first(self, storage: Storage) -> None:
        waits = {1: timedelta(0), 2: -MINUTE, 3: MICROSECOND}
        with storage.write() as unit:
            for number, wait in waits.items():
                unit.accounts.add(a_payment_account(number, expiry_notice_at=NOW + wait))
            unit.accounts.add(a_payment_account(4))
            find = partial(unit.accounts.with_expiry_notice_due, NOW, unreadable_until=NOW + DAY)
            assert [each and each.account_id for each in find(at_most=3)] == [
                a_payment_account(number).account_id for number in (2, 1)
            ]
            assert len(find(at_most=1)) == 1
            assert unit.accounts.is_expiry_notice_due(NOW)
            assert not unit.accounts.is_expiry_notice_due(NOW - DAY)


UNREADABLE: Final = "odd"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardOfAnotherRelease(Discard):
    """A discard as a release has it that cannot decode one of them."""

    def __post_init__(self) -> None:
        if self.token == UNREADABLE:
            raise ValueError


class TestUnreadable:
    """Rows with values of another release, which this one cannot decode."""

    @staticmethod
    def spoil(storage: Storage, statement: str) -> None:
        with committed(storage) as unit:
            transaction_of(unit).execute(statement)

    def test_an_account_does_not_stay_the_first_whose_notice_is_due(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # A process logs a row once, and other tests are in the same process.
        monkeypatch.setattr(_ACCOUNTS, "_logged", set())
        unreadable = a_payment_account(4).account_id
        with committed(storage) as unit:
            for number in (1, 2, 3):
                due_at = NOW - DAY / number
                unit.accounts.add(a_payment_account(number, expiry_notice_at=due_at))
            unit.accounts.add(a_payment_account(4, expiry_notice_at=NOW - DAY * 2))
        self.spoil(
            storage, f"UPDATE payment_accounts SET source = 99 WHERE account_id = '{unreadable}'"
        )

        found = []
        with capture_logs() as lines:
            for _ in range(2):
                with committed(storage) as unit:
                    found.append(
                        unit.accounts.with_expiry_notice_due(
                            NOW, at_most=2, unreadable_until=NOW + DAY
                        )
                    )
            with storage.read() as unit, pytest.raises(RecordUnreadable):
                unit.accounts.get(unreadable)
            with storage.read() as unit:
                page = unit.accounts.page_expiring(
                    CENTER_ID, before=date(2032, 1, 1), request=PageRequest(size=9)
                )

        assert [[each and each.token for each in taken] for taken in found] == [
            [None, "token-1"],
            ["token-1", "token-2"],
        ]
        assert [(each["table"], each["key"]) for each in lines] == [
            ("payment_accounts", unreadable)
        ]
        assert (len(page.items), page.total) == (3, 4)

    def test_a_discard_is_passed_over_until_its_lease_ends(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # No value that PostgreSQL takes in this table is one that a release cannot decode.
        monkeypatch.setattr(_DISCARDS, "_record_type", DiscardOfAnotherRelease)
        monkeypatch.setattr(_DISCARDS, "_logged", set())
        due = {"first": NOW - 3 * MINUTE, UNREADABLE: NOW - 2 * MINUTE, "last": NOW - MINUTE}
        with committed(storage) as unit:
            for token, due_at in due.items():
                unit.discards.add(a_discard(token=CardToken(token), due_at=due_at))

        taken = []
        with capture_logs() as lines:
            for now in (NOW, NOW, NOW, NOW + 2 * MINUTE):
                with committed(storage) as unit:
                    taken.append(take_discard(unit, now, now + MINUTE))
        assert taken == ["first", "last", None, "first"]
        assert [(each["event"], each["key"]) for each in lines] == [
            ("record_unreadable", f"{PROVIDER}/{MERCHANT_ACCOUNT}/{UNREADABLE}…")
        ]

    def test_lists_for_operators_leave_it_out(self, storage: Storage) -> None:
        other = EndpointId(a_uuid(401))
        with committed(storage) as unit:
            unit.event_endpoints.add(an_event_endpoint())
            unit.event_endpoints.add(
                an_event_endpoint(endpoint_id=other, url="https://other.example")
            )
            for endpoint_id in (an_event_endpoint().endpoint_id, other):
                unit.event_deliveries.add(an_event_delivery(endpoint_id=endpoint_id))
            unit.access_tokens.add(an_access_token())
            unit.access_tokens.add(replace(an_access_token(), token_hash="other"))
        for statement in (
            f"UPDATE event_endpoints SET secrets = '{{}}' WHERE endpoint_id <> '{other}'",
            f"UPDATE event_deliveries SET status = 'lost' WHERE endpoint_id <> '{other}'",
            "UPDATE access_tokens SET caller = '{}' WHERE token_hash <> 'other'",
        ):
            self.spoil(storage, statement)

        with storage.read() as unit:
            assert [each.endpoint_id for each in unit.event_endpoints.all()] == [other]
            (delivery,) = unit.event_deliveries.latest(limit=9, only_failed=False)
            assert delivery.endpoint_id == other
            assert [each.token_hash for each in unit.access_tokens.all()] == ["other"]
            for get in (
                partial(unit.event_endpoints.get, an_event_endpoint().endpoint_id),
                partial(unit.event_deliveries.of, delivery.event.event_id),
                partial(unit.access_tokens.get, an_access_token().token_hash),
            ):
                with pytest.raises(RecordUnreadable):
                    get()


class TestEvents:
    def test_one_url_has_one_endpoint_until_it_is_removed(self, storage: Storage) -> None:
        other = EndpointId(a_uuid(401))
        with storage.write() as unit:
            unit.event_endpoints.add(an_event_endpoint(disabled_at=NOW))
            with pytest.raises(AlreadyStored):
                unit.event_endpoints.add(an_event_endpoint(endpoint_id=other))
            unit.event_endpoints.update(an_event_endpoint(removed_at=NOW))
            unit.event_endpoints.add(an_event_endpoint(endpoint_id=other))
            later = an_event_endpoint(endpoint_id=EndpointId(a_uuid(1)), url="https://b.example")
            unit.event_endpoints.add(replace(later, created_at=NOW + MINUTE))
            listed = unit.event_endpoints.all()
            assert [each.endpoint_id for each in listed] == [other, later.endpoint_id]

    def test_an_event_has_one_delivery_to_an_endpoint(self, storage: Storage) -> None:
        with committed(storage) as unit:
            unit.event_deliveries.add(an_event_delivery())
        with storage.write() as unit:
            with pytest.raises(AlreadyStored):
                unit.event_deliveries.add(an_event_delivery(due_at=None))
            event_id, endpoint_id = (
                an_event_delivery().event.event_id,
                an_event_endpoint().endpoint_id,
            )
            assert unit.event_deliveries.get(event_id, endpoint_id) == an_event_delivery()

    def test_the_latest_deliveries_come_first_and_old_ones_are_forgotten(
        self, storage: Storage
    ) -> None:
        events = [
            replace(an_event_delivery(number).event, occurred_at=NOW + number * MINUTE)
            for number in range(4)
        ]
        done = [
            replace(an_event_delivery(), event=event).failed_for_good("500", NOW)
            for event in events[:3]
        ]
        pending = an_event_delivery(event=events[0], endpoint_id=EndpointId(a_uuid(401)))
        delivered = an_event_delivery(event=events[3]).delivered("200", NOW)
        with storage.write() as unit:
            for each in (*done, pending, delivered):
                unit.event_deliveries.add(each)
            assert unit.event_deliveries.of(events[0].event_id) == (done[0], pending)
            latest = unit.event_deliveries.latest(limit=3, only_failed=False)
            assert latest == (delivered, done[2], done[1])
            assert unit.event_deliveries.latest(limit=9, only_failed=True) == (*done[::-1],)
            assert unit.event_deliveries.forget(before=NOW + 2 * MINUTE) == 2
            left = unit.event_deliveries.latest(limit=9, only_failed=False)
            assert left == (delivered, done[2], pending)


class TestEvidence:
    def test_evidence_comes_back_oldest_first(self, storage: Storage) -> None:
        late = an_evidence(content="late", received_at=NOW + MINUTE)
        early = an_evidence(content="early", origin=EvidenceOrigin.RETURN)
        # In no order of their hashes.
        together = [an_evidence(content=content) for content in ("b", "d", "c", "a")]
        with committed(storage) as unit:
            for evidence in (late, early, *together):
                unit.evidence.add(TOKEN_ID, evidence, at_most=50)
            unit.evidence.add(OTHER_TOKEN_ID, an_evidence(), at_most=50)
        with storage.read() as unit:
            assert list(unit.evidence.of(TOKEN_ID)) == [early, *together, late]

    def test_the_same_piece_is_kept_once_for_each_origin(self, storage: Storage) -> None:
        returned = an_evidence(origin=EvidenceOrigin.RETURN)
        for evidence in (returned, an_evidence(), an_evidence(received_at=NOW + MINUTE)):
            with committed(storage) as unit:
                unit.evidence.add(TOKEN_ID, evidence, at_most=50)
        with storage.read() as unit:
            assert list(unit.evidence.of(TOKEN_ID)) == [returned, an_evidence()]

    def test_a_session_gets_no_more_pieces_than_it_may_have(self, storage: Storage) -> None:
        with storage.write() as unit:
            for number in range(5):
                unit.evidence.add(TOKEN_ID, an_evidence(content=str(number)), at_most=3)
            unit.evidence.add(TokenId(a_uuid(22)), an_evidence(), at_most=3)
            unit.commit()
        with storage.read() as reading:
            kept = [evidence.content for evidence in reading.evidence.of(TOKEN_ID)]
            assert kept == ["0", "1", "2"]
            assert len(reading.evidence.of(TokenId(a_uuid(22)))) == 1


class TestIdempotencyKeys:
    def claim(self, unit: WriteUnit, token_id: TokenId, hours: int = 0) -> TokenId:
        now = NOW + timedelta(hours=hours)
        return unit.idempotency_keys.claim(CALLER, "key", token_id, now=now, since=now - DAY)

    # Shows F1.
    def test_a_key_stands_for_the_session_that_claimed_it_first(self, storage: Storage) -> None:
        with storage.write() as unit:
            assert self.claim(unit, TOKEN_ID) == TOKEN_ID
            assert self.claim(unit, OTHER_TOKEN_ID, hours=23) == TOKEN_ID
            keys = unit.idempotency_keys
            assert keys.get(CALLER, "key", since=NOW - DAY) == TOKEN_ID
            assert keys.get(CallerName("kiosk"), "key", since=NOW - DAY) is None
            assert keys.get(CALLER, "KEY", since=NOW - DAY) is None
        with storage.read() as reading:
            assert reading.idempotency_keys.get(CALLER, "key", since=NOW - DAY) is None

    def test_a_key_may_be_claimed_again_after_its_time(self, storage: Storage) -> None:
        with storage.write() as unit:
            self.claim(unit, TOKEN_ID)
            assert unit.idempotency_keys.get(CALLER, "key", since=NOW) is None
            assert self.claim(unit, OTHER_TOKEN_ID, hours=24) == OTHER_TOKEN_ID
            assert unit.idempotency_keys.get(CALLER, "key", since=NOW) == OTHER_TOKEN_ID

    def test_of_many_claims_at_once_one_wins_and_the_others_read_its_session(
        self, storage: Storage
    ) -> None:
        def add(number: int) -> CardSession | None:
            mine = a_session(token_id=TokenId(a_uuid(number)))

            def claim_and_add(unit: WriteUnit) -> CardSession | None:
                winner = self.claim(unit, mine.token_id)
                if winner != mine.token_id:
                    return unit.sessions.get(winner)
                unit.sessions.add(mine)
                unit.commit()
                return mine

            return storage.transact(claim_and_add)

        first, *others = at_once(8, add)
        assert first is not None
        assert others == [first] * 7

    def test_old_keys_are_forgotten_and_younger_ones_are_not(self, storage: Storage) -> None:
        with storage.write() as unit:
            for key, used_at in (("old", NOW - DAY), ("young", NOW)):
                unit.idempotency_keys.claim(CALLER, key, TOKEN_ID, now=used_at, since=NOW - 2 * DAY)
            assert unit.idempotency_keys.forget(before=NOW) == 1
            assert unit.idempotency_keys.forget(before=NOW) == 0
            assert unit.idempotency_keys.get(CALLER, "old", since=NOW - 2 * DAY) is None
            assert unit.idempotency_keys.get(CALLER, "young", since=NOW - 2 * DAY) == TOKEN_ID


class TestPaymentAccounts:
    # Shows I2.
    def test_the_same_card_is_not_stored_twice(self, storage: Storage) -> None:
        with committed(storage) as unit:
            unit.accounts.add(a_payment_account(1))
            with pytest.raises(AlreadyStored):
                unit.accounts.add(a_payment_account(2, fingerprint="fingerprint-1"))
            unit.accounts.add(a_payment_account(3))
        assert accounts_of(storage) == ([a_uuid(101), a_uuid(103)], 2)

    # Shows I2.
    def test_a_session_stores_one_account_even_after_its_removal(self, storage: Storage) -> None:
        with storage.write() as unit:
            first = a_payment_account(1, removed_at=NOW)
            unit.accounts.add(first)
            with pytest.raises(AlreadyStored):
                unit.accounts.add(a_payment_account(2, token_id=first.token_id))

    @pytest.mark.parametrize(
        "difference",
        [
            {"guest_id": OTHER_GUEST_ID},
            {"center_id": OTHER_CENTER_ID},
            {"provider": ProviderName("other")},
            {"merchant_account": MerchantAccount("other")},
            {"fingerprint": "other"},
            {"removed_at": NOW},
        ],
        ids=lambda difference: next(iter(difference)),
    )
    def test_a_difference_in_one_field_makes_another_card(
        self, storage: Storage, difference: dict[str, object]
    ) -> None:
        with committed(storage) as unit:
            unit.accounts.add(a_payment_account(1))
            unit.accounts.add(
                a_payment_account(2, **({"fingerprint": "fingerprint-1"} | difference))
            )

    def test_a_card_may_be_stored_again_after_its_removal(self, storage: Storage) -> None:
        with committed(storage) as unit:
            unit.accounts.add(a_payment_account(1))
            unit.accounts.update(a_payment_account(1, removed_at=NOW))
            unit.accounts.add(a_payment_account(2, fingerprint="fingerprint-1"))
        assert accounts_of(storage) == ([a_uuid(102)], 1)

    # Shows I9.
    def test_of_a_guests_active_cards_at_a_center_one_is_the_default(
        self, storage: Storage
    ) -> None:
        with committed(storage) as unit:
            unit.accounts.add(a_payment_account(1, is_default=True))
            unit.accounts.add(a_payment_account(2))
            unit.accounts.add(a_payment_account(3, is_default=True, guest_id=OTHER_GUEST_ID))
            unit.accounts.add(a_payment_account(4, is_default=True, center_id=OTHER_CENTER_ID))
            unit.accounts.add(a_payment_account(5, is_default=True, removed_at=NOW))
            with pytest.raises(AlreadyStored):
                unit.accounts.add(a_payment_account(9, is_default=True))
        with pytest.raises(Exception, match="payment_accounts"), storage.write() as unit:
            unit.accounts.update(a_payment_account(2, is_default=True))
        with committed(storage) as unit:
            unit.accounts.update(a_payment_account(1))
            unit.accounts.update(a_payment_account(2, is_default=True))
        with storage.read() as reading:
            active = reading.accounts.active_at(GUEST_ID, CENTER_ID)
        assert list(active) == [a_payment_account(1), a_payment_account(2, is_default=True)]

    # Shows I2, F36.
    def test_one_card_added_many_times_at_once_is_stored_once(self, storage: Storage) -> None:
        def add(number: int) -> bool:
            try:
                with committed(storage) as unit:
                    unit.accounts.add(a_payment_account(number, fingerprint="the same"))
            except AlreadyStored:
                return False
            return True

        assert at_once(8, add).count(True) == 1
        assert accounts_of(storage)[1] == 1

    def test_a_token_is_held_while_its_account_is_active(self, storage: Storage) -> None:
        with committed(storage) as unit:
            unit.accounts.add(a_payment_account(1))
            unit.accounts.add(a_payment_account(2, removed_at=NOW))
        with storage.read() as unit:
            held = unit.accounts.is_held
            assert held(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-1"))
            assert not held(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-2"))
            assert not held(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-3"))
            assert not held(PROVIDER, MerchantAccount("other"), CardToken("token-1"))
            assert not held(ProviderName("other"), MERCHANT_ACCOUNT, CardToken("token-1"))

    def test_active_accounts_are_listed_in_the_order_of_creation(self, storage: Storage) -> None:
        with committed(storage) as unit:
            for account in (
                *map(a_payment_account, [5, 3]),
                a_payment_account(9, removed_at=NOW),
                a_payment_account(8, guest_id=OTHER_GUEST_ID),
                a_payment_account(7, center_id=OTHER_CENTER_ID),
                a_payment_account(4),
            ):
                unit.accounts.add(account)
        assert accounts_of(storage, size=2) == ([a_uuid(105), a_uuid(103)], 4)
        assert accounts_of(storage, page=2, size=2) == ([a_uuid(107), a_uuid(104)], 4)
        assert accounts_of(storage, page=10**4000) == ([], 4)
        with storage.read() as unit:
            active = unit.accounts.active_at(GUEST_ID, CENTER_ID)
        assert list(active) == [a_payment_account(number) for number in (5, 3, 4)]

    def test_accounts_are_listed_by_expiry(self, storage: Storage) -> None:
        def expiring(month: int, year: int, *, page: int = 1) -> tuple[list[AccountId], int]:
            request = PageRequest(page=page, size=2)
            with storage.read() as unit:
                found = unit.accounts.page_expiring(
                    CENTER_ID, before=date(year, month, 28), request=request
                )
            return [account.account_id for account in found.items], found.total

        with committed(storage) as unit:
            for account in (
                a_payment_account(5, expiry_month=1, expiry_year=2028),
                a_payment_account(9, expiry_month=12, expiry_year=2026),
                a_payment_account(2, expiry_month=12, expiry_year=2026, guest_id=OTHER_GUEST_ID),
                a_payment_account(1, expiry_month=11, expiry_year=2026),
                a_payment_account(3, expiry_month=1, expiry_year=2026, removed_at=NOW),
                a_payment_account(4, expiry_month=1, expiry_year=2026, center_id=OTHER_CENTER_ID),
            ):
                unit.accounts.add(account)
        assert expiring(11, 2026) == ([], 0)
        assert expiring(12, 2026) == ([a_uuid(101)], 1)
        assert expiring(1, 2028) == ([a_uuid(101), a_uuid(109)], 3)
        assert expiring(1, 2028, page=2) == ([a_uuid(102)], 3)
        assert expiring(2, 2028, page=2) == ([a_uuid(102), a_uuid(105)], 4)
        assert expiring(12, 9999, page=3) == ([], 4)

    # Shows S2.
    def test_accounts_of_other_centers_are_neither_shown_nor_counted(
        self, storage: Storage
    ) -> None:
        with committed(storage) as unit:
            unit.accounts.add(a_payment_account(1))
            unit.accounts.add(a_payment_account(2, center_id=OTHER_CENTER_ID))
        both = frozenset({CENTER_ID, OTHER_CENTER_ID})
        assert accounts_of(storage, frozenset({CENTER_ID})) == ([a_uuid(101)], 1)
        assert accounts_of(storage, both) == ([a_uuid(101), a_uuid(102)], 2)
        assert accounts_of(storage, frozenset()) == ([], 0)
        # More than a statement may have parameters.
        many = frozenset(CenterId(a_uuid(number)) for number in range(2, 70_000))
        assert accounts_of(storage, many) == ([a_uuid(102)], 1)


class TestAtPsps:
    def test_the_last_guest_reference_is_kept_for_its_guest(self, storage: Storage) -> None:
        guest = a_psp_guest()
        others = [
            guest._replace(provider=ProviderName("other")),
            guest._replace(merchant_account=MerchantAccount("other")),
            guest._replace(guest_id=OTHER_GUEST_ID),
            guest._replace(center_id=OTHER_CENTER_ID),
            guest._replace(prefill=Prefill.BILLING),
        ]
        with committed(storage) as unit:
            for reference in ("first", "second"):
                unit.guest_references.keep(guest, GuestReference(reference))
        with storage.read() as reading:
            assert reading.guest_references.get(guest) == "second"
            assert [reading.guest_references.get(each) for each in others] == [None] * 5

    def test_the_first_merchant_identity_is_kept_for_its_psp_account(
        self, storage: Storage
    ) -> None:
        with storage.write() as unit:
            identities = unit.merchant_identities
            for identity in ("acct_1", "acct_2"):
                assert identities.claim(PROVIDER, MERCHANT_ACCOUNT, identity) == "acct_1"
            assert identities.get(PROVIDER, MERCHANT_ACCOUNT) == "acct_1"
            for psp_account in (
                (ProviderName("other"), MERCHANT_ACCOUNT),
                (PROVIDER, MerchantAccount("other")),
            ):
                assert identities.get(*psp_account) is None
                assert identities.claim(*psp_account, "acct_2") == "acct_2"

    def test_of_many_identities_claimed_at_once_one_is_kept(self, storage: Storage) -> None:
        def claim(number: int) -> str:
            with committed(storage) as unit:
                return unit.merchant_identities.claim(PROVIDER, MERCHANT_ACCOUNT, str(number))

        assert len(set(at_once(8, claim))) == 1


class TestDiscards:
    def test_a_second_discard_of_a_token_changes_nothing(self, storage: Storage) -> None:
        begun = a_discard(begun_at=NOW, unanswered_since=NOW, due_at=NOW + DAY)
        with storage.write() as unit:
            unit.discards.add(begun)
            unit.discards.add(a_discard())
            assert unit.discards.get(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-1")) == begun

    def test_a_removal_leaves_other_tokens_may_be_repeated_and_is_not_undone_by_an_update(
        self, storage: Storage
    ) -> None:
        others = [
            a_discard(token=CardToken("token-2")),
            a_discard(merchant_account=MerchantAccount("other")),
            a_discard(provider=ProviderName("other")),
        ]
        with storage.write() as unit:
            for discard in [a_discard(), *others]:
                unit.discards.add(discard)
            unit.discards.remove(a_discard(begun_at=NOW))
            unit.discards.remove(a_discard())
            unit.discards.update(a_discard(begun_at=NOW))
            left = [
                unit.discards.get(each.provider, each.merchant_account, each.token)
                for each in [a_discard(), *others]
            ]
        assert left == [None, *others]


# Records of several types, so their types are Any.
Look = Callable[[WriteUnit], Any]


class TestLookingBeforeWriting:
    """What a write unit reads in order to change it stays the same until the unit ends."""

    @pytest.mark.parametrize(
        ("record", "field", "looks"),
        [
            (
                a_session(attempt=an_attempt()),
                "redirect_uri",
                [
                    lambda unit: unit.sessions.get(TOKEN_ID),
                    lambda unit: unit.sessions.with_page(PROVIDER, MERCHANT_ACCOUNT, "page-1"),
                ],
            ),
            (
                a_payment_account(),
                "consent_version",
                [
                    lambda unit: unit.accounts.get(AccountId(a_uuid(101))),
                    lambda unit: unit.accounts.active_at(GUEST_ID, CENTER_ID)[0],
                ],
            ),
            (
                a_discard(),
                "guest_reference",
                [lambda unit: unit.discards.get(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-1"))],
            ),
            (
                an_event_endpoint(),
                "url",
                [lambda unit: unit.event_endpoints.get(an_event_endpoint().endpoint_id)],
            ),
            (
                an_event_delivery(last_result=""),
                "last_result",
                [
                    lambda unit: GET["EventDelivery"](unit, an_event_delivery()),
                    lambda unit: unit.event_deliveries.of(an_event_delivery().event.event_id)[0],
                ],
            ),
        ],
        ids=["session", "account", "discard", "endpoint", "delivery"],
    )
    def test_no_change_is_lost(
        self, storage: Storage, record: object, field: str, looks: Sequence[Look]
    ) -> None:
        with committed(storage) as unit:
            ADD[kind(record)](unit, record)

        def append(look: Look, unit: WriteUnit) -> None:
            found = look(unit)
            changed = replace(found, **{field: getattr(found, field) + "+"})
            UPDATE[kind(record)](unit, changed)
            unit.commit()

        def append_some(number: int) -> None:
            for _ in range(5):
                storage.transact(partial(append, looks[number % len(looks)]))

        at_once(8, append_some)
        with storage.read() as reading:
            found = GET[kind(record)](reading, record)
        assert getattr(found, field) == getattr(record, field) + "+" * 40

    def test_of_two_cards_for_a_guest_who_may_have_one_a_single_one_gets_in(
        self, storage: Storage
    ) -> None:
        def add_only_card(taker: int) -> list[bool]:
            def add(unit: WriteUnit, guest_id: GuestId, number: int) -> bool:
                if unit.accounts.active_at(guest_id, CENTER_ID):
                    return False
                unit.accounts.add(a_payment_account(number, guest_id=guest_id))
                unit.commit()
                return True

            return [
                storage.transact(
                    partial(
                        add, guest_id=GuestId(a_uuid(2_000 + guest)), number=100 * guest + taker
                    )
                )
                for guest in range(5)
            ]

        added = at_once(8, add_only_card)
        assert [sum(of_guest) for of_guest in zip(*added, strict=True)] == [1] * 5

    # Shows I7.
    def test_a_token_is_never_both_stored_and_discarded(self, storage: Storage) -> None:
        def discard(unit: WriteUnit, number: int) -> bool:
            token = CardToken(f"token-{number}")
            if unit.accounts.is_held(PROVIDER, MERCHANT_ACCOUNT, token):
                return False
            unit.discards.add(a_discard(token=token))
            unit.commit()
            return True

        def store(unit: WriteUnit, number: int) -> bool:
            token = CardToken(f"token-{number}")
            if unit.discards.get(PROVIDER, MERCHANT_ACCOUNT, token) is not None:
                return False
            unit.accounts.add(a_payment_account(number))
            unit.commit()
            return True

        def discard_or_store(each: int) -> list[bool]:
            work = (discard, store)[each % 2]
            return [
                storage.transact(partial(work, number=number))
                for number in range(each // 2 * 10, each // 2 * 10 + 10)
            ]

        done = at_once(8, discard_or_store)
        for discarded, stored in zip(done[::2], done[1::2], strict=True):
            assert [sum(both) for both in zip(discarded, stored, strict=True)] == [1] * 10

    def test_the_order_of_listed_accounts_never_changes(self, storage: Storage) -> None:
        adding = set(range(1, 7))

        def add(unit: WriteUnit, number: int) -> None:
            center_id = (CENTER_ID, OTHER_CENTER_ID)[number % 2]
            unit.accounts.active_at(GUEST_ID, center_id)
            unit.accounts.add(a_payment_account(number, center_id=center_id))
            unit.commit()

        def add_or_list(number: int) -> None:
            seen: list[AccountId] = []
            while number == 0 and adding:
                listed, _ = accounts_of(storage)
                assert listed[: len(seen)] == seen
                seen = listed
            try:
                for again in range(8 if number else 0):
                    storage.transact(partial(add, number=number * 10 + again))
            finally:
                adding.discard(number)

        at_once(7, add_or_list)
        assert accounts_of(storage)[1] == 6 * 8

    def test_no_more_evidence_is_kept_than_promised(self, storage: Storage) -> None:
        def add_ten(number: int) -> None:
            def add(unit: WriteUnit, content: str) -> None:
                unit.evidence.add(TOKEN_ID, an_evidence(content=content), at_most=50)
                unit.commit()

            for again in range(10):
                storage.transact(partial(add, content=f"{number}-{again}"))

        at_once(8, add_ten)
        with storage.read() as unit:
            assert len(unit.evidence.of(TOKEN_ID)) == 50


class TestRefusedCards:
    # Shows S23.
    @pytest.mark.parametrize("counted", Counted)
    @pytest.mark.parametrize(
        ("per", "another"),
        [
            (CountedPer.GUEST, {"guest_id": OTHER_GUEST_ID}),
            (CountedPer.GUEST, {"center_id": OTHER_CENTER_ID}),
            (CountedPer.GUEST_EVERYWHERE, {"guest_id": OTHER_GUEST_ID}),
            (CountedPer.CALLER, {"caller": "kiosk"}),
            (CountedPer.CENTER, {"center_id": OTHER_CENTER_ID}),
        ],
    )
    def test_a_limit_is_reached_by_the_records_of_one_within_the_window(
        self, storage: Storage, counted: Counted, per: CountedPer, another: dict[str, Any]
    ) -> None:
        with committed(storage) as unit:
            for number, (of, minutes) in enumerate(
                [({}, 0), ({}, 1), ({}, 2), ({}, 3), (another, 4)]
            ):
                changes = {**of, "token_id": TokenId(a_uuid(500 + number))}
                time = NOW + minutes * MINUTE
                if counted is Counted.SESSIONS:
                    unit.sessions.add(a_session(**changes, created_at=time))
                else:
                    unit.refused_cards.add([a_refused_card(**changes, refused_at=time)])
        limits = [CardLimit(counted, per, at_most) for at_most in range(1, 5)]
        with storage.read() as unit:
            # The first record counts no more at the moment when it is 24 hours old.
            reached = unit.refused_cards.reached(limits, a_session(), since=NOW)
            of_another = unit.refused_cards.reached(limits, a_session(**another), since=NOW)
        assert reached == {
            limits[0]: NOW + 3 * MINUTE,
            limits[1]: NOW + 2 * MINUTE,
            limits[2]: NOW + MINUTE,
        }
        assert of_another == {limits[0]: NOW + 4 * MINUTE}

    def test_a_guest_is_counted_at_all_centers_too(self, storage: Storage) -> None:
        with committed(storage) as unit:
            unit.sessions.add(a_session())
            unit.sessions.add(a_session(token_id=OTHER_TOKEN_ID, center_id=OTHER_CENTER_ID))
        limits = [CardLimit(Counted.SESSIONS, per, 2) for per in CountedPer]
        with storage.read() as unit:
            reached = unit.refused_cards.reached(limits, a_session(), since=NOW - DAY)
        assert {each.per for each in reached} == {CountedPer.GUEST_EVERYWHERE, CountedPer.CALLER}

    # Shows S23.
    def test_of_many_units_at_once_none_misses_what_another_adds_for_the_guest(
        self, storage: Storage
    ) -> None:
        limits = [CardLimit(Counted.SESSIONS, CountedPer.GUEST, 3)]

        def add_below_the_limit(number: int) -> bool:
            def add(unit: WriteUnit) -> bool:
                if unit.refused_cards.reached(limits, a_session(), since=NOW - DAY):
                    return False
                unit.sessions.add(a_session(token_id=TokenId(a_uuid(500 + number))))
                unit.commit()
                return True

            return storage.transact(add)

        assert sum(at_once(8, add_below_the_limit)) == 3

    def test_several_limits_are_looked_up_together(self, storage: Storage) -> None:
        with committed(storage) as unit:
            unit.sessions.add(a_session())
            unit.refused_cards.add([a_refused_card(refused_at=NOW + MINUTE)])
        limits = [CardLimit(counted, per, 1) for counted in Counted for per in CountedPer]
        of_another_guest = a_session(guest_id=OTHER_GUEST_ID)
        with storage.read() as unit:
            reached = unit.refused_cards.reached(limits, of_another_guest, since=NOW - DAY)
        assert reached == {
            CardLimit(Counted.SESSIONS, CountedPer.CALLER, 1): NOW,
            CardLimit(Counted.SESSIONS, CountedPer.CENTER, 1): NOW,
            CardLimit(Counted.REFUSED_CARDS, CountedPer.CALLER, 1): NOW + MINUTE,
            CardLimit(Counted.REFUSED_CARDS, CountedPer.CENTER, 1): NOW + MINUTE,
        }

    def test_a_card_that_is_added_again_stays_as_it_is(self, storage: Storage) -> None:
        for minutes in (0, 1):
            cards = [
                a_refused_card(number=number, refused_at=NOW + minutes * MINUTE)
                for number in range(minutes + 1)
            ]
            with committed(storage) as unit:
                assert unit.refused_cards.add(cards) == 1
                assert unit.refused_cards.add(cards) == 0
        limits = [CardLimit(Counted.REFUSED_CARDS, CountedPer.GUEST, most) for most in (1, 2, 3)]
        with storage.read() as unit:
            reached = unit.refused_cards.reached(limits, a_session(), since=NOW - DAY)
        assert reached == {limits[0]: NOW + MINUTE, limits[1]: NOW}

    def test_centers_are_found_by_their_refused_cards_within_the_window(
        self, storage: Storage
    ) -> None:
        with committed(storage) as unit:
            for minutes in (0, 1):
                unit.sessions.add(
                    a_session(
                        token_id=TokenId(a_uuid(500 + minutes)), created_at=NOW + minutes * MINUTE
                    )
                )
            unit.refused_cards.add(a_refused_card(number=n) for n in range(3))
            unit.refused_cards.add(
                a_refused_card(attempt=2, number=n, refused_at=NOW + MINUTE) for n in range(2)
            )
            unit.refused_cards.add(
                [a_refused_card(attempt=3, center_id=OTHER_CENTER_ID, refused_at=NOW + MINUTE)]
            )
        with storage.read() as unit:
            found = [
                unit.refused_cards.at_centers(since=since, at_least=at_least)
                for since, at_least in ((NOW - DAY, 2), (NOW, 2), (NOW, 3))
            ]
        assert found == [
            [CardsAtCenter(center_id=CENTER_ID, sessions=2, refused_cards=5)],
            [CardsAtCenter(center_id=CENTER_ID, sessions=1, refused_cards=2)],
            [],
        ]


def test_all_access_tokens_are_listed_oldest_first(storage: Storage) -> None:
    late = an_access_token(token_hash="a", issued_at=NOW + MINUTE)
    with storage.write() as unit:
        for token in (late, an_access_token(), an_access_token(token_hash="0")):
            unit.access_tokens.add(token)
        listed = unit.access_tokens.all()
    assert list(listed) == [an_access_token(), an_access_token(token_hash="0"), late]


def test_the_last_worker_heartbeat_is_kept(storage: Storage) -> None:
    with storage.write() as unit:
        assert unit.worker_heartbeats.last() is None
        for time in (NOW, NOW + MINUTE):
            unit.worker_heartbeats.leave(time)
        assert unit.worker_heartbeats.last() == NOW + MINUTE
