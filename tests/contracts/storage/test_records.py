from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pytest

from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import (
    GUEST_ID,
    MERCHANT_ACCOUNT,
    NOW,
    OTHER_GUEST_ID,
    TOKEN_ID,
    a_uuid,
)
from domain.agreements.agreement import EndOfAgreement
from domain.audit.entry import Actor
from domain.billing import BillingInfo
from domain.centers.payment_configuration import CardsPerGuest, GuestRemoval
from domain.events.event import ENDPOINT_TYPES
from domain.identifiers import AccountId, CardToken, GuestReference, MerchantAccount
from domain.outside import Trace
from domain.personal_data.erasure import Erasure
from domain.products.product import Product
from domain.psps.evidence import EvidenceOrigin
from domain.sessions.end import Failure, SessionStatus
from domain.sessions.polling import Progress
from domain.sessions.session import CardSession, Replacement
from domain.storage import Storage, WriteUnit
from tests.builders import (
    CENTER_ID,
    PROVIDER,
    a_caller,
    a_center,
    a_configuration,
    a_consent,
    a_consent_text,
    a_desk_link,
    a_discard,
    a_guest,
    a_page,
    a_portal_session,
    a_product,
    a_reservation_text,
    a_session,
    a_standing,
    an_access_token,
    an_account,
    an_agreement,
    an_attempt,
    an_audit_entry,
    an_event_delivery,
    an_event_endpoint,
    an_evidence,
    center_settings,
    terms_of_a_booking,
)
from tests.contracts.storage.records import ADD, AWKWARD, DAY, GET, OTHER_TOKEN_ID, UPDATE, kind
from tests.databases import committed

EAST: Final = timezone(timedelta(hours=9, minutes=30))


