"""Malformed HTTP over raw sockets. It does no harm, and the next request is served.

Refusing what must be refused is the proxy's job: `tests/deploy` sends the same through nginx.
"""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final

import pytest
from structlog.testing import capture_logs

from entrypoints import waitress_server
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY
from tests.entrypoints.running import Running, run_service

HOST: Final = b"Host: x\r\n"
CLOSE: Final = HOST + b"Connection: close\r\n"
NEXT: Final = b"GET /healthz HTTP/1.1\r\n" + CLOSE + b"\r\n"
"""A request that an attacker would smuggle behind another."""
MEGABYTES: Final = 2_000_000


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as patch:
        # For some of them the server waits for the rest, which never comes.
        patch.setattr(waitress_server, "IDLE_SECONDS", 1)
        with run_service(tmp_path_factory.mktemp("malformed")) as service:
            yield service


def headed(*headers: bytes) -> bytes:
    """Return a request with these headers, and NEXT behind it."""
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"POST /webhooks/fake HTTP/1.1\r\n" + HOST + lines + b"\r\n0\r\n\r\n" + NEXT


def got(target: bytes, *headers: bytes, method: bytes = b"GET", version: bytes = b"1.1") -> bytes:
    """Return a request for a target that closes its connection."""
    lines = b"".join(header + b"\r\n" for header in headers)
    return method + b" " + target + b" HTTP/" + version + b"\r\n" + CLOSE + lines + b"\r\n"


def chunked(body: bytes) -> bytes:
    """Return a request with these bytes as its chunks, and NEXT behind them."""
    start = b"POST /webhooks/fake HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    return start + body + NEXT


def statuses(answers: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] ([0-9]+) ", answers)]


