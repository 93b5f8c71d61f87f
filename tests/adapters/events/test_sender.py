from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_network
from typing import Any, Final

import pytest
import trustme

from adapters import outbound_http
from adapters.events.sender import TOTAL_SECONDS
from adapters.outbound_http import AddressInfo, LookUp
from domain.events.event_sender import EventNotSent
from tests.adapters.events.conftest import a_sender, send
from tests.listening import (
    LONG_SECONDS,
    Handler,
    ListeningServer,
    drip_body,
    fall_silent,
    responding,
    running,
)
from tests.waiting import LIMIT_SECONDS

NAME: Final = "receiver.example"
PUBLIC: Final = "1.1.1.1"
PUBLIC_IPV6: Final = "2606:4700:4700::1111"
HURRIED: Final = 0.3
"""The seconds of attempts that must end without a response."""
MEBIBYTE: Final = 2**20

FORBIDDEN: Final = [
    *("0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1"),  # noqa: S104 - nothing binds to it
    *("127.8.9.10", "169.254.169.254", "172.16.0.1", "192.0.0.192", "192.0.2.1", "192.168.1.1"),
    *("198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "::127.0.0.1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "100::1"),
    *("64:ff9b:1::808:808", "2001:0:7f00:1::1", "2001:db8::1", "2002:7f00:1::", "3fff::1"),
    *("fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1"),
]
# The ways to write 127.0.0.1 that the system accepts.
SPELLINGS: Final = ["2130706433", "017700000001", "0177.0.0.1", "0x7f.1", "0x7f000001", "127.1"]


def finding(*addresses: str) -> LookUp:
    """Return a lookup function that finds these addresses for any host."""

    def look_up(_: str, port: int) -> Iterable[AddressInfo]:
        return [each for address in addresses for each in outbound_http.look_up(address, port)]

    return look_up


def not_sent(url: str, **options: Any) -> str:  # Any: as a_sender() takes them
    """Send an event, which must fail. Return why it failed."""
    with pytest.raises(EventNotSent) as raised:
        send(url, **options)
    return str(raised.value)


def test_opening_a_connection_to_an_endpoint_does_not_send_a_request(
    receiver: ListeningServer, attempts: list[str]
) -> None:
    a_sender().connect(receiver.url)

    assert (attempts, receiver.requests) == (["127.0.0.1"], [])


