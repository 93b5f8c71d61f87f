"""What is read of a request, on a server that does not bound bodies itself."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from falcon import testing

from adapters.http.requests import MAX_BODY_BYTES
from adapters.http.webhooks import MAX_WEBHOOK_BYTES
from tests.adapters.http.api import ACCOUNTS
from tests.installation import Installation


class Endless:
    """A body without end, in pieces of any size."""

    def __init__(self) -> None:
        self.given = 0

    def read(self, size: int = -1) -> bytes:
        """Give a part of what is asked for."""
        assert size >= 0, "everything was asked for"
        part = b" " * min(size, 1000)
        self.given += len(part)
        return part


@pytest.mark.parametrize(
    ("path", "limit"), [(ACCOUNTS, MAX_BODY_BYTES), ("/webhooks/fake", MAX_WEBHOOK_BYTES)]
)
@pytest.mark.parametrize(
    ("length", "expected"), [(None, 1), (10**9, None)], ids=["chunked", "Content-Length"]
)
def test_no_more_is_read_than_tells_that_a_body_is_too_large(
    installation: Installation, path: str, limit: int, length: int | None, expected: int | None
) -> None:
    token = installation.token_for(installation.caller)
    body = Endless()
    environ = testing.create_environ(
        path,
        method="POST",
        headers={"Authorization": f"bearer {token}", "Content-Type": "application/json"},
    )
    environ.pop("CONTENT_LENGTH", None)
    if length is not None:
        environ["CONTENT_LENGTH"] = str(length)
    environ |= {"wsgi.input": body, "wsgi.input_terminated": True}
    response = testing.StartResponseMock()

    answer: Iterable[bytes] = installation.container.behind_proxy()(environ, response)

    assert b"Request body too large" in b"".join(answer)
    assert response.status == "413 Content Too Large"
    assert body.given == (limit + expected if expected else 0)
