"""Each query finds only the matching records. Further queries have separate tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pytest

from adapters.psp_suite.samples import GUEST_ID, NOW, OTHER_GUEST_ID, TOKEN_ID, a_uuid
from domain.identifiers import (
    CallerName,
    CardToken,
    EndpointId,
    EventId,
    GuestId,
    GuestReference,
    LinkKey,
    MerchantAccount,
    TokenId,
)
from domain.personal_data.erasure import Erasure
from domain.sessions.earlier_page import EarlierPage
from domain.sessions.end import SessionStatus
from domain.storage import Storage, UnitOfWork
from tests.builders import (
    CALLER,
    CENTER_ID,
    OTHER_CENTER_ID,
    a_configuration,
    a_consent_text,
    a_discard,
    a_guest,
    a_portal_session,
    a_psp_guest,
    a_refused_card,
    a_session,
    an_access_token,
    an_account,
    an_agreement,
    an_attempt,
    an_audit_entry,
    an_event_delivery,
    an_evidence,
    terms_of_a_booking,
)
from tests.contracts.storage.records import DAY, MINUTE, OTHER_TOKEN_ID, add, store
from tests.databases import committed


class Query(NamedTuple):
    """A query, the records that it must find, in order, and other records.

    The records are not stored in the order of the result.
    """

    # Any: records of several types.
    found: Sequence[Any]
    others: Sequence[Any]
    query: Callable[[UnitOfWork], Iterable[Any]]


ERASURE: Final = Erasure(guest_id=GUEST_ID, erased_at=NOW, due_at=NOW)
DELIVERY, LATER_DELIVERY = (
    an_event_delivery(number, event=replace(an_event_delivery(number).event, occurred_at=at))
    for number, at in ((1, NOW), (2, NOW + MINUTE))
)
OF_ANOTHER: Final = replace(
    an_event_delivery(3),
    event=replace(
        an_event_delivery(3).event, guest_id=OTHER_GUEST_ID, token_id=TokenId(a_uuid(404))
    ),
)
DISCARD: Final = a_discard()


def a_numbered_session(number: int, **changes: Any) -> Any:  # fields of a session
    key = LinkKey(f"{number}")
    return a_session(**{"token_id": TokenId(a_uuid(500 + number)), "link_key": key} | changes)


COMPLETED: Final[dict[str, Any]] = {
    "agreement": terms_of_a_booking(),
    "status": SessionStatus.COMPLETED,
    "ended_at": NOW,
    "due_at": None,
}
LATER: Final = {"ended_at": NOW + MINUTE}
QUERIES: Final = {
    "cards whose guest withdrew the consent": Query(
        [an_account(3, withdrawn_at=NOW, removed_at=NOW)],
        [
            an_account(2, withdrawn_at=NOW),
            an_account(4, removed_at=NOW),
            an_account(5, withdrawn_at=NOW, removed_at=NOW, center_id=OTHER_CENTER_ID),
        ],
        lambda unit: unit.accounts.removed_by_guest(GUEST_ID, CENTER_ID),
    ),
    "cards that are no longer kept": Query(
        [an_account(number, keep_until=NOW - number * MINUTE) for number in (2, 1)],
        [
            an_account(3, keep_until=NOW),
            an_account(4, keep_until=NOW - DAY, removed_at=NOW),
            an_account(5),
        ],
        lambda unit: unit.accounts.due_for_removal(NOW, at_most=9),
    ),
    "discards of a guest": Query(
        [DISCARD],
        [
            a_discard(token=CardToken("theirs"), guest_reference=GuestReference("another")),
            a_discard(token=CardToken("there"), merchant_account=MerchantAccount("other")),
        ],
        lambda unit: unit.discards.of_guest(DISCARD.psp_account, DISCARD.guest_reference),
    ),
    "refused cards of a guest": Query(
        [a_refused_card(number=2), a_refused_card(refused_at=NOW + MINUTE)],
        [a_refused_card(number=3, guest_id=OTHER_GUEST_ID)],
        lambda unit: unit.refused_cards.of_guest(GUEST_ID),
    ),
    "sessions of a guest": Query(
        [a_session()],
        [a_session(token_id=OTHER_TOKEN_ID, guest_id=OTHER_GUEST_ID)],
        lambda unit: unit.sessions.of_guest(GUEST_ID),
    ),
    "sessions between two ids": Query(
        [a_numbered_session(2), a_numbered_session(3)],
        [a_numbered_session(1), a_numbered_session(4)],
        lambda unit: unit.sessions.between(a_uuid(502), a_uuid(503), limit=9),
    ),
    "open sessions of a caller": Query(
        [a_numbered_session(2)],
        [
            a_numbered_session(1, caller=CallerName("kiosk")),
            a_numbered_session(3, cancelled_at=NOW),
            a_numbered_session(4, status=SessionStatus.COMPLETED, due_at=None),
        ],
        lambda unit: map(unit.sessions.get, unit.sessions.open_of(CALLER)),
    ),
    "completed sessions without an agreement": Query(
        [a_numbered_session(1, **COMPLETED), a_numbered_session(2, **COMPLETED | LATER)],
        [
            a_numbered_session(3, **COMPLETED | {"status": SessionStatus.FAILED}),
            a_numbered_session(4, **COMPLETED | {"agreement": None}),
            a_numbered_session(5, **COMPLETED | {"ended_at": NOW - DAY}),
            a_session(**COMPLETED),
            an_agreement(),
        ],
        lambda unit: map(unit.sessions.get, unit.sessions.without_agreement(since=NOW - DAY)),
    ),
    "due agreements": Query(
        [an_agreement(number, due_at=NOW - number * MINUTE) for number in (3, 0)],
        [an_agreement(1, due_at=None), an_agreement(2, due_at=NOW + MINUTE)],
        lambda unit: unit.agreements.due(NOW, at_most=9),
    ),
    "due erasures": Query(
        [
            replace(ERASURE, guest_id=GuestId(a_uuid(902)), due_at=NOW - MINUTE),
            ERASURE,
            # A clock that was ahead has set its time.
            replace(ERASURE, guest_id=GuestId(a_uuid(901)), due_at=NOW + DAY),
        ],
        [replace(ERASURE, guest_id=GuestId(a_uuid(903)), due_at=NOW + MINUTE)],
        lambda unit: unit.erasures.due(NOW, at_most=9),
    ),
    "tokens that expire": Query(
        [
            an_access_token(token_hash=each, expires_at=NOW + wait)
            for each, wait in (("next", MINUTE), ("last", 2 * MINUTE))
        ],
        [
            an_access_token(token_hash="late", expires_at=NOW + DAY),
            an_access_token(token_hash="over", expires_at=NOW),
            an_access_token(token_hash="revoked", expires_at=NOW + MINUTE, revoked_at=NOW),
        ],
        lambda unit: unit.access_tokens.expiring(NOW, until=NOW + 2 * MINUTE),
    ),
    "portal links of a guest": Query(
        [a_portal_session(1), a_portal_session(2, created_at=NOW + MINUTE)],
        [a_portal_session(3, guest_id=OTHER_GUEST_ID)],
        lambda unit: unit.portal_sessions.of(GUEST_ID),
    ),
    "events of a guest": Query(
        [DELIVERY.event, LATER_DELIVERY.event],
        [OF_ANOTHER.event],
        lambda unit: unit.events.about_guest(GUEST_ID),
    ),
    "deliveries of a guest": Query(
        [DELIVERY, LATER_DELIVERY],
        [OF_ANOTHER],
        lambda unit: unit.event_deliveries.about_guest(GUEST_ID),
    ),
    "deliveries of a session": Query(
        [LATER_DELIVERY],
        [DELIVERY, OF_ANOTHER],
        lambda unit: unit.event_deliveries.of_session(TOKEN_ID, since=NOW + MINUTE),
    ),
    "deliveries of an event": Query(
        [DELIVERY, replace(DELIVERY, endpoint_id=EndpointId(a_uuid(401)))],
        [LATER_DELIVERY],
        lambda unit: unit.event_deliveries.of(EventId(DELIVERY.event.event_id)),
    ),
}


@pytest.mark.parametrize(("found", "others", "query"), QUERIES.values(), ids=QUERIES)
def test_a_query_returns_only_the_matching_records_in_order(
    storage: Storage,
    found: Sequence[object],
    others: Sequence[object],
    query: Callable[[UnitOfWork], Iterable[object]],
) -> None:
    store(storage, *others, *reversed(found))
    with storage.read() as unit:
        assert [*query(unit)] == found


def earlier_page(token_id: TokenId) -> EarlierPage:
    return EarlierPage.of(a_session(token_id=token_id, attempt=an_attempt()))


def test_removing_or_moving_a_record_does_not_affect_other_records(storage: Storage) -> None:
    others, elsewhere = a_guest(id=OTHER_GUEST_ID), a_psp_guest()._replace(guest_id=OTHER_GUEST_ID)
    account, their_account = an_account(2).account_id, an_account(3).account_id
    theirs = an_agreement(2, guest_id=OTHER_GUEST_ID, account_id=their_account)
    with committed(storage) as unit:
        add(unit, a_guest(), others, an_agreement(1), theirs)
        for token_id, center_id, guest in (
            (TOKEN_ID, CENTER_ID, a_psp_guest()),
            (OTHER_TOKEN_ID, OTHER_CENTER_ID, elsewhere),
        ):
            unit.evidence.add(token_id, an_evidence(), at_most=5)
            unit.earlier_pages.keep(earlier_page(token_id))
            unit.configurations.put(center_id, a_configuration())
            unit.consent_texts.put(center_id, a_consent_text())
            unit.guest_references.keep(guest, GuestReference("reference"))
    for _ in range(2):
        with committed(storage) as unit:
            unit.guests.remove(GUEST_ID)
            unit.evidence.remove(TOKEN_ID)
            unit.earlier_pages.remove(TOKEN_ID)
            unit.configurations.remove(CENTER_ID)
            unit.consent_texts.remove(CENTER_ID, "de")
            unit.guest_references.remove(GUEST_ID)
            unit.agreements.reassign(GUEST_ID, OTHER_GUEST_ID)
            unit.agreements.move(an_agreement(1).account_id, account)
    with storage.read() as unit:
        assert [unit.guests.get(each) for each in (GUEST_ID, OTHER_GUEST_ID)] == [None, others]
        assert [*unit.evidence.of(TOKEN_ID), *unit.evidence.of(OTHER_TOKEN_ID)] == [an_evidence()]
        assert list(unit.earlier_pages.of(TOKEN_ID)) == []
        assert list(unit.earlier_pages.of(OTHER_TOKEN_ID)) == [earlier_page(OTHER_TOKEN_ID)]
        assert unit.configurations.get(CENTER_ID) is None
        assert unit.configurations.get(OTHER_CENTER_ID) == a_configuration()
        assert (unit.consent_texts.of(CENTER_ID), unit.consent_texts.of(OTHER_CENTER_ID)) == (
            *((), (a_consent_text(),)),
        )
        assert unit.guest_references.get(a_psp_guest()) is None
        assert unit.guest_references.get(elsewhere) == "reference"
        moved = [each.account_id for each in unit.agreements.of_guest(OTHER_GUEST_ID)]
        assert moved == [account, their_account]


def test_old_records_of_each_kind_are_deleted(storage: Storage) -> None:
    old, young = (
        (
            an_audit_entry(number, happened_at=at),
            a_portal_session(number, created_at=at),
            replace(LATER_DELIVERY.delivered("200", at), event=DELIVERY.event),
        )
        for number, at in ((1, NOW - MINUTE), (2, NOW))
    )
    with committed(storage) as unit:
        add(unit, *old[:2], *young[:2], old[2])
        for repository in (unit.audit_trail, unit.portal_sessions):
            assert [repository.forget(before=NOW) for _ in range(2)] == [1, 0]
        before = NOW + MINUTE
        assert [unit.event_deliveries.forget(before=before) for _ in range(2)] == [1, 0]
    with storage.read() as reading:
        assert list(reading.audit_trail.latest()) == [young[0]]
        assert list(reading.portal_sessions.of(GUEST_ID)) == [young[1]]