class TestAddresses:
    # Shows S24.
    @pytest.mark.parametrize("address", [*FORBIDDEN, *SPELLINGS, "localhost"])
    def test_the_event_sender_does_not_connect_to_a_private_address(
        self, attempts: list[str], address: str
    ) -> None:
        options = {"allowed_networks": (), "look_up": finding(address)}
        reason = not_sent(f"https://{NAME}", **options)

        assert reason.startswith("not a public address: ")
        assert "CARDONFILE_EVENT_NETWORKS" in reason
        with pytest.raises(EventNotSent, match="not a public address"):
            a_sender(**options).connect(f"https://{NAME}")
        assert attempts == []

    @pytest.mark.parametrize(
        "host",
        [
            *(f"[{address}]" if ":" in address else address for address in FORBIDDEN),
            *("[::ffff:7f00:1]", "[fe80::1%25lo]", "localhost", *SPELLINGS),
            *("127.0.0.1.", "user@127.0.0.1", ""),
        ],
    )
    def test_the_event_sender_recognizes_private_addresses_in_any_spelling(
        self, receiver: ListeningServer, attempts: list[str], host: str
    ) -> None:
        for scheme in ("http", "https"):
            not_sent(f"{scheme}://{host}:{receiver.server_port}/", allowed_networks=())

        assert attempts == []
        assert receiver.requests == []

    @pytest.mark.parametrize(
        "address",
        [PUBLIC, "172.32.0.1", "100.128.0.1", PUBLIC_IPV6, "64:ff9b::101:101", "::ffff:1.1.1.1"],
    )
    def test_the_event_sender_connects_to_a_public_address(
        self, attempts: list[str], address: str
    ) -> None:
        # Connections out of this machine are refused in these tests.
        assert not_sent(f"https://{NAME}", allowed_networks=(), look_up=finding(address)) == (
            "connection refused"
        )
        assert attempts == [address]

    def test_the_event_sender_connects_only_to_the_public_addresses_of_a_host(
        self, attempts: list[str]
    ) -> None:
        look_up = finding("127.0.0.1", PUBLIC, "10.0.0.1", PUBLIC_IPV6, "::1")

        not_sent(f"https://{NAME}", allowed_networks=(), look_up=look_up)

        assert attempts == [PUBLIC, PUBLIC_IPV6]

    # Shows S24.
    def test_the_event_sender_connects_to_the_address_that_it_checked(
        self, attempts: list[str]
    ) -> None:
        answers = iter([PUBLIC, "127.0.0.1"])

        def look_up(_: str, port: int) -> Iterable[AddressInfo]:
            return outbound_http.look_up(next(answers), port)

        not_sent(f"https://{NAME}", allowed_networks=(), look_up=look_up)

        assert attempts == [PUBLIC]
        assert next(answers) == "127.0.0.1"

    def test_the_event_sender_connects_to_an_address_in_an_allowed_network(
        self, receiver: ListeningServer, attempts: list[str]
    ) -> None:
        url = f"http://{NAME}:{receiver.server_port}"

        assert send(url, look_up=finding("10.0.0.1", "127.0.0.1")) == 200
        assert attempts == ["127.0.0.1"]
        assert receiver.requests[0].headers["host"] == f"{NAME}:{receiver.server_port}"

    @pytest.mark.parametrize(
        ("address", "network", "is_allowed"),
        [
            ("10.1.2.3", "10.0.0.0/8", True),
            ("::ffff:10.1.2.3", "10.0.0.0/8", True),
            ("64:ff9b::a01:203", "10.0.0.0/8", True),
            ("::ffff:10.1.2.3", "::/0", False),
            ("fd00::1", "fd00::/8", True),
            ("fe80::1%lo", "fe80::/10", False),
        ],
    )
    def test_an_ipv6_address_is_private_if_its_embedded_ipv4_address_is_private(
        self, attempts: list[str], address: str, network: str, *, is_allowed: bool
    ) -> None:
        info = (socket.AF_INET6, socket.SOCK_STREAM, 0, "", (address, 443, 0, 0))
        look_up = finding(address) if "%" not in address else lambda *_: [info]

        not_sent(f"https://{NAME}", allowed_networks=[ip_network(network)], look_up=look_up)

        assert bool(attempts) is is_allowed

    @pytest.mark.parametrize(
        ("url", "expected"),
        [
            ("https://[2606:4700:4700::1111]/", (PUBLIC_IPV6, 443)),
            ("http://[2606:4700:4700::1111]/", (PUBLIC_IPV6, 80)),
            ("https://receiver.example:8443", (NAME, 8443)),
        ],
    )
    def test_the_event_sender_looks_up_the_host_and_port_of_an_endpoint(
        self, url: str, expected: tuple[str, int]
    ) -> None:
        looked_up: list[tuple[str, int]] = []

        def look_up(host: str, port: int) -> Iterable[AddressInfo]:
            looked_up.append((host, port))
            return finding(PUBLIC)(host, port)

        not_sent(url, look_up=look_up)

        assert looked_up == [expected]

    def test_the_event_sender_refuses_plain_http_unless_it_is_allowed(
        self, receiver: ListeningServer, attempts: list[str]
    ) -> None:
        assert not_sent(receiver.url, may_be_http=False).startswith(
            "the URL is not an https address"
        )
        assert attempts == []


class TestResponse:
    @pytest.mark.parametrize("status", [204, 304, 410, 503])
    def test_the_event_sender_returns_the_status_of_the_first_response(
        self, receiver: ListeningServer, status: int
    ) -> None:
        receiver.acts = [responding(status)]

        assert send(receiver.url) == status
        assert len(receiver.requests) == 1

    # Shows S24.
    @pytest.mark.parametrize("status", [302, 308])
    def test_the_event_sender_does_not_follow_redirects(
        self, receiver: ListeningServer, attempts: list[str], status: int
    ) -> None:
        with running(ListeningServer()) as internal:
            receiver.acts = [responding(status, Location=internal.url)]

            assert send(receiver.url) == status
            assert internal.connections == 0
        assert attempts == ["127.0.0.1"]

    # Shows F43.
    def test_the_event_sender_stops_waiting_for_a_response_at_the_deadline(
        self, receiver: ListeningServer
    ) -> None:
        receiver.acts = [fall_silent]

        assert not_sent(receiver.url, total_seconds=HURRIED) == "no response in time"
        assert len(receiver.requests) == 1

    def test_the_event_sender_returns_the_status_even_if_the_response_body_arrives_too_slowly(
        self, receiver: ListeningServer
    ) -> None:
        sender_has_left = threading.Event()

        def act(handler: Handler) -> None:
            try:
                drip_body(handler)
            except OSError:
                sender_has_left.set()

        receiver.acts = [act]

        assert send(receiver.url, total_seconds=HURRIED) == 200
        assert sender_has_left.wait(2 * LONG_SECONDS)

    def test_the_deadline_for_a_response_to_an_event_is_15_seconds(self) -> None:
        assert TOTAL_SECONDS == 15

    def test_the_event_sender_stops_reading_a_huge_response(
        self, receiver: ListeningServer
    ) -> None:
        sent = 0
        ended = threading.Event()

        def act(handler: Handler) -> None:
            nonlocal sent
            handler.hang_up()
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000000\r\n\r\n")
            with suppress(OSError):
                for _ in range(100):
                    handler.wfile.write(b"x" * MEBIBYTE)
                    sent += MEBIBYTE
            ended.set()

        receiver.acts = [act]

        assert send(receiver.url) == 200
        assert ended.wait(LIMIT_SECONDS)
        assert sent < 32 * MEBIBYTE

    @pytest.mark.parametrize(
        ("written", "reason"),
        [
            (b"", "connection closed"),
            (b"SSH-2.0 zoe@guests.example\r\n", "no valid response"),
            (b"HTTP/1.1 zoe@guests.example\r\n\r\n", "no valid response"),
            (b"HTTP/1.1 200 OK\r\nX: " + b"zoe" * MEBIBYTE, "no valid response"),
        ],
        ids=["nothing", "SSH", "no status", "endless head"],
    )
    def test_the_error_about_a_malformed_response_does_not_quote_the_response(
        self, receiver: ListeningServer, written: bytes, reason: str
    ) -> None:
        def act(handler: Handler) -> None:
            handler.hang_up()
            with suppress(OSError):
                handler.wfile.write(written)

        receiver.acts = [act]

        with pytest.raises(EventNotSent) as raised:
            send(receiver.url)
        assert str(raised.value) == reason
        # A context might quote the response, and keep the connection open.
        assert raised.value.__context__ is None
        assert len(receiver.requests) == 1

    @pytest.mark.parametrize(
        ("rest", "target"), [("", "/"), ("?from=cards", "/?from=cards"), ("/a?b=c&d", "/a?b=c&d")]
    )
    def test_the_request_that_sends_an_event_contains_the_path_and_query_of_the_endpoint(
        self, receiver: ListeningServer, rest: str, target: str
    ) -> None:
        assert send(receiver.url + rest) == 200
        assert receiver.requests[0].path == target


