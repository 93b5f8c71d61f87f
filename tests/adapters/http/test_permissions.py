"""Who may call each operation. A new operation fails these tests until it has a row here."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

import pytest
from falcon import testing

from adapters.psp_suite.samples import GUEST_ID, OTHER_GUEST_ID, a_uuid
from domain.identifiers import CallerName, CenterId, GuestId
from domain.permissions import Caller, Permission
from tests.adapters.http.api import DOCUMENT, GOOD_BODY, Api, refused, refused_bare
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center, a_guest, an_agreement
from tests.databases import committed
from tests.installation import Installation

VIEW: Final = Permission.GUESTS_VIEW
ADD: Final = Permission.GUESTS_ADD
EDIT: Final = Permission.GUESTS_EDIT
DELETE: Final = Permission.GUESTS_DELETE
ERASE: Final = Permission.GUESTS_ERASE
EVERYONE: Final = frozenset[Permission]()
"""Any valid token may be used."""

FORBIDDEN: Final = "user_not_authorized"
NO_ACCOUNT: Final = "payment_account_not_found"
NO_AGREEMENT: Final = "agreement_not_found"
NO_SESSION: Final = "session_not_found"
EMPTY: Final = "an empty list"
EXPIRING: Final = "expires_before=2031-10-01"


class Row(NamedTuple):
    """A request to an operation, and who may send it."""

    name: str
    allowed: frozenset[Permission]
    """The permissions of which the caller needs any, beside `also`; EVERYONE if it needs none."""
    at_another_center: str
    """How a token limited to another center is refused, or EMPTY."""
    at_its_center: str | None = None
    """How a token limited to the center of the records is refused, if it is."""
    body: object = None
    query: str = ""
    guest_id: GuestId = GUEST_ID
    also: frozenset[Permission] = EVERYONE


GUEST: Final = {"first_name": "Ada", "last_name": "Lovelace"}
DOUBLE_ID: Final = GuestId(a_uuid(78))
MERGE: Final = {"from": DOUBLE_ID, "last_fours": ["4242"]}
PRODUCT: Final = {"code": "OIL", "name": "Oil", "price": {"amount": "49.90", "currency": "EUR"}}
PORTAL: Final = {"center_id": CENTER_ID, "return_uri": "https://shop.example/account"}

ROWS: Final = (
    Row("putGuest", frozenset({EDIT}), FORBIDDEN, FORBIDDEN, body=GUEST),
    Row("putGuest", frozenset({ADD}), FORBIDDEN, FORBIDDEN, body=GUEST, guest_id=OTHER_GUEST_ID),
    Row("eraseGuest", frozenset({ERASE}), FORBIDDEN, FORBIDDEN),
    Row(
        "mergeGuests", frozenset({EDIT}), FORBIDDEN, FORBIDDEN, body=MERGE, also=frozenset({ERASE})
    ),
    Row("readGuest", frozenset({VIEW}), FORBIDDEN, FORBIDDEN),
    Row("searchGuests", frozenset({VIEW}), FORBIDDEN, FORBIDDEN, body={"email": a_guest().email}),
    Row("openPortal", frozenset({Permission.GUESTS_PORTAL}), FORBIDDEN, body=PORTAL),
    Row("addCard", frozenset({ADD, EDIT}), FORBIDDEN, body=GOOD_BODY),
    Row("listSessions", frozenset({ADD, EDIT}), EMPTY),
    Row("readSession", frozenset({VIEW, ADD, EDIT}), NO_SESSION),
    Row("cancelSession", frozenset({ADD, EDIT}), NO_SESSION),
    Row("makeDeskLink", frozenset({ADD, EDIT}), NO_SESSION, body={"label": "Chair 3"}),
    Row("readCode", frozenset({ADD, EDIT}), NO_SESSION),
    Row("listCards", frozenset({VIEW, ADD, EDIT}), EMPTY),
    Row("readCard", frozenset({VIEW, ADD, EDIT}), NO_ACCOUNT),
    Row("readConsent", frozenset({VIEW, ADD, EDIT}), NO_ACCOUNT),
    Row("listAgreements", frozenset({VIEW, ADD, EDIT}), NO_ACCOUNT),
    Row("readAgreement", frozenset({VIEW, ADD, EDIT}), NO_AGREEMENT),
    Row("endAgreement", frozenset({ADD, EDIT}), NO_AGREEMENT, query="reason=cancelled"),
    Row("readEvidence", frozenset({Permission.GUESTS_EVIDENCE}), NO_ACCOUNT),
    Row("removeCard", frozenset({EDIT, DELETE}), NO_ACCOUNT),
    Row("chooseDefaultCard", frozenset({ADD, EDIT}), NO_ACCOUNT),
    Row("listExpiringCards", frozenset({VIEW, ADD, EDIT}), FORBIDDEN, query=EXPIRING),
    Row("listEvents", frozenset({Permission.EVENTS_READ}), EMPTY),
    Row("readEvent", frozenset({Permission.EVENTS_READ}), "event_not_found"),
    Row("listCenters", EVERYONE, EMPTY),
    Row("readCenter", EVERYONE, FORBIDDEN),
    Row("listProducts", frozenset({Permission.PRODUCTS_VIEW}), FORBIDDEN),
    Row("putProduct", frozenset({Permission.PRODUCTS_EDIT}), FORBIDDEN, body=PRODUCT),
)
WITHOUT_TOKEN: Final = {
    *("openHostedPage", "openHostedPageByClick", "openShortLink"),
    *("returnFromHostedPage", "cancelHostedPage"),
    *("returnFromHostedPageByPost", "cancelHostedPageByPost"),
    *("openDesk", "cancelAtDesk"),
    *("showPortalLink", "enterPortal", "showPortal", "showCardInPortal", "changeCardInPortal"),
    *("receiveWebhook", "receiveWebhookOfAccount", "alive", "ready", "openapi", "evidenceKeys"),
}
OPERATIONS: Final = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
EACH_ROW: Final = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def documented(name: str) -> frozenset[Permission]:
    """Return the permissions that any request to an operation may need."""
    return frozenset[Permission]().union(
        *(row.allowed | row.also for row in ROWS if row.name == name)
    )


def test_the_permission_tests_cover_every_operation_of_the_api() -> None:
    assert OPERATIONS.keys() == WITHOUT_TOKEN | {row.name for row in ROWS}


@EACH_ROW
def test_the_openapi_document_names_the_permissions_that_an_operation_needs(row: Row) -> None:
    _, _, operation = OPERATIONS[row.name]
    sentence = operation["description"].rpartition("Needs ")[2]

    assert {each for each in Permission if each in sentence} == documented(row.name)
    assert ("Any valid token may be used." in sentence) is (row.allowed == EVERYONE)
    assert operation["security"] == [{"accessToken": []}, {"apikey": []}]


def test_operations_that_browsers_or_psps_call_need_no_access_token(refusing: Api) -> None:
    for name in WITHOUT_TOKEN:
        method, path, operation = OPERATIONS[name]
        status = refusing.send(method, path, authenticated=False).status_code
        assert (name, status in (401, 403)) == (name, False)
        assert operation["security"] == []


class Requests:
    """Sends the request of a row for a stored card and an open session, as different callers."""

    def __init__(self, installation: Installation, row: Row) -> None:
        installation.has_center(a_center(id=OTHER_CENTER_ID))
        installation.has_guest(a_guest(id=DOUBLE_ID, email=None))
        account = installation.stored_card()
        agreement = an_agreement(account_id=account.account_id)
        with committed(installation.storage) as unit:
            unit.agreements.add(agreement)
        self._known = {
            "agreement_id": agreement.agreement_id,
            "guest_id": row.guest_id,
            "account_id": account.account_id,
            "token_id": installation.add_card().token_id,
            "center_id": CENTER_ID,
            "product_id": a_uuid(51),
            "event_id": installation.events()[0].event_id,
        }
        self._installation, self._row = installation, row
        self._api = Api(installation)
        self._method, self._path, _ = OPERATIONS[row.name]
        self._form = refused if self._path.startswith("/api/v1/") else refused_bare

    def send(self, authorization: str | None) -> testing.Result:
        """Send the request with this header."""
        return self._send(authorization, self._known, json.dumps(self._row.body), self._row.query)

    def _send(
        self, authorization: str | None, ids: dict[str, str], body: str, query: str
    ) -> testing.Result:
        headers = {"Authorization": authorization} if authorization else {}
        return self._api.send(
            *(self._method, self._path.format_map(ids)),
            body=body,
            query=query,
            headers={"Content-Type": "application/json", **headers},
            authenticated=False,
        )

    def token(self, *permissions: Permission, centers: frozenset[CenterId] | None = None) -> str:
        """Return the header of a caller with exactly these permissions."""
        caller = Caller(
            name=CallerName("web-shop"), permissions=frozenset(permissions), centers=centers
        )
        return f"bearer {self._installation.token_for(caller)}"

    def are_refused(self, authorization: str | None, code: int, message: str) -> testing.Result:
        """Fail unless the request is refused, even with other errors in it. Return the response."""
        malformed = dict.fromkeys(self._known, "x")
        assert self._form(self._send(authorization, malformed, "{", "x=1&" * 101)) == (
            code,
            message,
        )
        result = self.send(authorization)
        assert self._form(result) == (code, message)
        return result


# Shows S1, S3.
@EACH_ROW
def test_a_missing_token_or_permission_is_reported_before_any_other_error(
    installation: Installation, row: Row
) -> None:
    requests, every = Requests(installation, row), set(Permission)

    missing = requests.are_refused(None, 401, "User not authenticated")
    assert missing.headers["www-authenticate"] == "Bearer"
    wrong = requests.are_refused("bearer wrong", 401, "User not authenticated")
    assert wrong.headers["www-authenticate"] == 'Bearer error="invalid_token"'
    if row.allowed:
        without = requests.token(*every - documented(row.name))
        requests.are_refused(without, 403, "User not authorized")
        assert requests.send(requests.token(*every - row.allowed)).status_code == 403
    if row.also:
        requests.are_refused(requests.token(*every - row.also), 403, "User not authorized")

    # The refused requests have changed nothing: the card, for example, is still there to be removed.
    first, *others = [[each] for each in row.allowed] or [[], *([each] for each in Permission)]
    assert requests.send(requests.token(*first, *row.also)).status_code == 200
    for permissions in others:
        assert requests.send(requests.token(*permissions)).status_code in (200, 404)


# Shows S1.
@EACH_ROW
def test_a_token_limited_to_one_center_cannot_read_records_at_another_center(
    installation: Installation, row: Row
) -> None:
    requests = Requests(installation, row)
    other, own = (
        requests.token(*Permission, centers=frozenset({center_id}))
        for center_id in (OTHER_CENTER_ID, CENTER_ID)
    )

    result = requests.send(other)
    if row.at_another_center is EMPTY:
        assert CENTER_ID not in result.text
    else:
        assert result.headers["error-type"] == row.at_another_center
    assert requests.send(own).headers.get("error-type") == row.at_its_center
