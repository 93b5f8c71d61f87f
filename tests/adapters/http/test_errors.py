from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from domain.errors import ServiceUnavailable
from domain.permissions import Permission
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY, PRODUCTS, Api, refused, refused_bare
from tests.installation import Installation


@pytest.mark.parametrize("method", ["GET", "HEAD", "TRACE"])
def test_a_404_response_has_the_error_envelope_only_if_the_path_begins_like_an_api_path(
    refusing: Api, method: str
) -> None:
    in_the_envelope = (
        *("/api/v1", "/api/v1/", "/api/v1/nowhere", "/api/v1/guests"),
        *("/v1/guests/", "/v1/guests/x/nowhere"),
    )
    bare = (
        *("/", "/api", "/api/v1x", "/api/v2/guests", "/v1/nowhere", "/v1/guests", "/v1/guestsx"),
        *("/webhooks", "/healthz/", "/fake-psp/nowhere"),
    )
    for path in (*in_the_envelope, *bare):
        result = refusing.send(method, path, authenticated=False)
        assert (path, result.headers["error-type"]) == (path, "not_found")
        if method == "HEAD":
            assert (path, result.status_code, result.text) == (path, 404, "")
        else:
            form = refused if path in in_the_envelope else refused_bare
            assert (path, *form(result)) == (path, 404, "Not found")


@pytest.mark.parametrize("path", ["/nowhere", "/hosted-payments/nowhere"])
def test_a_browser_that_requests_an_unknown_path_gets_a_helpful_page(
    refusing: Api, path: str
) -> None:
    accepted = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}

    result = refusing.send("GET", path, headers=accepted, authenticated=False)

    assert (result.status_code, result.headers["vary"]) == (404, "Accept, Accept-Language")
    assert "There is nothing here" in result.text
    assert "default-src 'none'" in result.headers["content-security-policy"]
    # What is known and refused stays as clients expect it.
    refusal = refusing.send("GET", ACCOUNTS, headers=accepted, authenticated=False)
    assert refused(refusal) == (401, "User not authenticated")


# Shows S17.
@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        (ACCOUNTS, "GET, POST"),
        (f"{ACCOUNTS}/x", "DELETE, GET"),
        (PRODUCTS, "GET"),
        ("/webhooks/fake", "POST"),
    ],
)
def test_the_refusal_of_an_unsupported_http_method_lists_the_allowed_methods(
    refusing: Api, path: str, allowed: str
) -> None:
    form = refused if path.startswith("/api/v1/") else refused_bare
    for method in ("PUT", "PATCH", "TRACE", "HEAD"):
        result = refusing.send(method, path)
        assert result.headers["allow"] == f"{allowed}, OPTIONS"
        assert result.headers["error-type"] == "method_not_allowed"
        if method == "HEAD":
            assert (result.status_code, result.text) == (405, "")
        else:
            assert form(result) == (405, "Method not allowed")
    options = refusing.installation.client().simulate_options(path)
    assert (options.status_code, options.headers["allow"], options.text) == (200, allowed, "")


@pytest.mark.parametrize("path", ["/hosted-payments", "/hosted-payments/return"])
def test_the_refusal_of_an_unsupported_http_method_for_a_guests_page_is_an_html_page(
    refusing: Api, path: str
) -> None:
    result = refusing.send("PATCH", path, authenticated=False)

    assert result.status_code == 405
    assert result.headers["content-type"] == "text/html; charset=utf-8"


class BrokenAddCard:
    """A use case with a bug."""

    def __call__(self, *_: object) -> None:
        raise ZeroDivisionError("4242424242424242")


# Shows S17.
def test_the_response_to_an_internal_error_reveals_no_internals(installation: Installation) -> None:
    installation.container.sessions().__dict__["add_card"] = BrokenAddCard()
    api = Api(installation)

    with capture_logs() as logs:
        result = api.post(GOOD_BODY)

    assert refused(result) == (500, "Internal error")
    (line,) = (line for line in logs if line["event"] == "internal_error")
    assert isinstance(line["exc_info"], ZeroDivisionError)


def test_only_the_first_line_of_the_cause_of_an_outage_is_logged(
    installation: Installation,
) -> None:
    def fail(*_: object) -> None:
        raise ServiceUnavailable from OSError("the disk is full\nLINE 1: INSERT INTO guests")

    installation.container.sessions().__dict__["add_card"] = fail

    with capture_logs() as logs:
        Api(installation).post(GOOD_BODY)

    (line,) = (line for line in logs if line["event"] == "service_unavailable")
    assert line["cause"] == "the disk is full"


# Shows F8.
def test_an_unavailable_storage_is_reported_as_503(api: Api) -> None:
    unavailable = (503, "Service temporarily unavailable")
    installation = api.installation
    assert api.get("/readyz").json == {"status": "ready"}
    installation.storage.close()
    for file in installation.database.parent.glob("cards.db*"):
        file.rename(file.with_name("away" + file.name))

    assert refused_bare(api.get("/readyz")) == unavailable
    assert api.get("/healthz").json == {"status": "ok"}
    assert refused(api.post(GOOD_BODY)) == unavailable
    assert refused_bare(api.get(PRODUCTS)) == unavailable
    page = api.browse("/hosted-payments", f"token_id={installation.ids.uuid()}")
    assert page.status_code == 503
    assert "try again" in page.text
    assert page.headers["retry-after"] == "30"

    for file in installation.database.parent.glob("awaycards.db*"):
        file.rename(file.with_name(file.name.removeprefix("away")))
    assert api.get("/readyz").json == {"status": "ready"}
    assert api.post(GOOD_BODY).status_code == 200


# Shows S20.
def test_a_request_that_lacks_a_permission_is_logged(installation: Installation) -> None:
    api = Api(installation, installation.a_caller(Permission.GUESTS_VIEW))
    with capture_logs() as logs:
        api.post(GOOD_BODY)

    (line,) = (line for line in logs if line["event"] == "permission_refused")
    assert line["log_level"] == "warning"
    assert api.token not in repr(logs)
