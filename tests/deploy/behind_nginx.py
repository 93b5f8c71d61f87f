"""The service behind nginx with docs/examples/nginx.conf, on each server.

`make test-deploy` runs it. `make test` does not: it has no nginx.
"""

from __future__ import annotations

import json
import re
import resource
import socket
import ssl
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from http.client import HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import pytest

from adapters.psp_suite.samples import TOKEN_ID
from domain.sessions.end import SessionStatus
from tests.adapters.http.api import ACCOUNTS, PRODUCTS
from tests.deploy.nginx import ADDRESS, MANY, NAME, Nginx
from tests.entrypoints.test_malformed_http import ODD, REFUSED, TOO_LARGE, statuses
from tests.installation import GOOD_CARD
from tests.serving import BODY, SERVERS, Serving
from tests.waiting import LIMIT_SECONDS, wait_until

CLEANED: Final = {
    # nginx reads these, and passes them on in an unambiguous form.
    "a line that ends in LF": [404],
    "bare LF": [400, 200],
    "CR at the end": [200],
    "a name that is no ASCII": [200],
    "two spaces": [200],
    "no version": [],
    "version 1.10": [200],
    "a list of hosts": [200],
    "an address in quotes": [200],
    "a fragment": [200],
    "another scheme": [200],
    "a chunk with a space": [400, 200],
    "an extension with a NUL": [400, 200],
}
IDLE: Final = 1_100
SLOW: Final = 90
"""Slow clients: fewer than the 100 requests that one address may have under way."""
LINE: Final = (
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d 127\.0\.0\.1 (\S+ \d{3})"
    r" seconds=\d+\.\d{3} connect=- upstream=(?:-|\d+\.\d{3}) id=[0-9a-f]{32}"
)
"""A line about a request that the service did not see."""


class Site:
    """A service behind nginx."""

    def __init__(self, serving: Serving, nginx: Nginx) -> None:
        self.serving = serving
        self.nginx = nginx

    def ask(
        self, method: str, path: str, body: str | bytes | None = None, **headers: str
    ) -> tuple[HTTPResponse, str]:
        """Send a request on a new connection, and return the response and its text."""
        return ask(self.nginx, method, path.removeprefix(self.nginx.url), body, **headers)

    def add_card(self) -> tuple[HTTPResponse, str]:
        """Send an add-card request."""
        return self.ask("POST", ACCOUNTS, BODY, **self.serving.headers)

    def serves_others(self) -> bool:
        """Return whether a new client is served."""
        return self.add_card()[0].status == 200


def ask(
    nginx: Nginx, method: str, path: str, body: str | bytes | None = None, **headers: str
) -> tuple[HTTPResponse, str]:
    """Send a request on a new connection, and return the response and its text."""
    with closing(
        HTTPSConnection(NAME, nginx.port, timeout=LIMIT_SECONDS, context=nginx.trust)
    ) as connection:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer, answer.read().decode()


@pytest.fixture(scope="module", params=SERVERS)
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    folder = tmp_path_factory.mktemp(request.param)
    nginx_folder = tmp_path_factory.mktemp("nginx")
    with (
        closing(Nginx(nginx_folder)) as nginx,
        Serving(
            folder,
            request.param,
            base_url=nginx.url,
            CARDONFILE_TRUSTED_PROXY="127.0.0.1",
            # The fake PSP's webhooks go through nginx as well.
            SSL_CERT_FILE=str(nginx.certificate),
        ) as serving,
    ):
        nginx.start(f"127.0.0.1:{serving.port}")
        yield Site(serving, nginx)
        assert not {"internal_error", "reconciler_fault"} & {
            line["event"] for line in serving.lines()
        }
        assert serving.stop() == [0] * len(serving.programs)


def test_nginx_serves_complete_files_of_the_api_docs_and_lets_browsers_cache_them(
    site: Site,
) -> None:
    page, html = site.ask("GET", "/docs")
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]

    for path in re.findall(r'(?:src|href)="(docs/[^"]+)"', html):
        file, text = site.ask("GET", f"/{path}")
        assert (file.status, str(len(text.encode()))) == (200, file.headers["Content-Length"])
        again, _ = site.ask("GET", f"/{path}", **{"If-None-Match": file.headers["ETag"]})
        assert again.status == 304


# Shows S17.
def test_a_guest_can_add_a_card_through_nginx(site: Site) -> None:
    added, text = site.add_card()
    assert added.status == 200
    assert added.headers["Strict-Transport-Security"]
    assert added.headers["Server"] == "nginx"
    begun = json.loads(text)
    assert begun["hosted_payment_uri"].startswith(f"{site.nginx.url}/hosted-payments?")

    opened, _ = site.ask("GET", begun["hosted_payment_uri"])
    assert opened.status == 303
    page = opened.headers["Location"]
    _, form = site.ask("GET", page)
    found = re.search(r'name="form_token" value="([0-9a-f]+)"', form)
    assert found is not None
    typed = {"form_token": found[1], "number": GOOD_CARD, "expiry": "09 / 31", "cvc": "123"}
    taken, _ = site.ask(
        "POST",
        page,
        urlencode(typed),
        **{"Content-Type": "application/x-www-form-urlencoded", "Origin": site.nginx.url},
    )
    assert taken.status == 303
    returned, _ = site.ask("GET", taken.headers["Location"])

    session = site.serving.installation.session(begun["token_id"])
    assert returned.headers["Location"] == session.redirect_uri
    assert site.serving.wait_until_settled(session.token_id) is SessionStatus.COMPLETED
    site.serving.wait_for_webhook()
    assert not [
        path
        for path in files_of(site.nginx)
        if session.token_id in path.read_text(errors="replace")
    ]