class TestConnection:
    def test_sending_an_event_fails_if_the_connection_is_refused(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            url = f"http://127.0.0.1:{taken.getsockname()[1]}"

        assert not_sent(url) == "connection refused"

    def test_sending_an_event_fails_if_the_host_name_does_not_exist(self) -> None:
        def look_up(*_: object) -> Iterable[AddressInfo]:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        assert not_sent(f"https://{NAME}", look_up=look_up) == "name not found"

    def test_sending_an_event_fails_if_the_name_servers_do_not_respond(self) -> None:
        released, has_answered = threading.Event(), threading.Event()

        def look_up(host: str, port: int) -> Iterable[AddressInfo]:
            released.wait(LONG_SECONDS)
            has_answered.set()
            return finding(PUBLIC)(host, port)

        reason = not_sent(f"https://{NAME}", look_up=look_up, total_seconds=HURRIED)

        assert reason == "no response in time"
        assert not has_answered.is_set()
        released.set()

    def test_the_event_sender_ignores_proxies_that_the_environment_configures(
        self, receiver: ListeningServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with running(ListeningServer()) as proxy:
            for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
                monkeypatch.setenv(name, proxy.url)
                monkeypatch.setenv(name.lower(), proxy.url)

            assert send(receiver.url) == 200
            assert proxy.connections == 0
        assert len(receiver.requests) == 1


class TestTls:
    def test_the_event_sender_accepts_a_trusted_certificate_for_the_host(
        self, authority: trustme.CA
    ) -> None:
        with receiving(authority, NAME) as (url, asked_for):
            assert send(url, tls=trusting(authority), look_up=finding("127.0.0.1")) == 200

        assert asked_for == [NAME]

    def test_the_event_sender_refuses_a_certificate_that_is_untrusted_or_for_another_host(
        self, authority: trustme.CA
    ) -> None:
        here = finding("127.0.0.1")
        with receiving(authority, NAME) as (url, _):
            assert not_sent(url, look_up=here) == "certificate not trusted"
        with receiving(authority, "other.example", "127.0.0.1") as (url, _):
            reason = not_sent(url, tls=trusting(authority), look_up=here)
        assert reason == "certificate not trusted"

    def test_an_event_for_an_https_endpoint_is_not_sent_without_tls(
        self, receiver: ListeningServer
    ) -> None:
        assert not_sent(receiver.url.replace("http:", "https:")) == "TLS failed"
        assert receiver.requests == []


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@contextmanager
def receiving(authority: trustme.CA, *names: str) -> Iterator[tuple[str, list[str | None]]]:
    """Run a receiver with a certificate for these names.

    Return the URL of NAME at the receiver, and the host names that clients ask for.
    """
    asked_for: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    context.sni_callback = lambda _, name, __: asked_for.append(name)
    server = ListeningServer()
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with running(server):
        yield f"https://{NAME}:{server.server_port}", asked_for
