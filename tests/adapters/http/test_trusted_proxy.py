from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_network
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest

from adapters.http.trusted_proxy import TrustedProxy

PROXY = "10.0.0.5"
CLIENT = "203.0.113.9"


def seen(peer: str, *, proxy: str = PROXY, **headers: str) -> WSGIEnvironment:
    """Return what the application receives of a request from `peer`."""
    reached: list[WSGIEnvironment] = []

    def app(environ: WSGIEnvironment, _: StartResponse) -> Iterable[bytes]:
        reached.append(environ)
        return ()

    def start_response(*_: object) -> object:
        raise AssertionError

    environ = {"REMOTE_ADDR": peer, **{f"HTTP_{name}": value for name, value in headers.items()}}
    networks = [ip_network(each) for each in proxy.split()]
    TrustedProxy(app, networks)(environ, start_response)  # type: ignore[arg-type]  # never called
    return reached[0]


@pytest.mark.parametrize("peer", [PROXY, f"::ffff:{PROXY}"])
@pytest.mark.parametrize("forwarded", [CLIENT, f"198.51.100.1, {CLIENT}"])
def test_the_client_address_is_taken_from_a_trusted_proxy(peer: str, forwarded: str) -> None:
    assert seen(peer, X_FORWARDED_FOR=forwarded)["REMOTE_ADDR"] == CLIENT
    assert seen(peer)["REMOTE_ADDR"] == peer


@pytest.mark.parametrize("peer", ["10.0.0.5", "10.20.255.255", "::ffff:10.20.0.0", "fd00::7"])
def test_a_proxy_in_any_of_the_listed_networks_is_trusted(peer: str) -> None:
    networks = "10.0.0.5/32 10.20.0.0/16 fd00::/8"
    assert seen(peer, proxy=networks, X_FORWARDED_FOR=CLIENT)["REMOTE_ADDR"] == CLIENT
    assert seen(peer, proxy=networks, X_FORWARDED_FOR=f"{CLIENT}, {peer}")["REMOTE_ADDR"] == peer


@pytest.mark.parametrize("proxy", [PROXY, "10.0.0.7/32 10.0.0.4/31", "fd00::/8", ""])
@pytest.mark.parametrize("peer", ["10.0.0.6", "fe80::6", "unix"])
def test_a_proxy_outside_the_listed_networks_is_not_trusted(proxy: str, peer: str) -> None:
    assert seen(peer, proxy=proxy, X_FORWARDED_FOR=CLIENT)["REMOTE_ADDR"] == peer


def test_forwarding_headers_that_are_not_supported_do_not_reach_the_application() -> None:
    environ = seen(
        PROXY,
        FORWARDED="for=192.0.2.1;host=evil.example",
        X_FORWARDED_FOR=CLIENT,
        X_FORWARDED_HOST="evil.example",
        X_FORWARDED_PROTO="https",
        X_FORWARDED_PORT="1",
        HOST="cards.example",
    )

    assert environ == {"REMOTE_ADDR": CLIENT, "HTTP_HOST": "cards.example"}