@pytest.mark.parametrize(
    "record",
    [
        a_center(name=AWKWARD),
        a_guest(first_name="", last_name="null", email=None, language="de"),
        a_guest(first_name=AWKWARD, last_name="x" * 1_000_000, email=" "),
        a_product(description="", amount=Decimal("0.10")),
        a_product(code=AWKWARD, amount=Decimal("12345678901234567890.123456789")),
        a_configuration(),
        a_configuration(
            avs=False,
            redirect_origins=(),
            cards_per_guest=CardsPerGuest.ONE,
            no_show_indicator=True,
            keep_after_end_days=90,
            portal_minutes=5,
            guest_removal=GuestRemoval.AFTER_AGREEMENT,
        ),
        center_settings(),
        center_settings(
            contact=AWKWARD,
            color=None,
            logo=None,
            time_zone=f"{AWKWARD}zone",
            accessibility=f"{AWKWARD}access",
        ),
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
            existing_account_id=AccountId(a_uuid(101)),
            ended_at=NOW.replace(microsecond=0),
        ),
        a_session(status=SessionStatus.COMPLETED, account_id=AccountId(a_uuid(101))),
        a_session(
            link_minutes=43_200,
            progress=Progress.CANCELLED,
            cancelled_at=NOW,
            cancelled_by=Actor(AWKWARD),
            opened_at=NOW - DAY,
            returned_at=NOW + DAY,
            locale="de-AT",
            reference="order-1",
            trace=Trace(f"{AWKWARD}trace"),
        ),
        a_session(
            agreement=terms_of_a_booking(),
            replaces=Replacement(
                account_id=AccountId(a_uuid(101)), further=(terms_of_a_booking(),)
            ),
        ),
        a_consent_text(version=AWKWARD, language=f"{AWKWARD}de", text=f"{AWKWARD}text"),
        a_reservation_text(text=AWKWARD, button=f"{AWKWARD}button"),
        an_agreement(),
        an_agreement(
            terms=terms_of_a_booking(no_show=None, cancel_by=None, description=AWKWARD),
            ended_at=NOW,
            reason=EndOfAgreement.NO_SHOW_CHARGED,
            stated_at=NOW - DAY,
        ),
        an_account(keep_until=NOW, withdrawn_at=NOW - DAY, network_transaction_id=AWKWARD),
        an_evidence(content=AWKWARD, origin=EvidenceOrigin.RETURN),
        an_account(
            removed_at=NOW,
            guest_reference=GuestReference(AWKWARD),
            token=CardToken(f"{AWKWARD}token"),
            charge_reference=f"{AWKWARD}charge",
            authenticated=False,
        ),
        an_account(
            due_at=NOW,
            asked_at=NOW + DAY,
            read_at=NOW + 2 * DAY,
            unanswered_since=NOW + 3 * DAY,
            expiry_notice_at=NOW + 4 * DAY,
            refused_since=NOW + 5 * DAY,
            refusals=3,
        ),
        a_consent(version=AWKWARD, language=f"{AWKWARD}de", text=f"{AWKWARD}text"),
        a_discard(begun_at=NOW, unanswered_since=NOW - DAY, due_at=NOW + DAY, out_of_reach=True),
        a_discard().done(NOW),
        an_event_endpoint(disabled_at=NOW, removed_at=NOW + DAY),
        an_event_endpoint(
            centers=None,
            types=ENDPOINT_TYPES,
            secrets=an_event_endpoint().secrets.rolled(AWKWARD, NOW),
        ),
        an_event_delivery().refused(AWKWARD, NOW),
        an_event_delivery(event=replace(an_event_delivery().event, card=None, reason=AWKWARD)),
        an_access_token(caller=a_caller(centers=None), revoked_at=NOW, used_at=NOW),
        an_access_token(caller=a_caller(centers=frozenset(), permissions=frozenset())),
        a_desk_link(label=AWKWARD),
        a_portal_session(return_uri=AWKWARD, locale=None, visits=()),
        a_portal_session(),
        Erasure(
            guest_id=GUEST_ID,
            erased_at=NOW,
            due_at=None,
            waits_for=(an_account().psp_account,),
            out_of_reach=(),
        ),
        a_standing(closed_at=NOW, stopped_at=NOW + DAY, confirmed_at=NOW - DAY),
        an_audit_entry(about=AWKWARD, details={AWKWARD: AWKWARD, "word": "5", "number": 5}),
    ],
    ids=kind,
)
def test_every_kind_of_record_is_read_back_unchanged(storage: Storage, record: object) -> None:
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
                card_testing_limits="center=off/9",
            ),
        ),
        (
            a_session(),
            a_session(token_id=OTHER_TOKEN_ID),
            a_session(attempt=an_attempt(page=a_page(fields={"a": "é"})), link_key=None).completed(
                AccountId(a_uuid(101)), NOW
            ),
        ),
        (
            an_account(),
            an_account(2),
            an_account(token=CardToken("new"), expiry_year=2035, removed_at=NOW),
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
        (a_standing(closed_at=NOW), None, a_standing(stopped_at=NOW)),
        (
            a_portal_session(),
            a_portal_session(2),
            a_portal_session().entered("secret", NOW),
        ),
    ],
    ids=kind,
)
def test_an_update_replaces_every_field_of_one_record_without_changing_others(
    storage: Storage, before: object, other: object, after: object
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


# Records of several types, so their types are Any.
Look = Callable[[WriteUnit], Any]


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
            an_account(),
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
        (
            a_portal_session(),
            "return_uri",
            [lambda unit: unit.portal_sessions.with_secret("hash-1")],
        ),
    ],
    ids=["session", "account", "discard", "endpoint", "delivery", "portal session"],
)
def test_concurrent_changes_to_a_record_do_not_overwrite_each_other(
    storage: Storage, record: object, field: str, looks: Sequence[Look]
) -> None:
    with committed(storage) as unit:
        ADD[kind(record)](unit, record)

    def append(look: Look, unit: WriteUnit) -> None:
        found = look(unit)
        changed = replace(found, **{field: getattr(found, field) + "+"})
        UPDATE[kind(record)](unit, changed)
        unit.commit()

    def append_some(number: int) -> None:
        for _ in range(4):
            storage.transact(partial(append, looks[number % len(looks)]))

    at_once(4, append_some)
    with storage.read() as reading:
        found = GET[kind(record)](reading, record)
    assert getattr(found, field) == getattr(record, field) + "+" * 16