REFUSED: Final = {
    # Ambiguous ends of a body.
    "space before the colon": headed(b"Transfer-Encoding : chunked"),
    "chunked twice": headed(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
    "chunked, then identity": headed(b"Transfer-Encoding: chunked, identity"),
    "chunked behind a tab that is none": headed(b"Transfer-Encoding:\x0bchunked"),
    "one length twice": headed(b"Content-Length: 5", b"Content-Length: 5"),
    "lengths that differ": headed(b"Content-Length: 5", b"Content-Length: 6"),
    "a length below nothing": headed(b"Content-Length: -1"),
    "two lengths": headed(b"Content-Length: 5", b"Transfer-Encoding: chunked"),
    "chunked in 1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    "a length with a plus": headed(b"Content-Length: +5"),
    "a hexadecimal length": headed(b"Content-Length: 0x5"),
    "a length in other digits": headed("Content-Length: \u0665".encode()),
    "gzip, then chunked": headed(b"Transfer-Encoding: gzip, chunked"),
    "a length of 5,000 digits": headed(b"Content-Length: " + b"9" * 5_000),
    # Lines and names.
    "no colon": got(b"/healthz", b"broken header"),
    "folded": got(b"/healthz", b"X: a", b" b"),
    "a line that ends in LF": b"GET / HTTP/1.1\nHost: x\r\n\r\n",
    "two spaces": b"GET  /healthz HTTP/1.1\r\n" + CLOSE + b"\r\n",
    "no version": b"GET /healthz\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "a list of hosts": b"GET /healthz HTTP/1.1\r\nHost: a,b\r\n\r\n",
    "version 1.10": got(b"/healthz", version=b"1.10"),
    "version 2.0": got(b"/healthz", version=b"2.0"),
    "the beginning of TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "bare CR": headed(b"X: y\rTransfer-Encoding: chunked"),
    "bare LF": headed(b"X: y\nTransfer-Encoding: chunked"),
    "CR at the end": got(b"/healthz", b"X: y\r"),
    "NUL in a value": got(b"/healthz", b"X: a\x00b"),
    "a name that is no ASCII": got(b"/healthz", b"X\xe9: a"),
    "a method of any length": got(b"/healthz", method=b"A" * 8_000),
    "the beginning of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an address in quotes": got(b"/healthz", b'X-Forwarded-For: "203.0.113.9'),
    # Targets.
    "a target without a slash": got(b"healthz"),
    "a fragment": got(b"/healthz#x"),
    "another scheme": got(b"ftp://evil.example/healthz"),
    "a space in the target": got(b"/heal thz"),
    "a query that is no ASCII": got(b"/hosted-payments?token_id=\xff"),
    # Chunks.
    "a chunk of letters": chunked(b"g\r\nx\r\n0\r\n\r\n"),
    "a chunk below nothing": chunked(b"-1\r\nx\r\n0\r\n\r\n"),
    "a chunk with a prefix": chunked(b"0x1\r\nx\r\n0\r\n\r\n"),
    "a chunk with a space": chunked(b"1 \r\nx\r\n0\r\n\r\n"),
    "a chunk that is longer": chunked(b"1\r\nxyz\r\n0\r\n\r\n"),
    "a chunk that does not end": chunked(b"1\r\nx0\r\n\r\n"),
    "an extension with a NUL": chunked(b"1;a=\x00\r\nx\r\n0\r\n\r\n"),
}
TOO_LARGE: Final = {
    "a body of 16 EiB": headed(b"Content-Length: " + b"9" * 20),
    "a chunk of 16 EiB": chunked(b"F" * 16 + b"\r\nx"),
    "an extension of megabytes": chunked(b"1;" + b"a" * MEGABYTES),
    "a trailer of megabytes": chunked(b"1\r\nx\r\n0\r\nX: " + b"y" * MEGABYTES),
    "trailers without end": chunked(b"1\r\nx\r\n0\r\n" + b"X: y\r\n" * (MEGABYTES // 6)),
    "chunks without end": chunked((b"4000\r\n" + b"x" * 0x4000 + b"\r\n") * 100),
    "headers without end": got(b"/healthz", *[b"X: y"] * 4_000),
    "a target without end": got(b"/" + b"x" * 20_000),
}
ODD: Final = {
    "an absolute target": (got(b"http://evil.example/healthz"), [200]),
    "an escape that is none": (got(b"/v1/centers/%zz%/products"), [401]),
    "an escaped line break": (got(b"/v1/centers/%0d%0aX:%20y/products"), [401]),
    "an escaped way out": (got(b"/fake-psp/static/..%2f..%2fpsp.py"), [404]),
    "a query of separators": (got(b"/hosted-payments?;;;&&&===%&%0d%0a=%00"), [404]),
    "a thousand headers": (got(b"/healthz", *[b"X: y"] * 1_000), [200]),
    "headers with underscores": (got(b"/healthz", b"Content_Length: 5", b"X_Y: z"), [200]),
    "two tokens": (got(b"/v1/centers/x/products", *[b"Authorization: bearer x"] * 2), [401]),
    "an odd expectation": (got(b"/healthz", b"Expect: a miracle"), [200]),
    "empty lines before it": (b"\r\n" * 1_000 + got(b"/healthz"), [200]),
    "a chunk with an extension": (chunked(b"1;a=b\r\nx\r\n0\r\n\r\n"), [400, 200]),
    "a trailer with a length": (chunked(b"0\r\nContent-Length: 50\r\n\r\n"), [400, 200]),
    "many small chunks": (chunked(b"1\r\nx\r\n" * 40_000 + b"0\r\n\r\n"), [400, 200]),
    "a pipeline": (NEXT.replace(CLOSE, HOST) * 3 + NEXT, [200, 200, 200, 200]),
    "a pipeline with a fault in it": (NEXT.replace(CLOSE, HOST) + b"x\r\n\r\n" + NEXT, [200, 400]),
    "one request behind the last": (NEXT + NEXT, [200]),
}


def statuses_of(running: Running, requests: Mapping[str, bytes]) -> dict[str, list[int]]:
    """Send all requests at once, each on its own connection. The server must log no fault."""
    with capture_logs() as lines, ThreadPoolExecutor(len(requests)) as pool:
        received = dict(zip(requests, pool.map(running.send_raw, requests.values()), strict=True))
    assert {line["event"] for line in lines} <= {
        "authentication_refused",
        "https_on_http_port",
        "request",
        "webhook_rejected",
    }
    assert running.request("GET", "/healthz")[0] == 200
    return {name: statuses(each) for name, each in received.items()}


# Shows S21.
def test_malformed_http_requests_do_not_disturb_later_requests(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    answers = statuses_of(running, {**REFUSED, **TOO_LARGE})

    assert [name for name, seen in answers.items() if 500 in seen] == []
    # waitress raises ValueError for a length of 5,000 digits, and closes the connection.
    logged = [record.getMessage() for record in caplog.records]
    assert [line for line in logged if "4300 digits" not in line] == []


# Shows S5, S21.
def test_an_unusual_but_unambiguous_http_request_is_answered(running: Running) -> None:
    assert statuses_of(running, {name: sent for name, (sent, _) in ODD.items()}) == {
        name: expected for name, (_, expected) in ODD.items()
    }


def test_clients_that_disconnect_early_do_not_disturb_later_requests(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    body = json.dumps(GOOD_BODY).encode()
    length = str(len(body)).encode()
    token = running.token.encode()
    sent = (
        b"POST " + ACCOUNTS.encode() + b" HTTP/1.1\r\n" + HOST + b"Authorization: bearer " + token
    ) + (b"\r\nContent-Type: application/json\r\nContent-Length: " + length + b"\r\n\r\n" + body)
    for cut_at in [0, 1, 20, 60, 150, 250, -1] * 5:
        with closing(socket.create_connection(("127.0.0.1", running.port))) as leaving:
            leaving.sendall(sent[:cut_at])

    assert running.request("GET", "/healthz")[0] == 200
    assert caplog.records == []
