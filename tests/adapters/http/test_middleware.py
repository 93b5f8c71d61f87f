from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from adapters.psp.contract.samples import GUEST_ID
from tests.adapters.http.api import ACCOUNTS, Api, error_of
from tests.builders import CENTER_ID
from tests.installation import Installation


def test_a_path_without_api_gets_the_same_responses(api: Api) -> None:
    client = api.installation.client()
    headers = {"Authorization": f"apikey {api.token}"}

    def get(path: str) -> tuple[int, object]:
        result = client.simulate_get(path, headers=headers)
        return result.status_code, result.json

    guest = f"/v1/guests/{GUEST_ID}"
    for path in (guest, f"{guest}/accounts", f"{guest}/accounts/x", f"{guest}/x", "/v1/guests/x"):
        assert get(path) == get(f"/api{path}")
    assert get(guest)[0] == 200


def test_a_trailing_slash_is_an_unknown_path(api: Api) -> None:
    for path in ("/v1/centers/", f"/v1/centers/{CENTER_ID}/products/", f"{ACCOUNTS}/"):
        for method in ("GET", "POST"):
            result = api.send(method, path)
            assert error_of(result) == (404, "Not found")


def test_every_request_is_one_log_line_without_token_or_path(api: Api) -> None:
    with capture_logs() as logs:
        api.get(f"{ACCOUNTS}/sessions/{api.installation.ids.uuid()}", "page=1\r\nfake=line")
    (line,) = logs

    assert line["event"] == "request"
    assert line["route"] == "/api/v1/guests/{guest_id}/accounts/sessions/{token_id}"
    assert (line["method"], line["status"], line["caller"]) == ("GET", 404, "web-shop")
    assert api.token not in repr(line)
    assert "fake=line" not in repr(line)


# Shows S9.
def test_responses_over_https_ask_for_https(tmp_path: Path) -> None:
    installation = Installation(
        tmp_path, base_url="https://cards.example", CARDONFILE_ALLOW_FAKE_PSP="1"
    )
    assert "strict-transport-security" in installation.client().simulate_get("/healthz").headers
    installation.close()