def files_of(nginx: Nginx) -> list[Path]:
    """Return the files that nginx has written or read."""
    kept = [path for path in nginx.folder.rglob("*") if path.is_file()]
    assert {nginx.folder / name for name in ("access.log", "error.log")} <= set(kept)
    return kept


# Shows S16.
def test_failed_authentications_are_counted_by_the_real_address_of_the_client(site: Site) -> None:
    def fail(source: str, claimed: str) -> int:
        with closing(site.nginx.connect(source)) as connection:
            connection.sendall(
                f"GET {ACCOUNTS} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                f"X-Forwarded-For: {claimed}\r\n\r\n".encode()
            )
            answer = HTTPResponse(connection)
            answer.begin()
            return answer.status

    answers = [fail("127.0.0.2", f"203.0.113.{number}") for number in range(31)]

    assert answers == [401] * 30 + [429]
    assert fail("127.0.0.3", "127.0.0.2") == 401


def statuses_of(site: Site, requests: Mapping[str, bytes]) -> dict[str, list[int]]:
    """Send all requests, each on its own connection."""
    with ThreadPoolExecutor(16) as pool:
        received = pool.map(site.nginx.send_raw, requests.values())
        return dict(zip(requests, map(statuses, received), strict=True))


# Shows S21.
def test_nginx_refuses_or_normalizes_a_malformed_request(site: Site) -> None:
    answers = statuses_of(site, REFUSED)

    cleaned = {name: answers.pop(name) for name in CLEANED}
    assert cleaned == CLEANED
    # There is only one response, so nginx has not read a second request behind the first.
    assert {
        name: seen
        for name, seen in answers.items()
        if len(seen) != 1 or seen[0] not in (400, 404, 501, 505)
    } == {}
    for name, seen in statuses_of(site, {name: sent for name, (sent, _) in ODD.items()}).items():
        assert seen in (ODD[name][1], [400], [414]), name


# Shows S21.
def test_nginx_refuses_a_request_that_is_too_large(site: Site) -> None:
    # A response may be lost when nginx closes the connection before everything is sent.
    for name, seen in statuses_of(site, TOO_LARGE).items():
        assert set(seen) <= {400, 413, 414, 500}, name
    assert site.serves_others()


def is_cut_off(connection: ssl.SSLSocket) -> bool:
    """Return whether the other side has closed the connection."""
    connection.settimeout(0.01)
    try:
        return connection.recv(65536) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


# Shows F41.
def test_clients_that_send_slowly_do_not_delay_other_clients_and_are_cut_off(site: Site) -> None:
    head = (
        f"POST {ACCOUNTS} HTTP/1.1\r\nHost: x\r\nAuthorization: bearer {site.serving.token}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    ).encode()
    with ExitStack() as opened:
        slow = [opened.enter_context(closing(site.nginx.connect())) for _ in range(SLOW)]
        for connection in slow:
            connection.sendall(head)

        assert site.serves_others()
        # The slow ones are still connected.
        assert not is_cut_off(slow[-1])
        wait_until(lambda: all(is_cut_off(connection) for connection in slow))


# Shows F41.
def test_clients_that_read_slowly_do_not_delay_other_clients(site: Site) -> None:
    with ExitStack() as opened:
        slow = []
        for _ in range(SLOW):
            plain = opened.enter_context(socket.socket())
            # A small buffer, so that responses wait for the reader.
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            plain.connect(("127.0.0.1", site.nginx.port))
            slow.append(
                opened.enter_context(site.nginx.trust.wrap_socket(plain, server_hostname=NAME))
            )
        for connection in slow:
            connection.settimeout(1)
            with suppress(TimeoutError, OSError):
                connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 200)

        assert site.serves_others()


# Shows F41.
def test_idle_connections_do_not_delay_other_clients(site: Site) -> None:
    with ExitStack() as opened:
        for _ in range(IDLE):
            opened.enter_context(
                closing(socket.create_connection(("127.0.0.1", site.nginx.port), LIMIT_SECONDS))
            )

        assert site.serves_others()


