"""Rules that every list follows. A new list fails these tests until it has a row here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import urlencode, urljoin

import pytest
from falcon import testing
from requests.utils import parse_header_links

from adapters.psp_suite.samples import GUEST_ID
from tests.adapters.http.api import ACCOUNTS, DOCUMENT, Api, refused, refused_bare
from tests.builders import CENTER_ID, a_guest, a_product, an_agreement
from tests.databases import committed
from tests.installation import Installation


class Row(NamedTuple):
    """A list of the API and how to request it."""

    name: str
    items: str
    """The field of the response that has the items."""
    ignores_unknown: bool = False
    """Whether it ignores unknown query parameters, as clients of the interface expect."""
    query: str = ""
    """What its query must have besides."""
    body: object = None


ROWS: Final = (
    Row("searchGuests", "guests", body={"email": a_guest().email}),
    Row("listSessions", "sessions"),
    Row("listCards", "accounts", ignores_unknown=True),
    Row("listAgreements", "agreements"),
    Row("listExpiringCards", "accounts", query="expires_before=2031-10-01&"),
    Row("listCenters", "centers"),
    Row("listProducts", "products", ignores_unknown=True),
)
LISTS: Final = {
    operation["operationId"]: (method.upper(), path)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    if "page" in [each["name"] for each in operation.get("parameters", ())]
}
EACH_LIST: Final = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Return a client of an installation with one record in each list."""
    installation = Installation(tmp_path_factory.mktemp("lists"))
    account = installation.stored_card()
    with committed(installation.storage) as unit:
        unit.products.put_many([a_product()])
        unit.agreements.add(an_agreement(account_id=account.account_id))
    yield Api(installation)
    installation.close()


def get(
    api: Api, row: Row, query: str, *, guest_id: str = GUEST_ID, center_id: str = CENTER_ID
) -> testing.Result:
    method, path = LISTS[row.name]
    (account_id,) = (account.account_id for account in api.installation.accounts())
    return api.send(
        *(method, path.format(guest_id=guest_id, center_id=center_id, account_id=account_id)),
        body=None if row.body is None else json.dumps(row.body),
        query=row.query + query,
        headers={"Content-Type": "application/json"},
    )


def refusal(row: Row, result: testing.Result) -> tuple[int, str]:
    """Return code and message of a refusal in the form of this list."""
    is_in_envelope = LISTS[row.name][1].startswith("/api/v1/")
    return refused(result) if is_in_envelope else refused_bare(result)


def test_the_paging_tests_cover_every_list_of_the_api() -> None:
    assert LISTS.keys() == {row.name for row in ROWS}


@EACH_LIST
def test_a_page_of_a_list_has_at_most_as_many_items_as_requested(api: Api, row: Row) -> None:
    listed, later = get(api, row, "").json, get(api, row, "page=2&size=01").json

    assert listed.keys() == {row.items, "page_info"}
    assert listed["page_info"] == {"total": 1, "page": 1, "size": 10}
    assert len(listed[row.items]) == 1
    assert later == {row.items: [], "page_info": {"total": 1, "page": 2, "size": 1}}


def links(result: testing.Result) -> dict[str, str]:
    """Return the address of each link, as the client `requests` reads the header."""
    return {each["rel"]: each["url"] for each in parse_header_links(result.headers["link"])}


@EACH_LIST
def test_a_page_of_a_list_links_to_its_neighboring_pages(api: Api, row: Row) -> None:
    only = f"?{row.query}page=1&size=10"
    assert links(get(api, row, "")) == {"first": only, "last": only}
    past_the_end = get(api, row, f"page={'9' * 3999}&size=0007")
    assert f'"page":{"9" * 3999},"size":7}}' in past_the_end.text
    only = f"?{row.query}page=1&size=7"
    assert links(past_the_end) == {"first": only, "prev": only, "last": only}


def test_following_the_next_links_walks_through_a_filtered_list(installation: Installation) -> None:
    reference = 'Ada & Co, <"1">; ü'
    for _ in range(5):
        installation.add_card(reference=reference)
    installation.add_card(reference="another")
    api, address, seen = Api(installation), f"{ACCOUNTS}/sessions", []
    page = api.get(address, urlencode({"reference": reference, "size": 2}))
    first = page.json
    while "next" in links(page):
        seen += page.json["sessions"]
        address = urljoin(address, links(page)["next"])
        page = api.get(*address.split("?"))
    seen += page.json["sessions"]

    assert len({session["token_id"] for session in seen}) == 5
    assert links(page).keys() == {"first", "prev", "last"}
    assert page.json["page_info"]["page"] == 3
    assert api.get(*urljoin(address, links(page)["first"]).split("?")).json == first


TOO_MANY: Final = "You cannot request more than 100 items."
MALFORMED: Final = "page must be a whole number of at least 1, in decimal digits"


@EACH_LIST
@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("size=101", TOO_MANY),
        ("size=" + "9" * 24, TOO_MANY),
        ("page=%2B5", MALFORMED),
        ("page=%FF", MALFORMED),
        ("page=1&page=1", MALFORMED),
        ("size=", MALFORMED.replace("page", "size")),
    ],
)
def test_invalid_page_parameters_are_refused_before_the_guest_or_the_center_is_validated(
    api: Api, row: Row, query: str, message: str
) -> None:
    result = get(api, row, query, guest_id="x", center_id="x")

    assert refused_bare(result) == (422, message)


@EACH_LIST
def test_a_query_with_more_than_100_parameters_is_refused(api: Api, row: Row) -> None:
    hundred = "x=1&" * (100 - row.query.count("&"))

    fits = get(api, row, hundred.strip("&"))
    assert (fits.status_code == 200) is row.ignores_unknown
    assert fits.headers.get("error-type") in (None, "unknown_query_parameter")
    assert refusal(row, get(api, row, f"{hundred}x=1")) == (400, "Invalid request")


@EACH_LIST
def test_a_list_refuses_or_ignores_unknown_query_parameters_as_documented(
    api: Api, row: Row
) -> None:
    if row.ignores_unknown:
        assert get(api, row, "page=1&staus=open").status_code == 200
        return
    unknown = get(api, row, "page=1&staus=open")
    assert refusal(row, unknown) == (400, "Unknown query parameter: staus")
    # Nothing that a client did not mean to send is repeated.
    for name in ("4242424242424242", "x" * 41, "%00", "a%20b"):
        assert refusal(row, get(api, row, f"{name}=1")) == (400, "Unknown query parameter")
