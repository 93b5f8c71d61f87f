"""What every storage adapter promises (domain/ports.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from threading import Event
from typing import Final

import pytest

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
from domain.billing import BillingInfo
from domain.card_sessions import CardSession, DueSession, Failure, SessionStatus
from domain.centers import Center
from domain.discards import Discard
from domain.guests import Guest
from domain.hosted_pages import EvidenceOrigin
from domain.identifiers import (
    AccountId,
    CallerName,
    CardToken,
    CenterId,
    GuestId,
    GuestReference,
    MerchantAccount,
    ProviderName,
    PspAccount,
    TokenId,
)
from domain.pagination import PageRequest
from domain.payment_accounts import PaymentAccount
from domain.payment_configuration import CardsPerGuest
from domain.ports import (
    AlreadyStored,
    CenterChangedInImport,
    DuplicateInImport,
    Storage,
    UnknownCenterInImport,
    WriteUnit,
)
from domain.products import Product
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
    a_session,
    an_access_token,
    an_attempt,
    an_evidence,
)
from tests.concurrency import elsewhere

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)

AWKWARD: Final = [
    "\U0001f600 Zo\u00eb \u200dZe\u0301",
    "O'Neill; DROP TABLE guests; --",
    '"quoted" and \\backslashed\\ \\N \\.',
    "100 % %s %(id)s %% $1 {0} :id ::uuid ?",
    "null",
    " \t leading\tand trailing \r\n",
    "x" * 1_000_000,
    "",
]


def put(storage: Storage, *writes: Callable[[WriteUnit], None]) -> None:
    """Commit some writes in one unit."""
    with storage.write() as unit:
        for write in writes:
            write(unit)
        unit.commit()


def put_sessions(storage: Storage, *sessions: CardSession) -> None:
    with storage.write() as unit:
        for session in sessions:
            unit.sessions.add(session)
        unit.commit()


def put_accounts(storage: Storage, *accounts: PaymentAccount) -> None:
    with storage.write() as unit:
        for account in accounts:
            unit.accounts.add(account)
        unit.commit()


def put_products(storage: Storage, *products: Product) -> None:
    with storage.write() as unit:
        unit.centers.put_many([a_center(), a_center(id=OTHER_CENTER_ID)])
        unit.products.put_many(products)
        unit.commit()


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


def product_pages(storage: Storage, *, size: int) -> tuple[list[Product], int]:
    """Give the products on all pages of a center, each page being full but the last, and a total.

    The pages are read in one unit.
    """
    with storage.read() as unit:
        total = unit.products.page(CENTER_ID, PageRequest(size=size)).total
        pages = [
            unit.products.page(CENTER_ID, PageRequest(page=number, size=size)).items
            for number in range(1, total // size + 2)
        ]
    assert [len(page) for page in pages] == [*[size] * (total // size), total % size]
    return [product for page in pages for product in page], total


class TestUnits:
    def test_what_is_committed_stays(self, storage: Storage) -> None:
        put(storage, lambda unit: unit.guests.put_many([a_guest()]))
        with storage.read() as unit:
            assert unit.guests.get(GUEST_ID) == a_guest()

    def test_leaving_without_a_commit_undoes_everything(self, storage: Storage) -> None:
        with storage.write() as unit:
            unit.guests.put_many([a_guest()])
            unit.sessions.add(a_session())
        with storage.read() as reading:
            assert reading.guests.get(GUEST_ID) is None
            assert reading.sessions.get(TOKEN_ID) is None

    def test_an_error_undoes_everything_and_passes_through(self, storage: Storage) -> None:
        def add_and_fail() -> None:
            with storage.write() as unit:
                unit.sessions.add(a_session())
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            add_and_fail()
        with storage.read() as reading:
            assert reading.sessions.get(TOKEN_ID) is None

    def test_a_write_unit_sees_its_own_writes(self, storage: Storage) -> None:
        with storage.write() as unit:
            unit.sessions.add(a_session())
            assert unit.sessions.get(TOKEN_ID) == a_session()

    def test_others_do_not_see_what_is_not_committed(self, storage: Storage) -> None:
        def read_session() -> CardSession | None:
            with storage.read() as unit:
                return unit.sessions.get(TOKEN_ID)

        with storage.write() as unit:
            unit.sessions.add(a_session())
            assert elsewhere(read_session) is None
            unit.commit()
        assert elsewhere(read_session) == a_session()

    def test_a_read_unit_sees_one_state_throughout(self, storage: Storage) -> None:
        with storage.read() as unit:
            assert unit.sessions.get(TOKEN_ID) is None
            elsewhere(lambda: put_sessions(storage, a_session()))
            assert unit.sessions.get(TOKEN_ID) is None
        with storage.read() as unit:
            assert unit.sessions.get(TOKEN_ID) == a_session()

    def test_a_read_unit_refuses_to_write(self, storage: Storage) -> None:
        with pytest.raises(RuntimeError, match="may not write"), storage.read() as unit:
            unit.sessions.add(a_session())
        with storage.read() as unit:
            assert unit.sessions.get(TOKEN_ID) is None

    def test_a_write_unit_refuses_to_write_after_its_commit(self, storage: Storage) -> None:
        with storage.write() as unit:
            unit.commit()
            with pytest.raises(Exception):  # noqa: B017, PT011 - each database has its own error
                unit.sessions.add(a_session())
        with storage.read() as reading:
            assert reading.sessions.get(TOKEN_ID) is None

    @pytest.mark.parametrize("committed", [True, False])
    def test_a_unit_that_is_over_refuses_to_write(self, storage: Storage, committed: bool) -> None:
        with storage.write() as unit:
            if committed:
                unit.commit()
        with pytest.raises(Exception):  # noqa: B017, PT011 - each database has its own error
            unit.sessions.add(a_session())
        with storage.read() as reading:
            assert reading.sessions.get(TOKEN_ID) is None

    def test_units_do_not_nest(self, storage: Storage) -> None:
        for outer, inner in (
            (storage.read, storage.read),
            (storage.read, storage.write),
            (storage.write, storage.read),
            (storage.write, storage.write),
        ):
            with outer(), pytest.raises(RuntimeError, match="do not nest"), inner():
                pass

    def test_a_unit_works_after_one_that_was_refused(self, storage: Storage) -> None:
        with storage.read(), pytest.raises(RuntimeError, match="do not nest"), storage.write():
            pass
        put_sessions(storage, a_session())

    def test_write_units_take_turns(self, storage: Storage) -> None:
        put_sessions(storage, a_session(expires_at=NOW))

        def count_up(_: int) -> None:
            for _again in range(10):
                with storage.write() as unit:
                    session = unit.sessions.get(TOKEN_ID)
                    assert session is not None
                    later = session.expires_at + timedelta(microseconds=1)
                    unit.sessions.update(replace(session, expires_at=later))
                    unit.commit()

        at_once(8, count_up)
        with storage.read() as unit:
            session = unit.sessions.get(TOKEN_ID)
        assert session is not None
        assert session.expires_at == NOW + timedelta(microseconds=80)

    def test_a_storage_that_works_passes_its_check_and_is_left_free(self, storage: Storage) -> None:
        storage.check()
        storage.check()
        put_sessions(storage, a_session())

    def test_a_storage_that_was_closed_opens_again(self, storage: Storage) -> None:
        storage.close()
        put_sessions(storage, a_session())
        at_once(4, lambda _: read_session(storage))
        storage.close()
        storage.close()
        assert read_session(storage) == a_session()


class TestTransact:
    def test_it_gives_what_the_work_gives_and_keeps_what_it_committed(
        self, storage: Storage
    ) -> None:
        def add(unit: WriteUnit) -> str:
            unit.sessions.add(a_session())
            unit.commit()
            return "added"

        assert storage.transact(add) == "added"
        assert read_session(storage) == a_session()

    def test_work_that_does_not_commit_is_undone(self, storage: Storage) -> None:
        storage.transact(lambda unit: unit.sessions.add(a_session()))
        assert read_session(storage) is None

    def test_an_error_undoes_everything_and_passes_through_at_once(self, storage: Storage) -> None:
        calls = []

        def add_and_fail(unit: WriteUnit) -> None:
            calls.append(unit)
            unit.sessions.add(a_session())
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            storage.transact(add_and_fail)
        assert len(calls) == 1
        assert read_session(storage) is None

    def test_it_does_not_nest(self, storage: Storage) -> None:
        def nothing(_: WriteUnit) -> None:
            pass

        def read_within(_: WriteUnit) -> None:
            with storage.read():
                pass

        for outer in (storage.read, storage.write):
            with outer(), pytest.raises(RuntimeError, match="do not nest"):
                storage.transact(nothing)
        for work in (read_within, lambda _: storage.transact(nothing)):
            with pytest.raises(RuntimeError, match="do not nest"):
                storage.transact(work)
        storage.transact(nothing)


class TestCentersAndGuests:
    def test_a_center_comes_back_as_it_was_stored(self, storage: Storage) -> None:
        put(storage, lambda unit: unit.centers.put_many([a_center()]))
        with storage.read() as unit:
            assert unit.centers.get(CENTER_ID) == a_center()
            assert unit.centers.get(OTHER_CENTER_ID) is None

    def test_a_guest_comes_back_as_it_was_stored(self, storage: Storage) -> None:
        nameless = a_guest(id=OTHER_GUEST_ID, first_name="", email=None)
        put(storage, lambda unit: unit.guests.put_many([a_guest(), nameless]))
        with storage.read() as unit:
            assert unit.guests.get(GUEST_ID) == a_guest()
            assert unit.guests.get(OTHER_GUEST_ID) == nameless

    def test_storing_again_updates(self, storage: Storage) -> None:
        put(storage, lambda unit: unit.guests.put_many([a_guest()]))
        put(storage, lambda unit: unit.guests.put_many([a_guest(last_name="Ríos", email=None)]))
        with storage.read() as unit:
            assert unit.guests.get(GUEST_ID) == a_guest(last_name="Ríos", email=None)

    def test_two_imports_in_one_unit_may_hold_the_same_guest(self, storage: Storage) -> None:
        with storage.write() as unit:
            unit.guests.put_many([a_guest()])
            unit.guests.put_many([a_guest(last_name="Ríos")])
            assert unit.guests.get(GUEST_ID) == a_guest(last_name="Ríos")

    def test_an_id_given_twice_is_named_and_nothing_stays(self, storage: Storage) -> None:
        guests = [a_guest(), a_guest(id=OTHER_GUEST_ID), a_guest(last_name="Ríos")]
        with pytest.raises(DuplicateInImport) as refused, storage.write() as unit:
            unit.guests.put_many(guests)
        assert refused.value.index == 2
        with storage.read() as reading:
            assert reading.guests.get(GUEST_ID) is None
        put(storage, lambda unit: unit.guests.put_many(guests[:2]))

    def test_a_center_given_twice_is_named(self, storage: Storage) -> None:
        with pytest.raises(DuplicateInImport) as refused, storage.write() as unit:
            unit.centers.put_many([a_center(), a_center()])
        assert refused.value.index == 1

    def test_an_id_that_was_there_before_and_comes_twice_is_named(self, storage: Storage) -> None:
        put(storage, lambda unit: unit.guests.put_many([a_guest()]))
        with pytest.raises(DuplicateInImport) as refused, storage.write() as unit:
            unit.guests.put_many([a_guest(), a_guest()])
        assert refused.value.index == 1

    def test_what_the_source_of_an_import_raises_passes_through(self, storage: Storage) -> None:
        def guests() -> Iterator[Guest]:
            yield a_guest()
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError), storage.write() as unit:
            unit.guests.put_many(guests())
        with storage.read() as reading:
            assert reading.guests.get(GUEST_ID) is None

    def test_nothing_may_be_imported(self, storage: Storage) -> None:
        nothing: list[Center] = []
        put(storage, lambda unit: unit.centers.put_many(nothing))


class TestProducts:
    def test_a_product_comes_back_as_it_was_stored(self, storage: Storage) -> None:
        product = a_product(description="", amount=Decimal("0.10"))
        put_products(storage, product)
        assert products_of(storage) == (product,)
        assert str(products_of(storage)[0].amount) == "0.10"

    def test_pages_are_in_the_order_of_creation(self, storage: Storage) -> None:
        numbers = [7, 3, 9, 1, 5]
        put_products(storage, *map(a_product, numbers))
        put_products(storage, *map(a_product, [8, 2]))
        pages = [products_of(storage, page=page, size=3) for page in (1, 2, 3, 4)]
        assert pages == [
            (a_product(7), a_product(3), a_product(9)),
            (a_product(1), a_product(5), a_product(8)),
            (a_product(2),),
            (),
        ]

    def test_centers_have_pages_of_their_own(self, storage: Storage) -> None:
        elsewhere_sold = a_product(2, center_id=OTHER_CENTER_ID)
        put_products(storage, a_product(1), elsewhere_sold, a_product(3))
        assert products_of(storage) == (a_product(1), a_product(3))
        assert products_of(storage, OTHER_CENTER_ID, size=1) == (elsewhere_sold,)

    @pytest.mark.parametrize(
        "page", [1, 2, 3, 2**63, 10**4000], ids=["1", "2", "3", "far", "farther"]
    )
    def test_the_total_is_true_on_every_page(self, storage: Storage, page: int) -> None:
        put_products(storage, *map(a_product, range(3)))
        request = PageRequest(page=page, size=2)
        with storage.read() as unit:
            found = unit.products.page(CENTER_ID, request)
        assert found.total == 3
        assert len(found.items) == {1: 2, 2: 1}.get(page, 0)
        assert found.request == request

    def test_a_center_without_products_has_an_empty_page(self, storage: Storage) -> None:
        with storage.read() as unit:
            found = unit.products.page(CENTER_ID, PageRequest())
        assert (found.items, found.total) == ((), 0)

    def test_an_update_keeps_the_place(self, storage: Storage) -> None:
        put_products(storage, a_product(1), a_product(2), a_product(3))
        renamed = a_product(2, name="Sauna", amount=Decimal(9))
        put_products(storage, a_product(4), renamed)
        assert products_of(storage) == (a_product(1), renamed, a_product(3), a_product(4))

    def test_updates_leave_no_gap_between_places(self, storage: Storage) -> None:
        put_products(storage, a_product(1), a_product(2))
        put_products(storage, a_product(1), a_product(3), a_product(2), a_product(4))
        assert products_of(storage, page=2, size=2) == (a_product(3), a_product(4))

    def test_an_id_given_twice_is_named_and_nothing_stays(self, storage: Storage) -> None:
        with pytest.raises(DuplicateInImport) as refused:
            put_products(storage, a_product(1), a_product(2), a_product(1, name="Sauna"))
        assert refused.value.index == 2
        assert products_of(storage) == ()

    def test_an_id_given_twice_for_two_centers_is_named(self, storage: Storage) -> None:
        with pytest.raises(DuplicateInImport) as refused:
            put_products(storage, a_product(1), a_product(1, center_id=OTHER_CENTER_ID))
        assert refused.value.index == 1

    def test_an_unknown_center_is_named_and_nothing_stays(self, storage: Storage) -> None:
        nowhere = a_product(2, center_id=CenterId(a_uuid(404)))
        with pytest.raises(UnknownCenterInImport) as refused:
            put_products(storage, a_product(1), nowhere)
        assert refused.value.index == 1
        assert products_of(storage) == ()

    def test_a_product_of_another_center_is_named_and_nothing_stays(self, storage: Storage) -> None:
        put_products(storage, a_product(1))
        moved = a_product(1, center_id=OTHER_CENTER_ID)
        with pytest.raises(CenterChangedInImport) as refused:
            put_products(storage, a_product(2), moved)
        assert refused.value.index == 1
        assert products_of(storage) == (a_product(1),)
        assert products_of(storage, OTHER_CENTER_ID) == ()

    def test_an_import_that_is_not_committed_leaves_nothing(self, storage: Storage) -> None:
        put_products(storage, a_product(1))
        with storage.write() as unit:
            unit.products.put_many([a_product(1, name="Sauna"), a_product(2)])
        assert products_of(storage) == (a_product(1),)
        put_products(storage, a_product(3))
        assert products_of(storage) == (a_product(1), a_product(3))

    def test_pages_stay_full_and_in_order_under_concurrent_imports(self, storage: Storage) -> None:
        put_products(storage, a_product(0))
        importers, imports, of_each = 4, 4, 10
        importing = set(range(1, importers + 1))

        def import_some(importer: int) -> None:
            for number in range(imports):
                first = (importer * imports + number) * of_each
                # Some of them are there already, and keep their places.
                numbers = dict.fromkeys([0, *range(first, first + of_each), first - 1])
                with storage.write() as unit:
                    unit.products.put_many(map(a_product, numbers))
                    unit.commit()

        def read_all() -> None:
            seen: list[Product] = []
            while importing:
                products, _ = product_pages(storage, size=7)
                assert products[: len(seen)] == seen
                seen = products

        def import_or_read(number: int) -> None:
            if number == 0:
                read_all()
                return
            try:
                import_some(number)
            finally:
                importing.remove(number)

        at_once(importers + 1, import_or_read)

        products, total = product_pages(storage, size=7)
        lowest, highest = imports * of_each, (importers + 1) * imports * of_each
        numbers = {0, lowest - 1, *range(lowest, highest)}
        assert total == len(products) == len(numbers)
        assert set(products) == set(map(a_product, numbers))

    def test_imports_and_sessions_do_not_disturb_each_other(self, storage: Storage) -> None:
        guests = [a_guest(id=GuestId(a_uuid(number))) for number in range(200)]
        put_products(storage)

        def import_or_add(number: int) -> None:
            for again in range(5):
                if number == 0:
                    put(storage, lambda unit: unit.guests.put_many(guests))
                elif number == 1:
                    with storage.write() as unit:
                        unit.products.put_many(
                            map(a_product, range(100 * again, 100 * again + 100))
                        )
                        unit.commit()
                else:
                    session = a_session(token_id=TokenId(a_uuid(number * 10 + again)), due_at=NOW)
                    put_sessions(storage, session)

        at_once(6, import_or_add)

        assert product_pages(storage, size=100)[1] == 500
        with storage.write() as unit:
            assert unit.guests.get(GuestId(a_uuid(199))) is not None
            for _ in range(4 * 5):
                assert unit.sessions.take_due(NOW, until=NOW + MINUTE) is not None
            assert unit.sessions.take_due(NOW, until=NOW + MINUTE) is None


class TestPaymentConfigurations:
    def test_a_configuration_comes_back_as_it_was_stored(self, storage: Storage) -> None:
        put(storage, lambda unit: unit.configurations.put(CENTER_ID, a_configuration()))
        with storage.read() as unit:
            assert unit.configurations.get(CENTER_ID) == a_configuration()
            assert unit.configurations.get(OTHER_CENTER_ID) is None

    def test_the_last_one_put_counts(self, storage: Storage) -> None:
        changed = a_configuration(
            avs=False, cards_per_guest=CardsPerGuest.ONE, redirect_origins=(), session_minutes=1440
        )
        put(
            storage,
            lambda unit: unit.configurations.put(CENTER_ID, a_configuration()),
            lambda unit: unit.configurations.put(CENTER_ID, changed),
        )
        with storage.read() as unit:
            assert unit.configurations.get(CENTER_ID) == changed

    def test_it_may_be_removed_more_than_once(self, storage: Storage) -> None:
        put(storage, lambda unit: unit.configurations.put(CENTER_ID, a_configuration()))
        put(storage, lambda unit: unit.configurations.remove(CENTER_ID))
        put(storage, lambda unit: unit.configurations.remove(CENTER_ID))
        with storage.read() as unit:
            assert unit.configurations.get(CENTER_ID) is None

    def test_the_merchant_accounts_of_all_centers_are_named(self, storage: Storage) -> None:
        accounts = [("fake", "main"), ("stripe", "main"), ("stripe", "harbor"), ("fake", "main")]
        with storage.write() as unit:
            assert unit.configurations.merchant_accounts() == frozenset()
            for number, (provider, account) in enumerate(accounts):
                configuration = a_configuration(
                    provider=ProviderName(provider), merchant_account=MerchantAccount(account)
                )
                unit.configurations.put(CenterId(a_uuid(number)), configuration)
            assert unit.configurations.merchant_accounts() == set(accounts)


class TestCardSessions:
    @pytest.mark.parametrize(
        "session",
        [
            a_session(),
            a_session(billing_info=None, due_at=None),
            a_session(
                status=SessionStatus.FAILED,
                attempt=an_attempt(over=True),
                unanswered_since=NOW - DAY,
                failure=Failure(code=400, message="Payment method already exists"),
                ended_at=NOW.replace(microsecond=0),
            ),
            a_session(status=SessionStatus.COMPLETED, account_id=AccountId(a_uuid(101))),
        ],
        ids=["new", "bare", "failed", "completed"],
    )
    def test_a_session_comes_back_as_it_was_stored(
        self, storage: Storage, session: CardSession
    ) -> None:
        put_sessions(storage, session)
        with storage.read() as unit:
            assert unit.sessions.get(TOKEN_ID) == session

    def test_an_update_replaces_every_field(self, storage: Storage) -> None:
        changed = a_session(attempt=an_attempt()).completed(AccountId(a_uuid(101)), NOW)
        put_sessions(storage, a_session())
        put(storage, lambda unit: unit.sessions.update(changed))
        with storage.read() as unit:
            assert unit.sessions.get(TOKEN_ID) == changed

    def test_an_update_of_one_session_leaves_the_others(self, storage: Storage) -> None:
        other = a_session(token_id=TokenId(a_uuid(22)))
        put_sessions(storage, a_session(), other)
        put(storage, lambda unit: unit.sessions.update(a_session().without_card(NOW + DAY)))
        with storage.read() as unit:
            assert unit.sessions.get(other.token_id) == other

    def test_a_session_outlives_its_guest_and_center(self, storage: Storage) -> None:
        put_sessions(storage, a_session())
        with storage.read() as unit:
            assert unit.guests.get(GUEST_ID) is None
            assert unit.sessions.get(TOKEN_ID) is not None

    def test_a_session_is_found_by_its_current_page(self, storage: Storage) -> None:
        session = a_session(attempt=an_attempt())
        put_sessions(storage, session, a_session(token_id=TokenId(a_uuid(22))))
        with storage.read() as unit:
            assert unit.sessions.with_page(PROVIDER, MERCHANT_ACCOUNT, "page-1") == session
            assert unit.sessions.with_page(PROVIDER, MERCHANT_ACCOUNT, "page-2") is None

    def test_a_page_of_another_merchant_account_finds_nothing(self, storage: Storage) -> None:
        put_sessions(storage, a_session(attempt=an_attempt()))
        with storage.read() as unit:
            assert unit.sessions.with_page(PROVIDER, MerchantAccount("other"), "page-1") is None
            assert (
                unit.sessions.with_page(ProviderName("other"), MERCHANT_ACCOUNT, "page-1") is None
            )

    def test_the_same_reference_at_two_merchant_accounts_is_told_apart(
        self, storage: Storage
    ) -> None:
        other = MerchantAccount("other")
        session = a_session(
            token_id=TokenId(a_uuid(22)),
            configuration=a_configuration(merchant_account=other),
            attempt=an_attempt(request=a_page_request(merchant_account=other)),
        )
        put_sessions(storage, a_session(attempt=an_attempt()), session)
        with storage.read() as unit:
            assert unit.sessions.with_page(PROVIDER, other, "page-1") == session

    def test_a_page_of_an_earlier_attempt_finds_nothing(self, storage: Storage) -> None:
        put_sessions(storage, a_session(attempt=an_attempt()))
        next_one = an_attempt(page=a_page(reference="page-2"))
        put(storage, lambda unit: unit.sessions.update(a_session(attempt=next_one)))
        with storage.read() as unit:
            assert unit.sessions.with_page(PROVIDER, MERCHANT_ACCOUNT, "page-1") is None
            assert unit.sessions.with_page(PROVIDER, MERCHANT_ACCOUNT, "page-2") is not None

    def test_sessions_are_taken_in_the_order_in_which_they_became_due(
        self, storage: Storage
    ) -> None:
        waits = {2: timedelta(0), 0: -MINUTE, 1: timedelta(microseconds=-1)}
        put_sessions(
            storage,
            *(
                a_session(token_id=TokenId(a_uuid(30 + place)), due_at=NOW + wait)
                for place, wait in waits.items()
            ),
            a_session(token_id=TokenId(a_uuid(40)), due_at=NOW + timedelta(microseconds=1)),
            a_session(token_id=TokenId(a_uuid(41)), due_at=None),
        )
        taken = []
        with storage.write() as unit:
            while session := unit.sessions.take_due(NOW, until=NOW + MINUTE):
                taken.append(session.token_id)
            unit.commit()
        assert taken == [a_uuid(30), a_uuid(31), a_uuid(32)]

    def test_a_taken_session_is_due_again_later(self, storage: Storage) -> None:
        until = NOW + MINUTE
        put_sessions(storage, a_session(due_at=NOW))
        with storage.write() as unit:
            assert unit.sessions.take_due(NOW, until=until) == DueSession(
                TOKEN_ID, PspAccount(PROVIDER, MERCHANT_ACCOUNT)
            )
            assert unit.sessions.get(TOKEN_ID) == a_session(due_at=until)
            unit.commit()
        with storage.write() as unit:
            assert unit.sessions.take_due(until - timedelta(microseconds=1), until=NOW) is None
            assert unit.sessions.take_due(until, until=until + MINUTE) is not None

    def test_a_session_is_not_taken_without_a_commit(self, storage: Storage) -> None:
        put_sessions(storage, a_session(due_at=NOW))
        for _ in range(2):
            with storage.write() as unit:
                assert unit.sessions.take_due(NOW, until=NOW + MINUTE) is not None

    def test_those_of_some_merchant_accounts_are_left_where_they_are(
        self, storage: Storage
    ) -> None:
        at = {
            TokenId(a_uuid(30 + number)): PspAccount(
                ProviderName(provider), MerchantAccount(account)
            )
            for number, (provider, account) in enumerate(
                [("fake", "main"), ("fake", "other"), ("stripe", "main"), ("stripe", "other")]
            )
        }
        with storage.write() as unit:
            for token_id, account in at.items():
                provider, merchant_account = account
                configuration = a_configuration(
                    provider=provider, merchant_account=merchant_account
                )
                unit.sessions.add(
                    a_session(token_id=token_id, configuration=configuration, due_at=NOW)
                )
                unit.discards.add(
                    a_discard(provider=provider, merchant_account=merchant_account, due_at=NOW)
                )
            unit.commit()
        busy = {at[TokenId(a_uuid(30))], at[TokenId(a_uuid(33))]}

        sessions, discards = [], []
        with storage.write() as unit:
            while session := unit.sessions.take_due(NOW, until=NOW + MINUTE, except_at=busy):
                sessions.append(session.psp_account)
            while discard := unit.discards.take_due(NOW, until=NOW + MINUTE, except_at=busy):
                discards.append(discard.psp_account)
            unit.commit()
        assert set(sessions) == set(discards) == set(at.values()) - busy
        assert len(sessions) == len(discards) == 2
        with storage.read() as unit:
            for repository in (unit.sessions, unit.discards):
                assert repository.is_any_due(NOW)
                assert not repository.is_any_due(NOW, except_at=busy)
                assert not repository.is_any_due(NOW - MINUTE)

    def test_many_takers_at_once_get_each_session_once(self, storage: Storage) -> None:
        token_ids = [TokenId(a_uuid(number)) for number in range(300, 340)]
        put_sessions(storage, *(a_session(token_id=token_id, due_at=NOW) for token_id in token_ids))

        def take_all(_: int) -> list[TokenId]:
            taken: list[TokenId] = []
            while True:
                with storage.write() as unit:
                    session = unit.sessions.take_due(NOW, until=NOW + MINUTE)
                    unit.commit()
                if session is None:
                    return taken
                taken.append(session.token_id)

        taken = [token_id for taker in at_once(8, take_all) for token_id in taker]
        assert sorted(taken) == token_ids

    def test_a_session_that_is_being_changed_is_not_taken_as_it_was(self, storage: Storage) -> None:
        other = TokenId(a_uuid(22))
        put_sessions(storage, a_session(due_at=NOW - MINUTE), a_session(token_id=other, due_at=NOW))
        looked = Event()

        def change(unit: WriteUnit) -> None:
            session = unit.sessions.get(TOKEN_ID)
            assert session is not None
            looked.set()
            unit.sessions.update(replace(session, due_at=NOW + DAY))
            unit.commit()

        def take() -> list[TokenId | None]:
            assert looked.wait(10)
            taken = []
            for _ in range(2):
                with storage.write() as unit:
                    session = unit.sessions.take_due(NOW, until=NOW + MINUTE)
                    taken.append(None if session is None else session.token_id)
                    unit.commit()
            return taken

        def change_or_take(number: int) -> list[TokenId | None]:
            if number:
                return take()
            storage.transact(change)
            return []

        assert at_once(2, change_or_take)[1] == [other, None]
        session = read_session(storage)
        assert session is not None
        assert session.due_at == NOW + DAY

    def test_an_id_that_is_no_uuid_is_of_no_session(self, storage: Storage) -> None:
        put_sessions(storage, a_session())
        with storage.write() as unit:
            for token_id in ("", "order-7", TOKEN_ID.replace("-", ""), f"{TOKEN_ID}\x00"):
                assert unit.sessions.get(TokenId(token_id)) is None
            assert unit.sessions.get(TOKEN_ID) == a_session()


class TestEvidence:
    def test_evidence_comes_back_oldest_first(self, storage: Storage) -> None:
        late = an_evidence(content="late", received_at=NOW + MINUTE)
        early = an_evidence(content="early", origin=EvidenceOrigin.RETURN)
        put(
            storage,
            lambda unit: unit.evidence.add(TOKEN_ID, late),
            lambda unit: unit.evidence.add(TOKEN_ID, early),
            lambda unit: unit.evidence.add(TokenId(a_uuid(22)), an_evidence()),
        )
        with storage.read() as unit:
            assert list(unit.evidence.of(TOKEN_ID)) == [early, late]

    def test_a_session_without_evidence_has_none(self, storage: Storage) -> None:
        with storage.read() as unit:
            assert list(unit.evidence.of(TOKEN_ID)) == []

    def test_the_same_piece_is_kept_once_as_it_came_first(self, storage: Storage) -> None:
        put(storage, lambda unit: unit.evidence.add(TOKEN_ID, an_evidence()))
        again = an_evidence(received_at=NOW + MINUTE)
        put(storage, lambda unit: unit.evidence.add(TOKEN_ID, again))
        with storage.read() as unit:
            assert list(unit.evidence.of(TOKEN_ID)) == [an_evidence()]

    def test_what_a_browser_says_does_not_pass_for_a_webhook(self, storage: Storage) -> None:
        said = an_evidence(origin=EvidenceOrigin.RETURN)
        put(
            storage,
            lambda unit: unit.evidence.add(TOKEN_ID, said),
            lambda unit: unit.evidence.add(TOKEN_ID, an_evidence()),
        )
        with storage.read() as unit:
            assert list(unit.evidence.of(TOKEN_ID)) == [said, an_evidence()]

    def test_at_most_50_pieces_are_kept_per_session(self, storage: Storage) -> None:
        with storage.write() as unit:
            for number in range(60):
                unit.evidence.add(TOKEN_ID, an_evidence(content=str(number)))
            unit.evidence.add(TokenId(a_uuid(22)), an_evidence())
            unit.commit()
        with storage.read() as reading:
            kept = [evidence.content for evidence in reading.evidence.of(TOKEN_ID)]
            assert kept == [str(number) for number in range(50)]
            assert len(reading.evidence.of(TokenId(a_uuid(22)))) == 1


class TestIdempotencyKeys:
    OTHER = TokenId(a_uuid(22))

    def claim(self, unit: WriteUnit, token_id: TokenId, hours: int = 0) -> TokenId:
        now = NOW + timedelta(hours=hours)
        return unit.idempotency_keys.claim(CALLER, "key", token_id, now=now, since=now - DAY)

    def test_a_key_stands_for_the_session_that_claimed_it_first(self, storage: Storage) -> None:
        with storage.write() as unit:
            assert self.claim(unit, TOKEN_ID) == TOKEN_ID
            assert self.claim(unit, self.OTHER, hours=23) == TOKEN_ID
            assert unit.idempotency_keys.get(CALLER, "key", since=NOW - DAY) == TOKEN_ID

    def test_keys_of_callers_are_their_own(self, storage: Storage) -> None:
        with storage.write() as unit:
            self.claim(unit, TOKEN_ID)
            keys = unit.idempotency_keys
            assert keys.get(CallerName("kiosk"), "key", since=NOW - DAY) is None
            assert keys.get(CALLER, "KEY", since=NOW - DAY) is None

    def test_a_key_that_was_used_too_long_ago_may_be_claimed_anew(self, storage: Storage) -> None:
        with storage.write() as unit:
            self.claim(unit, TOKEN_ID)
            assert unit.idempotency_keys.get(CALLER, "key", since=NOW) is None
            assert self.claim(unit, self.OTHER, hours=24) == self.OTHER
            assert unit.idempotency_keys.get(CALLER, "key", since=NOW) == self.OTHER

    def test_a_claim_is_gone_without_a_commit(self, storage: Storage) -> None:
        with storage.write() as unit:
            self.claim(unit, TOKEN_ID)
        with storage.read() as reading:
            assert reading.idempotency_keys.get(CALLER, "key", since=NOW - DAY) is None

    def test_many_claims_at_once_have_one_winner(self, storage: Storage) -> None:
        def claim(number: int) -> TokenId:
            with storage.write() as unit:
                winner = self.claim(unit, TokenId(a_uuid(number)))
                unit.commit()
                return winner

        assert len(set(at_once(16, claim))) == 1

    def test_who_comes_second_can_read_the_session_of_the_first(self, storage: Storage) -> None:
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

        first, *others = at_once(16, add)
        assert first is not None
        assert others == [first] * 15

    def test_old_keys_are_forgotten_and_younger_ones_are_not(self, storage: Storage) -> None:
        with storage.write() as unit:
            for key, used_at in (("old", NOW - DAY), ("young", NOW)):
                unit.idempotency_keys.claim(CALLER, key, TOKEN_ID, now=used_at, since=NOW - 2 * DAY)
            assert unit.idempotency_keys.forget(before=NOW) == 1
            assert unit.idempotency_keys.forget(before=NOW) == 0
            assert unit.idempotency_keys.get(CALLER, "old", since=NOW - 2 * DAY) is None
            assert unit.idempotency_keys.get(CALLER, "young", since=NOW - 2 * DAY) == TOKEN_ID


class TestPaymentAccounts:
    def test_an_account_comes_back_as_it_was_stored(self, storage: Storage) -> None:
        removed = a_payment_account(2, removed_at=NOW)
        put_accounts(storage, a_payment_account(1), removed)
        with storage.read() as unit:
            assert unit.accounts.get(a_payment_account(1).account_id) == a_payment_account(1)
            assert unit.accounts.get(removed.account_id) == removed
            assert unit.accounts.get(AccountId(a_uuid(404))) is None

    def test_an_update_replaces_every_field(self, storage: Storage) -> None:
        renewed = a_payment_account(token=CardToken("new"), expiry_year=2035, removed_at=NOW)
        put_accounts(storage, a_payment_account())
        put(storage, lambda unit: unit.accounts.update(renewed))
        with storage.read() as unit:
            assert unit.accounts.get(renewed.account_id) == renewed

    def test_the_same_card_is_not_stored_twice(self, storage: Storage) -> None:
        put_accounts(storage, a_payment_account(1))
        with pytest.raises(AlreadyStored):
            put_accounts(storage, a_payment_account(2, fingerprint="fingerprint-1"))
        assert accounts_of(storage) == ([a_uuid(101)], 1)

    def test_a_session_stores_one_account_even_after_its_removal(self, storage: Storage) -> None:
        first = a_payment_account(1, removed_at=NOW)
        put_accounts(storage, first)
        with pytest.raises(AlreadyStored):
            put_accounts(storage, a_payment_account(2, token_id=first.token_id))

    def test_a_unit_goes_on_after_a_card_was_stored_already(self, storage: Storage) -> None:
        with storage.write() as unit:
            unit.accounts.add(a_payment_account(1))
            with pytest.raises(AlreadyStored):
                unit.accounts.add(a_payment_account(2, fingerprint="fingerprint-1"))
            unit.accounts.add(a_payment_account(3))
            unit.commit()
        assert accounts_of(storage) == ([a_uuid(101), a_uuid(103)], 2)

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
    def test_what_differs_in_one_point_is_another_card(
        self, storage: Storage, difference: dict[str, object]
    ) -> None:
        put_accounts(
            storage,
            a_payment_account(1),
            a_payment_account(2, **({"fingerprint": "fingerprint-1"} | difference)),
        )

    def test_a_card_may_be_stored_again_after_its_removal(self, storage: Storage) -> None:
        put_accounts(storage, a_payment_account(1))
        put(storage, lambda unit: unit.accounts.update(a_payment_account(1, removed_at=NOW)))
        put_accounts(storage, a_payment_account(2, fingerprint="fingerprint-1"))
        assert accounts_of(storage) == ([a_uuid(102)], 1)

    def test_one_card_added_many_times_at_once_is_stored_once(self, storage: Storage) -> None:
        def add(number: int) -> bool:
            try:
                put_accounts(storage, a_payment_account(number, fingerprint="the same"))
            except AlreadyStored:
                return False
            return True

        assert at_once(8, add).count(True) == 1
        assert accounts_of(storage)[1] == 1

    def test_the_active_accounts_at_a_center_come_oldest_first(self, storage: Storage) -> None:
        put_accounts(
            storage,
            a_payment_account(3),
            a_payment_account(1),
            a_payment_account(4, removed_at=NOW),
            a_payment_account(5, center_id=OTHER_CENTER_ID),
            a_payment_account(6, guest_id=OTHER_GUEST_ID),
        )
        with storage.read() as unit:
            active = list(unit.accounts.active_at(GUEST_ID, CENTER_ID))
        assert active == [a_payment_account(3), a_payment_account(1)]

    def test_a_token_is_held_while_its_account_is_active(self, storage: Storage) -> None:
        put_accounts(storage, a_payment_account(1), a_payment_account(2, removed_at=NOW))
        with storage.read() as unit:
            held = unit.accounts.is_held
            assert held(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-1"))
            assert not held(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-2"))
            assert not held(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-3"))
            assert not held(PROVIDER, MerchantAccount("other"), CardToken("token-1"))
            assert not held(ProviderName("other"), MERCHANT_ACCOUNT, CardToken("token-1"))

    def test_pages_are_in_the_order_of_creation(self, storage: Storage) -> None:
        put_accounts(
            storage,
            *map(a_payment_account, [5, 3]),
            a_payment_account(9, removed_at=NOW),
            a_payment_account(8, guest_id=OTHER_GUEST_ID),
            a_payment_account(4),
        )
        assert accounts_of(storage, size=2) == ([a_uuid(105), a_uuid(103)], 3)
        assert accounts_of(storage, page=2, size=2) == ([a_uuid(104)], 3)

    @pytest.mark.parametrize("page", [2, 2**63, 10**4000], ids=["next", "far", "farther"])
    def test_a_page_past_the_end_is_empty_with_the_true_total(
        self, storage: Storage, page: int
    ) -> None:
        put_accounts(storage, a_payment_account())
        assert accounts_of(storage, page=page) == ([], 1)

    def test_accounts_of_other_centers_are_neither_shown_nor_counted(
        self, storage: Storage
    ) -> None:
        put_accounts(storage, a_payment_account(1), a_payment_account(2, center_id=OTHER_CENTER_ID))
        both = frozenset({CENTER_ID, OTHER_CENTER_ID})
        assert accounts_of(storage, frozenset({CENTER_ID})) == ([a_uuid(101)], 1)
        assert accounts_of(storage, both) == ([a_uuid(101), a_uuid(102)], 2)
        assert accounts_of(storage, frozenset()) == ([], 0)

    def test_a_caller_may_see_a_great_many_centers(self, storage: Storage) -> None:
        put_accounts(storage, a_payment_account(1))
        centers = frozenset(CenterId(a_uuid(number)) for number in range(40_000))
        assert accounts_of(storage, centers) == ([a_uuid(101)], 1)


class TestGuestReferences:
    def test_the_last_reference_kept_stays(self, storage: Storage) -> None:
        with storage.write() as unit:
            for reference in ("first", "second"):
                unit.guest_references.keep(
                    PROVIDER, MERCHANT_ACCOUNT, GUEST_ID, GuestReference(reference)
                )
            assert unit.guest_references.get(PROVIDER, MERCHANT_ACCOUNT, GUEST_ID) == "second"

    @pytest.mark.parametrize(
        ("provider", "merchant_account", "guest_id"),
        [
            (ProviderName("other"), MERCHANT_ACCOUNT, GUEST_ID),
            (PROVIDER, MerchantAccount("other"), GUEST_ID),
            (PROVIDER, MERCHANT_ACCOUNT, OTHER_GUEST_ID),
        ],
    )
    def test_a_reference_is_known_nowhere_else(
        self,
        storage: Storage,
        provider: ProviderName,
        merchant_account: MerchantAccount,
        guest_id: GuestId,
    ) -> None:
        with storage.write() as unit:
            unit.guest_references.keep(
                PROVIDER, MERCHANT_ACCOUNT, GUEST_ID, GuestReference("first")
            )
            assert unit.guest_references.get(provider, merchant_account, guest_id) is None


class TestMerchantIdentities:
    def test_the_first_one_claimed_stays(self, storage: Storage) -> None:
        for identity in ("acct_1 test", "acct_2 test", "acct_1 test"):
            with storage.write() as unit:
                kept = unit.merchant_identities.claim(PROVIDER, MERCHANT_ACCOUNT, identity)
                unit.commit()
            assert kept == "acct_1 test"
        with storage.read() as unit:
            assert unit.merchant_identities.get(PROVIDER, MERCHANT_ACCOUNT) == "acct_1 test"

    @pytest.mark.parametrize(
        ("provider", "merchant_account"),
        [(ProviderName("other"), MERCHANT_ACCOUNT), (PROVIDER, MerchantAccount("other"))],
    )
    def test_one_is_known_nowhere_else(
        self, storage: Storage, provider: ProviderName, merchant_account: MerchantAccount
    ) -> None:
        with storage.write() as unit:
            unit.merchant_identities.claim(PROVIDER, MERCHANT_ACCOUNT, "acct_1 test")
            assert unit.merchant_identities.get(provider, merchant_account) is None
            assert unit.merchant_identities.claim(provider, merchant_account, "acct_2") == "acct_2"

    def test_of_many_that_are_claimed_at_once_one_stays(self, storage: Storage) -> None:
        def claim(number: int) -> str:
            def work(unit: WriteUnit) -> str:
                kept = unit.merchant_identities.claim(
                    PROVIDER, MERCHANT_ACCOUNT, f"acct_{number} test"
                )
                unit.commit()
                return kept

            return storage.transact(work)

        assert len(set(at_once(8, claim))) == 1


class TestDiscards:
    def test_a_discard_is_written_down_once(self, storage: Storage) -> None:
        begun = a_discard(begun_at=NOW, unanswered_since=NOW, due_at=NOW + DAY)
        with storage.write() as unit:
            unit.discards.add(begun)
            unit.discards.add(a_discard())
            assert unit.discards.get(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-1")) == begun

    def test_an_update_replaces_every_field_but_the_token(self, storage: Storage) -> None:
        changed = a_discard(
            guest_reference=GuestReference("other"),
            begun_at=NOW,
            unanswered_since=NOW,
            due_at=NOW + DAY,
        )
        with storage.write() as unit:
            unit.discards.add(a_discard())
            unit.discards.update(changed)
            assert unit.discards.get(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-1")) == changed

    def test_an_update_does_not_bring_back_what_was_struck_out(self, storage: Storage) -> None:
        with storage.write() as unit:
            unit.discards.add(a_discard())
            unit.discards.remove(a_discard())
            unit.discards.update(a_discard(begun_at=NOW))
            assert unit.discards.get(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-1")) is None

    def test_striking_out_leaves_other_tokens_and_may_be_repeated(self, storage: Storage) -> None:
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
            left = [
                unit.discards.get(each.provider, each.merchant_account, each.token)
                for each in [a_discard(), *others]
            ]
        assert left == [None, *others]

    def test_one_that_is_done_stays_and_is_never_due(self, storage: Storage) -> None:
        done = a_discard().done(NOW)
        with storage.write() as unit:
            unit.discards.add(a_discard())
            unit.discards.update(done)
            assert unit.discards.get(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-1")) == done
            assert unit.discards.take_due(NOW + DAY, until=NOW + 2 * DAY) is None

    def test_discards_are_taken_in_the_order_in_which_they_became_due(
        self, storage: Storage
    ) -> None:
        waits = {"b": timedelta(0), "a": -MINUTE, "not yet": timedelta(microseconds=1)}
        until = NOW + MINUTE
        taken: list[Discard] = []
        with storage.write() as unit:
            for token, wait in waits.items():
                unit.discards.add(a_discard(token=CardToken(token), due_at=NOW + wait))
            while discard := unit.discards.take_due(NOW, until=until):
                taken.append(discard)
        assert taken == [a_discard(token=CardToken(token), due_at=until) for token in "ab"]

    def test_many_takers_at_once_get_each_discard_once(self, storage: Storage) -> None:
        tokens = [CardToken(f"token-{number}") for number in range(10, 34)]
        with storage.write() as unit:
            for token in tokens:
                unit.discards.add(a_discard(token=token))
            unit.commit()

        def take_three(_: int) -> list[CardToken]:
            taken = []
            for _again in range(3):
                with storage.write() as unit:
                    discard = unit.discards.take_due(NOW, until=NOW + MINUTE)
                    unit.commit()
                assert discard is not None
                taken.append(discard.token)
            return taken

        assert sorted(token for taker in at_once(8, take_three) for token in taker) == tokens

    def test_a_discard_is_not_taken_without_a_commit(self, storage: Storage) -> None:
        put(storage, lambda unit: unit.discards.add(a_discard()))
        for _ in range(2):
            with storage.write() as unit:
                assert unit.discards.take_due(NOW, until=NOW + MINUTE) is not None


class TestLookingBeforeWriting:
    """What is looked up in a write unit in order to be changed stays so until its end."""

    @pytest.mark.parametrize(
        "look",
        [
            lambda unit: unit.sessions.get(TOKEN_ID),
            lambda unit: unit.sessions.with_page(PROVIDER, MERCHANT_ACCOUNT, "page-1"),
        ],
        ids=["get", "with_page"],
    )
    def test_no_change_of_a_session_is_lost(
        self, storage: Storage, look: Callable[[WriteUnit], CardSession]
    ) -> None:
        put_sessions(storage, a_session(attempt=an_attempt(), expires_at=NOW))

        def count_up(unit: WriteUnit) -> None:
            session = look(unit)
            later = session.expires_at + timedelta(microseconds=1)
            unit.sessions.update(replace(session, expires_at=later))
            unit.commit()

        at_once(8, lambda _: [storage.transact(count_up) for _again in range(5)])
        session = read_session(storage)
        assert session is not None
        assert session.expires_at == NOW + timedelta(microseconds=40)

    @pytest.mark.parametrize(
        "look",
        [
            lambda unit: unit.accounts.get(AccountId(a_uuid(101))),
            lambda unit: unit.accounts.active_at(GUEST_ID, CENTER_ID)[0],
        ],
        ids=["get", "active_at"],
    )
    def test_no_change_of_an_account_is_lost(
        self, storage: Storage, look: Callable[[WriteUnit], PaymentAccount]
    ) -> None:
        put_accounts(storage, a_payment_account(1, expiry_year=2000))

        def count_up(unit: WriteUnit) -> None:
            account = look(unit)
            unit.accounts.update(replace(account, expiry_year=account.expiry_year + 1))
            unit.commit()

        at_once(8, lambda _: [storage.transact(count_up) for _again in range(5)])
        with storage.read() as unit:
            account = unit.accounts.get(AccountId(a_uuid(101)))
        assert account is not None
        assert account.expiry_year == 2040

    def test_no_change_of_a_discard_is_lost(self, storage: Storage) -> None:
        put(storage, lambda unit: unit.discards.add(a_discard()))

        def count_up(unit: WriteUnit) -> None:
            discard = unit.discards.get(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-1"))
            assert discard is not None
            assert discard.due_at is not None
            later = discard.due_at + timedelta(microseconds=1)
            unit.discards.update(replace(discard, due_at=later))
            unit.commit()

        at_once(8, lambda _: [storage.transact(count_up) for _again in range(5)])
        with storage.read() as unit:
            counted = unit.discards.get(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-1"))
        assert counted == a_discard(due_at=NOW + timedelta(microseconds=40))

    @pytest.mark.parametrize(
        "look",
        [
            lambda unit, account: unit.accounts.get(account.account_id),
            lambda unit, _: next(iter(unit.accounts.active_at(GUEST_ID, CENTER_ID)), None),
        ],
        ids=["get", "active_at"],
    )
    def test_a_removal_is_not_undone(
        self,
        storage: Storage,
        look: Callable[[WriteUnit, PaymentAccount], PaymentAccount | None],
    ) -> None:
        def remove(removed: PaymentAccount, unit: WriteUnit) -> None:
            account = unit.accounts.get(removed.account_id)
            assert account is not None
            unit.accounts.update(replace(account, removed_at=NOW))
            unit.commit()

        def renew(renewed: PaymentAccount, unit: WriteUnit) -> None:
            account = look(unit, renewed)
            if account is not None and account.removed_at is None:
                unit.accounts.update(replace(account, expiry_year=2040))
                unit.commit()

        def change(account: PaymentAccount, each: int) -> None:
            storage.transact(partial(renew if each else remove, account))

        for number in range(10):
            account = a_payment_account(number)
            put_accounts(storage, account)
            at_once(4, partial(change, account))
            assert accounts_of(storage) == ([], 0)

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

    def test_accounts_are_listed_in_an_order_that_never_changes(self, storage: Storage) -> None:
        adding = set(range(1, 7))

        def add_some(adder: int) -> None:
            def add(unit: WriteUnit, number: int) -> None:
                center_id = (CENTER_ID, OTHER_CENTER_ID)[adder % 2]
                unit.accounts.active_at(GUEST_ID, center_id)
                unit.accounts.add(a_payment_account(number, center_id=center_id))
                unit.commit()

            for again in range(8):
                storage.transact(partial(add, number=adder * 10 + again))

        def list_all() -> None:
            seen: list[AccountId] = []
            while adding:
                listed, _ = accounts_of(storage)
                assert listed[: len(seen)] == seen
                seen = listed

        def add_or_list(number: int) -> None:
            if number == 0:
                list_all()
                return
            try:
                add_some(number)
            finally:
                adding.remove(number)

        at_once(7, add_or_list)
        assert accounts_of(storage)[1] == 6 * 8

    def test_no_more_evidence_is_kept_than_promised(self, storage: Storage) -> None:
        def add_ten(number: int) -> None:
            def add(unit: WriteUnit, content: str) -> None:
                unit.evidence.add(TOKEN_ID, an_evidence(content=content))
                unit.commit()

            for again in range(10):
                storage.transact(partial(add, content=f"{number}-{again}"))

        at_once(8, add_ten)
        with storage.read() as unit:
            assert len(unit.evidence.of(TOKEN_ID)) == 50


class TestAccessTokens:
    def test_a_token_comes_back_as_it_was_stored(self, storage: Storage) -> None:
        unlimited = an_access_token(token_hash="other", caller=a_caller(centers=None))
        limited_to_nothing = an_access_token(
            token_hash="none", caller=a_caller(centers=frozenset(), permissions=frozenset())
        )
        tokens = [an_access_token(), unlimited, limited_to_nothing]
        with storage.write() as unit:
            for token in tokens:
                unit.access_tokens.add(token)
            unit.commit()
        with storage.read() as reading:
            assert [reading.access_tokens.get(token.token_hash) for token in tokens] == tokens
            assert reading.access_tokens.get("unknown") is None

    def test_all_tokens_come_oldest_first(self, storage: Storage) -> None:
        late = an_access_token(token_hash="a", issued_at=NOW + MINUTE)
        with storage.write() as unit:
            unit.access_tokens.add(late)
            unit.access_tokens.add(an_access_token())
            assert list(unit.access_tokens.all()) == [an_access_token(), late]

    def test_an_update_replaces_every_field(self, storage: Storage) -> None:
        revoked = an_access_token(revoked_at=NOW, caller=a_caller(name=CallerName("kiosk")))
        with storage.write() as unit:
            unit.access_tokens.add(an_access_token())
            unit.access_tokens.update(revoked)
            assert unit.access_tokens.get(revoked.token_hash) == revoked


class TestWorkerHeartbeats:
    def test_the_last_one_is_kept(self, storage: Storage) -> None:
        for time in (NOW, NOW + MINUTE):
            with storage.write() as unit:
                unit.worker_heartbeats.leave(time)
                unit.commit()
        with storage.read() as reading:
            assert reading.worker_heartbeats.last() == NOW + MINUTE

    def test_before_the_first_there_is_none(self, storage: Storage) -> None:
        with storage.read() as reading:
            assert reading.worker_heartbeats.last() is None


@pytest.mark.parametrize("text", AWKWARD, ids=range(len(AWKWARD)))
def test_awkward_text_comes_back_as_it_was(storage: Storage, text: str) -> None:
    guest = a_guest(first_name=text, last_name=text, email=text)
    session = a_session(redirect_uri=text, billing_info=BillingInfo(last_name=text, city=text))
    evidence = an_evidence(content=text, origin=EvidenceOrigin.RETURN)
    product = a_product(code=text, name=text, description=text)
    # No index takes a value of more than some 2,700 bytes.
    account = a_payment_account(guest_reference=text, consent_version=text, token=text[:100])
    with storage.write() as unit:
        unit.guests.put_many([guest])
        unit.centers.put_many([a_center(name=text)])
        unit.products.put_many([product])
        unit.sessions.add(session)
        unit.evidence.add(TOKEN_ID, evidence)
        unit.accounts.add(account)
        unit.commit()
    with storage.read() as reading:
        assert reading.guests.get(GUEST_ID) == guest
        assert reading.centers.get(CENTER_ID) == a_center(name=text)
        assert reading.products.page(CENTER_ID, PageRequest()).items == (product,)
        assert reading.sessions.get(TOKEN_ID) == session
        assert list(reading.evidence.of(TOKEN_ID)) == [evidence]
        assert reading.accounts.get(account.account_id) == account