@pytest.mark.parametrize(
    ("source", "addresses", "refused"),
    [
        ("127.0.0.4", [""] * 110, 10),
        # All addresses of one IPv6 network count as one address. Each IPv4 address counts alone.
        (MANY, [f"2001:db8::a:{number:x}" for number in range(110)], 10),
        (MANY, [f"2001:db8:0:{number:x}::a" for number in range(110)], 0),
        (MANY, [f"192.0.2.{number}" for number in range(110)], 0),
    ],
    ids=["one address", "one network", "networks", "addresses"],
)
def test_nginx_limits_the_concurrent_requests_from_one_client(
    site: Site, source: str, addresses: list[str], refused: int
) -> None:
    with ExitStack() as opened:
        slow = [opened.enter_context(closing(site.nginx.connect(source))) for _ in addresses]
        for connection, address in zip(slow, addresses, strict=True):
            head = f"POST / HTTP/1.1\r\nHost: x\r\n{ADDRESS}: {address}\r\nContent-Length: 100"
            connection.sendall(f"{head}\r\n\r\n{{".encode())

        # nginx has read all by then.
        assert site.serves_others()
        were_refused: set[ssl.SSLSocket] = set()

        def are_refused() -> bool:
            were_refused.update(filter(_was_refused, slow))
            return len(were_refused) >= refused

        wait_until(are_refused)
        assert len(were_refused) == refused


def _was_refused(connection: ssl.SSLSocket) -> bool:
    connection.settimeout(0.01)
    with suppress(TimeoutError, OSError):
        return b" 429 " in connection.recv(1000)
    return False


def test_the_readiness_check_cannot_be_reached_from_outside(site: Site) -> None:
    assert site.ask("GET", "/readyz")[0].status == 404
    assert site.ask("GET", "/healthz")[0].status == 200


def ask_without_tls(site: Site, method: str, path: str) -> HTTPResponse:
    """Send a request with a token on port 80, and return the response."""
    with closing(
        socket.create_connection(("127.0.0.1", site.nginx.plain_port), LIMIT_SECONDS)
    ) as plain:
        plain.sendall(
            f"{method} {path} HTTP/1.1\r\nHost: evil.example\r\n"
            f"Authorization: bearer {site.serving.token}\r\n\r\n".encode()
        )
        answer = HTTPResponse(plain)
        answer.begin()
        return answer


def test_without_tls_nginx_only_redirects_links_of_guests_and_answers_acme_challenges(
    site: Site,
) -> None:
    link = "/hosted-payments?token_id=x&redirect_uri=https%3A%2F%2Fshop.example"
    answer = ask_without_tls(site, "GET", link)
    assert (answer.status, answer.headers["Location"]) == (301, f"{site.nginx.url}{link}")

    # A file for renewing a certificate.
    challenge = site.nginx.folder / ".well-known" / "acme-challenge" / "x"
    challenge.parent.mkdir(parents=True)
    challenge.write_text("x.y")
    answer = ask_without_tls(site, "GET", "/.well-known/acme-challenge/x")
    assert (answer.status, answer.read()) == (200, b"x.y")

    for method in ("GET", "POST"):
        for path in (ACCOUNTS, PRODUCTS, "/hosted-payments/x", "/healthz", "/"):
            answer = ask_without_tls(site, method, path)
            assert (answer.status, answer.headers["Location"]) == (403, None)


def test_the_log_of_nginx_uses_the_same_request_id_as_the_service(site: Site) -> None:
    chosen, token = "order-7", "cof_6bK8qzn1IopDD5IZcgb2jemnwnj"
    ids = {
        sent: site.ask("GET", "/healthz", **({"X-Request-ID": sent} if sent else {}))[0].headers[
            "X-Request-ID"
        ]
        for sent in ("", chosen, token)
    }
    assert re.fullmatch("[0-9a-f]{32}", ids[""])
    assert ids[chosen] == chosen
    log = site.nginx.folder / "access.log"
    wait_until(lambda: all(f" id={each}\n" in log.read_text() for each in ids.values()))
    assert token not in log.read_text()


# Shows S21.
@pytest.mark.parametrize("upstream", ["127.0.0.1:1", "unix:/nowhere.sock"], ids=["port", "socket"])
def test_the_log_of_nginx_omits_the_path_of_a_refused_request(
    tmp_path: Path, upstream: str
) -> None:
    with closing(Nginx(tmp_path)) as nginx, ExitStack() as opened:
        nginx.start(upstream)
        link = f"/hosted-payments?token_id={TOKEN_ID}"
        assert ask(nginx, "GET", link)[0].status == 502
        assert ask(nginx, "POST", link, **{"Content-Length": "999999"})[0].status == 413
        assert statuses(nginx.send_raw(f"GET {link} HTTP/1.1\r\n\r\n".encode())) == [400]
        assert statuses(nginx.send_raw(f"{TOKEN_ID}\r\n\r\n".encode())) == [400]
        slow = [opened.enter_context(closing(nginx.connect())) for _ in range(101)]
        for connection in slow:
            head = f"PUT {link} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{"
            connection.sendall(head.encode())
        log = nginx.folder / "access.log"
        wait_until(lambda: " 429 " in log.read_text())

        lines = [re.fullmatch(LINE, line) for line in log.read_text().splitlines()]
        assert not [path for path in files_of(nginx) if TOKEN_ID in path.read_text()]

    assert all(lines)
    assert {line[1] for line in lines if line} == {
        *("GET 502", "POST 413", "GET 400", "- 400", "PUT 429")
    }
