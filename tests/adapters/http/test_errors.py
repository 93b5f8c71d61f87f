from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from domain.permissions import Permission
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY, PRODUCTS, Api, refused, refused_bare
from tests.installation import Installation


def test_an_unknown_path_is_not_found_in_its_own_shape(api: Api) -> None:
    assert refused(api.get("/api/v1/guests")) == (404, "Not found")
    assert refused_bare(api.get("/v2/centers")) == (404, "Not found")
    assert refused_bare(api.get("/")) == (404, "Not found")


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "TRACE"])
def test_another_method_is_not_allowed(api: Api, method: str) -> None:
    assert refused(api.send(method, ACCOUNTS)) == (405, "Method not allowed")
    assert refused_bare(api.send(method, PRODUCTS)) == (405, "Method not allowed")
    assert refused_bare(api.send(method, "/healthz")) == (405, "Method not allowed")


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
    assert "load it again" in page.text

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
