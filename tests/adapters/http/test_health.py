from __future__ import annotations

import pytest

from tests.adapters.http.api import Api


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_head_is_answered_like_get_without_a_body(api: Api, path: str) -> None:
    head = api.installation.client().simulate_head(path)

    assert (head.status_code, head.text) == (api.get(path).status_code, "") == (200, "")
