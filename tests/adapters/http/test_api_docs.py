from __future__ import annotations

import re
from importlib.metadata import version

import pytest
from falcon import testing

from tests.installation import Installation


@pytest.fixture
def client(installation: Installation) -> testing.TestClient:
    return installation.client()


def test_the_api_docs_load_nothing_from_other_hosts(client: testing.TestClient) -> None:
    page = client.simulate_get("/docs")

    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert f"cardonfile, release {version('cardonfile')}" in page.text
    policy = dict(
        directive.split(" ", 1) for directive in page.headers["content-security-policy"].split("; ")
    )
    assert policy.pop("img-src") == "data:"
    assert set(policy.values()) == {"'none'", "'self'"}
    assert {"default-src", "form-action", "frame-ancestors", "base-uri"} == {
        name for name, allowed in policy.items() if allowed == "'none'"
    }


def files_named_by_the_page(client: testing.TestClient) -> list[str]:
    page = client.simulate_get("/docs").text
    return [f"/{path}" for path in re.findall(r'(?:src|href)="(docs/[^"]+)"', page)]


def test_browsers_cache_files_of_the_api_docs_until_an_upgrade(client: testing.TestClient) -> None:
    named = files_named_by_the_page(client)
    assert len(named) == 4
    for path in named:
        file = client.simulate_get(path)
        assert (file.status_code, file.headers["cache-control"]) == (200, "no-cache")
        known = {"If-None-Match": file.headers["etag"]}
        again = client.simulate_get(path, headers=known)
        assert (again.status_code, again.text) == (304, "")
        old = {"If-None-Match": '"of-another-version"'}
        assert client.simulate_get(path, headers=old).text == file.text


def test_files_outside_the_api_docs_are_not_served(client: testing.TestClient) -> None:
    for name in ("", "docs.html", "../openapi.json", "%2e%2e%2fapp.py", "templates.py"):
        refused = client.simulate_get(f"/docs/{name}")
        assert (refused.status_code, refused.headers["error-type"]) == (404, "not_found")
