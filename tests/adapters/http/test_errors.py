from __future__ import annotations

import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from domain.permissions import Permission
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY, PRODUCTS, Api, refused, refused_bare
from tests.entrypoints.running import run_service
from tests.installation import Installation

IN_THE_ENVELOPE = ("/api/v1", "/api/v1/", "/api/v1/nowhere", "/api/v1/guests")
BARE = ("/", "/api", "/api/v1x", "/api/v2/guests", "/v1/nowhere", "/v2/centers", "/webhooks")


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS", "TRACE"])
def test_an_unknown_path_is_not_found_in_the_form_of_its_neighbours(
    tmp_path: Path, method: str
) -> None:
    not_found = {"code": 404, "message": "Not found"}
    forms = [
        *((path, {"success": False, "error": not_found}) for path in IN_THE_ENVELOPE),
        *((path, not_found) for path in BARE),
    ]
    with run_service(tmp_path) as service:
        for path, form in forms:
            status, headers, body = service.request(method, path)
            assert (path, status) == (path, 404)
            assert headers["Content-Type"] == "application/json"
            assert body == "" if method == "HEAD" else json.loads(body) == form, path


def test_another_method_is_not_allowed(tmp_path: Path) -> None:
    not_allowed = {"code": 405, "message": "Method not allowed"}
    in_the_envelope = {"success": False, "error": not_allowed}
    with run_service(tmp_path) as service:
        for path, allowed, form in (
            (ACCOUNTS, "GET, POST", in_the_envelope),
            (f"{ACCOUNTS}/x", "DELETE, GET", in_the_envelope),
            (f"{ACCOUNTS}/sessions/x", "GET", in_the_envelope),
            (PRODUCTS, "GET", not_allowed),
            ("/webhooks/fake", "POST", not_allowed),
            ("/openapi.json", "GET", not_allowed),
        ):
            for method in ("PUT", "PATCH", "TRACE", "HEAD"):
                status, headers, body = service.request(method, path)
                assert (path, status) == (path, 405)
                assert headers["Allow"] == f"{allowed}, OPTIONS"
                assert body == "" if method == "HEAD" else json.loads(body) == form
            status, headers, body = service.request("OPTIONS", path)
            assert (status, headers["Allow"], body) == (200, allowed, "")


class BrokenAddCard:
    """A use case with a fault in it."""

    def __call__(self, *_: object) -> None:
        raise ZeroDivisionError("4242424242424242")


def test_a_fault_of_ours_says_nothing_of_the_inside(tmp_path: Path) -> None:
    installation = Installation(tmp_path)
    installation.container.use_cases().__dict__["add_card"] = BrokenAddCard()
    api = Api(installation)

    with capture_logs() as logs:
        result = api.post(GOOD_BODY)

    assert refused(result) == (500, "Internal error")
    (line,) = (line for line in logs if line["event"] == "internal_error")
    assert isinstance(line["exc_info"], ZeroDivisionError)
    installation.close()


def test_a_storage_that_is_away_is_a_clear_503(tmp_path: Path) -> None:
    installation = Installation(tmp_path)
    api = Api(installation)
    assert api.get("/readyz").json == {"status": "ready"}
    installation.storage.close()
    database = installation.database
    for file in database.parent.glob("cards.db*"):
        file.rename(file.with_name("away" + file.name))

    assert refused_bare(api.get("/readyz")) == (503, "Service temporarily unavailable")
    assert api.get("/healthz").json == {"status": "ok"}
    assert refused(api.post(GOOD_BODY)) == (503, "Service temporarily unavailable")
    assert api.get(PRODUCTS).json == {"code": 503, "message": "Service temporarily unavailable"}
    page = api.send(
        "GET", "/hosted-payments", query=f"token_id={installation.ids.uuid()}", authenticated=False
    )
    assert page.status_code == 503
    assert "load this page again" in page.text
    assert page.headers["retry-after"] == "30"

    for file in database.parent.glob("awaycards.db*"):
        file.rename(file.with_name(file.name.removeprefix("away")))
    assert api.get("/readyz").json == {"status": "ready"}
    assert api.post(GOOD_BODY).status_code == 200
    installation.close()


def test_every_request_is_one_log_line_without_token_or_path(api: Api) -> None:
    with capture_logs() as logs:
        api.get(f"{ACCOUNTS}/sessions/{api.installation.ids.uuid()}", "page=1\r\nfake=line")
    (line,) = logs

    assert line["event"] == "request"
    assert line["route"] == "/api/v1/guests/{guest_id}/accounts/sessions/{token_id}"
    assert line["status"] == 404
    assert line["caller"] == "web-shop"
    assert api.token not in repr(line)
    assert "fake=line" not in repr(line)


def test_a_lack_of_permission_is_logged(installation: Installation) -> None:
    api = Api(installation, installation.a_caller(Permission.GUESTS_VIEW))
    with capture_logs() as logs:
        api.post(GOOD_BODY)

    (line,) = (line for line in logs if line["event"] == "permission_refused")
    assert line["log_level"] == "warning"
    assert api.token not in repr(logs)


def test_answers_over_https_ask_for_https(tmp_path: Path) -> None:
    installation = Installation(
        tmp_path, base_url="https://cards.example", CARDONFILE_ALLOW_FAKE_PSP="1"
    )
    assert "strict-transport-security" in installation.client().simulate_get("/healthz").headers
    installation.close()
