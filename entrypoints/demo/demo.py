"""`cardonfile demo`: the service with sample records, and a shop that uses it."""

from __future__ import annotations

import json
import os
import shlex
import textwrap
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Final

import click

from adapters.fake_psp.cards import TEST_CARDS, WRONG_ZIPCODE
from domain.errors import ServiceUnavailable
from domain.events.event import ENDPOINT_TYPES, EventEndpoint
from domain.events.find_endpoint import EndpointNotFound
from domain.permissions import Permission
from entrypoints.container import Container, build
from entrypoints.databases import migrate
from entrypoints.demo.sample import BILLING_INFO, GUESTS, SPA, store_sample
from entrypoints.demo.shop import EVENTS, CardApi, Shop
from entrypoints.logs import configure_logs
from entrypoints.serve import (
    ServeError,
    Server,
    Service,
    listen,
    on_stop_signals,
    refuse_missing_psps,
)
from entrypoints.settings import OFF, LogLevel, Setting, Settings

HOST: Final = "127.0.0.1"
LOOPBACK: Final = "127.0.0.0/8"
HIGHEST_PORT: Final = 65_534
TOKENS_LIVE: Final = timedelta(hours=24)

_SHOP_MAY: Final = frozenset(
    {Permission.GUESTS_VIEW, Permission.GUESTS_ADD, Permission.GUESTS_EDIT}
)
_VISITOR_MAY: Final = frozenset(Permission)


def run_demo(port: int) -> None:
    """Serve the API on `port` and the demo shop on the next one, until SIGTERM or SIGINT.

    Port 0 takes two free ports. The records are in a database of this port, unless
    CARDONFILE_DATABASE_URL names another one, and are kept between runs.
    Raises ServeError, SettingsError, and what `migrate` raises.
    """
    if port > HIGHEST_PORT:
        raise ServeError(f"the demo needs two ports, so the first is {HIGHEST_PORT} at most")
    live = Settings.read(_environment(port)).live_key
    if live is not None:
        raise ServeError(f"the demo is for test cards: unset {live}, a live key")
    with listen(HOST, port) as for_api, listen(HOST, port + 1 if port else 0) as for_shop:
        api_port = for_api.getsockname()[1]
        api_address = f"{HOST}:{api_port}"
        shop_origin = f"http://{HOST}:{for_shop.getsockname()[1]}"
        settings = Settings.read(_environment(api_port), host=HOST, port=api_port)
        if not settings.is_on_loopback:
            raise ServeError(f"the demo is for this machine: unset {Setting.PUBLIC_BASE_URL}")
        # Requests are not logged: the console keeps the welcome in view.
        configure_logs(settings.log_format, at_least=LogLevel.ERROR)
        migrate(settings.database)
        container = build(settings)
        store_sample(container.storage())
        refuse_missing_psps(container)
        service = Service(container, for_api)
        shop_token = _issue_token(container, "demo-shop", _SHOP_MAY)
        endpoint = _add_endpoint(container, shop_origin + EVENTS)
        shop = Shop(
            CardApi(api_address, shop_token),
            secret=endpoint.secrets.current,
            origin=shop_origin,
            payments_origin=settings.public_base_url,
            guests={guest.id: f"{guest.first_name} {guest.last_name}" for guest in GUESTS},
            address=BILLING_INFO,
        )
        visitor_token = _issue_token(container, "demo-visitor", _VISITOR_MAY)
        welcome = _welcome(f"http://{api_address}", shop_origin, visitor_token)
        _run(service, Server(shop.app(), for_shop), welcome)
        # The visitor may have removed it, and nobody needs it while the disk is full.
        with suppress(EndpointNotFound, ServiceUnavailable):
            container.remove_event_endpoint()(endpoint.endpoint_id)
        container.storage().close()


def _environment(port: int) -> dict[str, str]:
    # Two demos at once share nothing.
    own_database = f"sqlite:///cardonfile-demo-{port}.db"
    database_url = os.environ.get(Setting.DATABASE_URL) or own_database
    # A visitor tries every test card for the same guest, also those that are refused.
    limits = os.environ.get(Setting.CARD_TESTING_LIMITS) or OFF
    # Events are sent to the shop, which is on this machine.
    networks = filter(None, (os.environ.get(Setting.EVENT_NETWORKS), LOOPBACK))
    return {
        **os.environ,
        Setting.DATABASE_URL: database_url,
        Setting.CARD_TESTING_LIMITS: limits,
        Setting.EVENT_NETWORKS: ",".join(networks),
    }


def _issue_token(container: Container, name: str, permissions: frozenset[Permission]) -> str:
    return container.issue_token()(caller=name, permissions=permissions, lifetime=TOKENS_LIVE)


def _add_endpoint(container: Container, url: str) -> EventEndpoint:
    """Have all events sent to the shop, and return the endpoint."""
    with container.storage().read() as unit:
        known = unit.event_endpoints.all()
    for endpoint in known:
        # An earlier run was killed. The secret is not kept anywhere else.
        if endpoint.url == url:
            container.remove_event_endpoint()(endpoint.endpoint_id)
    return container.add_event_endpoint()(url=url, types=ENDPOINT_TYPES)


def _run(service: Service, shop: Server, welcome: str) -> None:
    def serve_shop() -> None:
        try:
            shop.run()
        finally:
            # The API stops second: the shop's last responses may need it.
            service.stop()

    on_stop_signals(shop.stop)
    thread = threading.Thread(target=serve_shop, name="demo-shop", daemon=True)
    thread.start()
    click.echo(welcome, nl=False)
    service.run()
    thread.join()


def _welcome(api_origin: str, shop_origin: str, token: str) -> str:
    cards = "\n".join(
        f"  {' '.join(textwrap.wrap(number, 4))}    {card.behaviour}"
        for number, card in TEST_CARDS.items()
    )
    return f"""\
cardonfile demo: all data is invented, and only test cards are accepted.

  Shop    {shop_origin}
  API     {api_origin}    (try it out in {api_origin}/docs)
  Token   {token}    (for 24 hours)

Open the shop, choose a guest, and add a card; the shop shows its signed event.
These are the test cards:

{cards}

Use any future expiry date and any 3 digits as CVC. Where the billing address is
verified, the postal code {WRONG_ZIPCODE} is wrong for every card.

Or add a card for {GUESTS[0].first_name} {GUESTS[0].last_name} by hand, and open the
hosted_payment_uri of the response in a browser:

{_add_card_by_curl(api_origin, shop_origin, token)}

Stop with Ctrl-C.
"""


def _add_card_by_curl(api_origin: str, shop_origin: str, token: str) -> str:
    guest_id = GUESTS[0].id
    body = {"center_id": SPA.center.id, "redirect_uri": f"{shop_origin}/guests/{guest_id}"}
    headers = (f"Authorization: Bearer {token}", "Content-Type: application/json")
    return shlex.join(
        [
            *("curl", "-sS", f"{api_origin}/api/v1/guests/{guest_id}/accounts"),
            *(part for header in headers for part in ("-H", header)),
            *("-d", json.dumps(body), "-w", "\\n"),
        ]
    )
