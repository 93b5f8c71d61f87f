"""Reading bodies on a server that does not limit them itself."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from falcon import testing

from adapters.http.requests import MAX_BODY_BYTES
from adapters.http.webhooks import MAX_WEBHOOK_BYTES
from tests.adapters.http.api import ACCOUNTS, Api


class Endless:
    """A body without end, in pieces of at most 1,000 bytes."""

    def __init__(self) -> None:
        self.given = 0

    def read(self, size: int = -1) -> bytes:
        """Return the next piece."""
        assert size >= 0, "the whole body was read"
        part = b" " * min(size, 1000)
        self.given += len(part)
        return part


@pytest.mark.parametrize(
    ("path", "limit"), [(ACCOUNTS, MAX_BODY_BYTES), ("/webhooks/fake", MAX_WEBHOOK_BYTES)]
)
@pytest.mark.parametrize(
    ("length", "expected"), [(None, 1), (10**9, None)], ids=["chunked", "Content-Length"]
)
def test_reading_a_request_body_stops_at_the_size_limit(
    refusing: Api, path: str, limit: int, length: int | None, expected: int | None
) -> None:
    body = Endless()
    headers = {"Authorization": f"bearer {refusing.token}", "Content-Type": "application/json"}
    environ = testing.create_environ(path, method="POST", headers=headers)
    environ.pop("CONTENT_LENGTH", None)
    if length is not None:
        environ["CONTENT_LENGTH"] = str(length)
    environ |= {"wsgi.input": body, "wsgi.input_terminated": True}
    start_response = testing.StartResponseMock()

    app = refusing.installation.container.behind_proxy()
    response: Iterable[bytes] = app(environ, start_response)

    assert b"Request body too large" in b"".join(response)
    assert start_response.status == "413 Content Too Large"
    assert body.given == (limit + expected if expected else 0)
