from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from typing import Any, Final

import pytest

from adapters.events.sender import HttpEventSender
from domain.events.event import (
    ENDPOINT_TYPES,
    CardSummary,
    Event,
    EventEndpoint,
    EventType,
    Secrets,
)
from domain.identifiers import AccountId, CenterId, EndpointId, EventId, GuestId, TokenId
from tests.listening import ListeningServer, running

LOOPBACK: Final = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
SECRETS: Final = Secrets.of("a secret of thirty-two characters")

# `changes` and `options` are Any: of any type, and their names are checked where they are used.


def an_event(**changes: Any) -> Event:
    event = Event(
        event_id=EventId("0e5a1c3e-5d0b-4c46-8f0c-0e8a7f1f3c55"),
        type=EventType.ACCOUNT_STORED,
        occurred_at=datetime(2026, 11, 20, 12, tzinfo=UTC),
        guest_id=GuestId("0b54f1d7-63c7-4a34-9c5c-0b6a2f1f2f11"),
        center_id=CenterId("7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3"),
        token_id=TokenId("7aeda019-a8a1-4a72-88f9-f0ddfc7c339b"),
        account_id=AccountId("607486b1-232f-43c7-906b-540453a04b21"),
        status="active",
        card=CardSummary(card_logo="visa", last_four="4242", expiry_on="09/31"),
    )
    return replace(event, **changes)


def an_endpoint(url: str, secrets: Secrets = SECRETS) -> EventEndpoint:
    return EventEndpoint(
        endpoint_id=EndpointId("c2a2d8a5-93f8-43a5-8a1d-5f1c64a6f3d0"),
        url=url,
        types=ENDPOINT_TYPES,
        centers=None,
        secrets=secrets,
        created_at=datetime(2026, 11, 1, tzinfo=UTC),
    )


def a_sender(**options: Any) -> HttpEventSender:
    """Return a sender that may call receivers on this machine."""
    return HttpEventSender(**{"may_be_http": True, "allowed_networks": LOOPBACK, **options})


def send(url: str, secrets: Secrets = SECRETS, now: datetime | None = None, **options: Any) -> int:
    now = now or datetime.now(UTC)
    return a_sender(**options).send(an_event(), an_endpoint(url, secrets), now=now)


@pytest.fixture
def receiver() -> Iterator[ListeningServer]:
    with running(ListeningServer()) as server:
        yield server


@pytest.fixture(autouse=True)
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses to which a connection was attempted. Those outside this machine are refused."""
    addresses: list[str] = []
    really_connect = socket.socket.connect

    def connect(sock: socket.socket, address: Any) -> None:  # Any: as in the socket module
        addresses.append(address[0])
        if not ip_address(address[0]).is_loopback:
            raise ConnectionRefusedError
        really_connect(sock, address)

    monkeypatch.setattr(socket.socket, "connect", connect)
    return addresses
