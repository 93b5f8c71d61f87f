"""Helpers for the tests of several repositories. They store records of any type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from adapters.psp_suite.samples import TOKEN_ID, a_uuid
from domain.centers.center_settings import CenterSettings
from domain.identifiers import TokenId
from domain.pagination import PageRequest
from domain.sessions.session import CardSession
from domain.storage import Storage, UnitOfWork, WriteUnit
from tests.builders import CENTER_ID, a_session, an_account
from tests.databases import committed

MINUTE: Final = timedelta(minutes=1)
DAY: Final = timedelta(days=1)
MICROSECOND: Final = timedelta(microseconds=1)
OTHER_TOKEN_ID: Final = TokenId(a_uuid(22))
AWKWARD: Final = (
    "\U0001f600 Zo\u00eb \u200dZe\u0301"
    "O'Neill; DROP TABLE guests; --"
    '"quoted" and \\backslashed\\ \\N \\.'
    "100 % %s %(id)s %% $1 {0} :id ::uuid ?"
    "\ttab and line\r\n"
)


# Records of many types go through the same functions, so their types are Any.
ADD: Final[dict[str, Callable[[WriteUnit, Any], object]]] = {
    "Center": lambda unit, each: unit.centers.put_many([each]),
    "Guest": lambda unit, each: unit.guests.put_many([each]),
    "Product": lambda unit, each: unit.products.put_many([each]),
    "PaymentConfiguration": lambda unit, each: unit.configurations.put(CENTER_ID, each),
    "CenterSettings": lambda unit, each: unit.center_settings.put(CENTER_ID, each),
    "ConsentText": lambda unit, each: unit.consent_texts.put(CENTER_ID, each),
    "ReservationText": lambda unit, each: unit.reservation_texts.put(CENTER_ID, each),
    "CardSession": lambda unit, each: unit.sessions.add(each),
    "Evidence": lambda unit, each: unit.evidence.add(TOKEN_ID, each, at_most=50),
    "RefusedCard": lambda unit, each: unit.refused_cards.add([each]),
    "Account": lambda unit, each: unit.accounts.add(each),
    "GivenConsent": lambda unit, each: unit.consents.add(each),
    "Agreement": lambda unit, each: unit.agreements.add(each),
    "Discard": lambda unit, each: unit.discards.add(each),
    "Event": lambda unit, each: unit.events.add(each),
    "EventEndpoint": lambda unit, each: unit.event_endpoints.add(each),
    "EventDelivery": lambda unit, each: unit.event_deliveries.add(each),
    "AccessToken": lambda unit, each: unit.access_tokens.add(each),
    "DeskLink": lambda unit, each: unit.desk_links.add(each),
    "PortalSession": lambda unit, each: unit.portal_sessions.add(each),
    "AuditEntry": lambda unit, each: unit.audit_trail.add(each),
    "Erasure": lambda unit, each: unit.erasures.add(each),
    "MerchantStanding": lambda unit, each: unit.merchant_standings.put(each),
}


UPDATE: Final[dict[str, Callable[[WriteUnit, Any], object]]] = {
    **{each: ADD[each] for each in ("Center", "Guest", "Product", "PaymentConfiguration")},
    "CenterSettings": ADD["CenterSettings"],
    "MerchantStanding": ADD["MerchantStanding"],
    "CardSession": lambda unit, each: unit.sessions.update(each),
    "Account": lambda unit, each: unit.accounts.update(each),
    "Agreement": lambda unit, each: unit.agreements.update(each),
    "Discard": lambda unit, each: unit.discards.update(each),
    "EventEndpoint": lambda unit, each: unit.event_endpoints.update(each),
    "EventDelivery": lambda unit, each: unit.event_deliveries.update(each),
    "PortalSession": lambda unit, each: unit.portal_sessions.update(each),
}
GET: Final[dict[str, Callable[[UnitOfWork, Any], object]]] = {
    "Center": lambda unit, each: unit.centers.get(each.id),
    "Guest": lambda unit, each: unit.guests.get(each.id),
    "Product": lambda unit, each: next(
        (found for found in unit.products.page(CENTER_ID, PageRequest()).items if found == each),
        None,
    ),
    "PaymentConfiguration": lambda unit, _: unit.configurations.get(CENTER_ID),
    "CenterSettings": lambda unit, _: _if_stored(unit.center_settings.get(CENTER_ID)),
    "ConsentText": lambda unit, _: next(iter(unit.consent_texts.of(CENTER_ID)), None),
    "ReservationText": lambda unit, _: next(iter(unit.reservation_texts.of(CENTER_ID)), None),
    "CardSession": lambda unit, each: unit.sessions.get(each.token_id),
    "Evidence": lambda unit, _: next(iter(unit.evidence.of(TOKEN_ID)), None),
    "Account": lambda unit, each: unit.accounts.get(each.account_id),
    "Agreement": lambda unit, each: unit.agreements.get(each.agreement_id),
    "GivenConsent": lambda unit, _: next(iter(unit.consents.of(an_account())), None),
    "Discard": lambda unit, each: unit.discards.get(
        each.provider, each.merchant_account, each.token
    ),
    "EventEndpoint": lambda unit, each: unit.event_endpoints.get(each.endpoint_id),
    "EventDelivery": lambda unit, each: unit.event_deliveries.get(
        each.event.event_id, each.endpoint_id
    ),
    "AccessToken": lambda unit, each: unit.access_tokens.get(each.token_hash),
    "DeskLink": lambda unit, each: unit.desk_links.get(each.secret_hash),
    "PortalSession": lambda unit, each: unit.portal_sessions.get(each.portal_id),
    "Erasure": lambda unit, each: unit.erasures.get(each.guest_id),
    "MerchantStanding": lambda unit, _: next(iter(unit.merchant_standings.all()), None),
    "AuditEntry": lambda unit, each: next(iter(unit.audit_trail.latest(about=each.about)), None),
}


def _if_stored(settings: CenterSettings) -> CenterSettings | None:
    return None if settings == CenterSettings() else settings


def kind(record: object) -> str:
    return type(record).__name__


def add(unit: WriteUnit, *records: object) -> None:
    """Add records of any types."""
    for each in records:
        ADD[kind(each)](unit, each)


def store(storage: Storage, *records: object) -> None:
    """Store records of any types, in one commit."""
    with committed(storage) as unit:
        add(unit, *records)


# Any: `changes` are fields of a session, of any type.
def numbered_sessions(*changes: Mapping[str, Any]) -> list[CardSession]:
    """Return a session for each of these `changes`, with ids in this order."""
    return [
        a_session(**{"token_id": TokenId(a_uuid(500 + number)), **each})
        for number, each in enumerate(changes)
    ]
