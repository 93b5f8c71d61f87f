from __future__ import annotations

import pytest

from domain.identifiers import CallerName
from domain.permissions import Caller, Permission
from tests.adapters.http.api import ACCOUNTS, PRODUCTS, Api, refused, refused_bare
from tests.builders import CENTER_ID, a_product

BOTH_LISTS = pytest.mark.parametrize("path", [ACCOUNTS, PRODUCTS])


@BOTH_LISTS
def test_more_than_a_hundred_items_cannot_be_requested(refusing: Api, path: str) -> None:
    assert refusing.get(path, "size=100").json["page_info"] == {"total": 0, "page": 1, "size": 100}
    for size in ("101", "9" * 24):
        result = refusing.get(path, f"size={size}")
        assert refused_bare(result) == (422, "You cannot request more than 100 items.")


@BOTH_LISTS
@pytest.mark.parametrize("name", ["page", "size"])
def test_numbers_in_other_spellings_are_refused(refusing: Api, path: str, name: str) -> None:
    message = f"{name} must be a whole number of at least 1, in decimal digits"
    for value in ("0", "+5", "%2B5", "", "%D9%A3", "1%00", "%FF", f"1&{name}=1"):
        assert refused_bare(refusing.get(path, f"{name}={value}")) == (422, message)


@BOTH_LISTS
@pytest.mark.parametrize("page", ["2", "9" * 3999])
def test_a_page_past_the_end_has_the_true_total(api: Api, path: str, page: str) -> None:
    api.installation.stored_card()
    with api.installation.storage.write() as unit:
        unit.products.put_many([a_product()])
        unit.commit()

    result = api.get(path, f"page={page}")

    assert result.status_code == 200
    assert f'"page":{page},' in result.text
    assert '"total":1,' in result.text
    assert "[]" in result.text


@BOTH_LISTS
def test_a_query_of_more_than_100_parameters_is_refused(refusing: Api, path: str) -> None:
    form = refused if path == ACCOUNTS else refused_bare

    assert refusing.get(path, "&".join(["x=1"] * 100)).status_code == 200
    assert form(refusing.get(path, "&".join(["x=1"] * 101))) == (400, "Invalid request")


@pytest.mark.parametrize(
    "path",
    [f"{ACCOUNTS}/sessions", "/v1/centers", f"/v1/centers/{CENTER_ID}/accounts"],
)
def test_a_list_of_our_own_refuses_a_parameter_that_it_does_not_have(api: Api, path: str) -> None:
    form = refused if path.startswith(ACCOUNTS) else refused_bare

    assert form(api.get(path, "page=1&staus=open")) == (400, "Unknown query parameter: staus")
    # Nothing that a client did not mean to send is repeated.
    for name in ("4242424242424242", "x" * 41, "%00", "a%20b"):
        assert form(api.get(path, f"{name}=1")) == (400, "Unknown query parameter")


@BOTH_LISTS
def test_a_list_that_others_clients_call_ignores_a_parameter_that_it_does_not_have(
    api: Api, path: str
) -> None:
    assert api.get(path, "staus=open").status_code == 200


@pytest.mark.parametrize(
    "path", [ACCOUNTS, f"{ACCOUNTS}/sessions", PRODUCTS, f"/v1/centers/{CENTER_ID}/accounts"]
)
@pytest.mark.parametrize("query", ["staus=open", "&".join(["x=1"] * 101)])
def test_a_list_checks_the_permission_before_the_query(api: Api, path: str, query: str) -> None:
    caller = Caller(name=CallerName("eraser"), permissions=frozenset({Permission.GUESTS_ERASE}))

    assert Api(api.installation, caller).get(path, query).status_code == 403
