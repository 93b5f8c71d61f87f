"""`cardonfile demo`: the service with sample records, and a shop that uses it."""

from __future__ import annotations

import os
import textwrap
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Final

import click

from adapters.catalogs import catalog
from adapters.fake_psp.cards import TEST_CARDS, WRONG_ZIPCODE
from adapters.fake_psp.charges import PATH as CHARGES
from adapters.fake_psp.plugin import NAME, make
from adapters.system import RandomIds, SystemClock
from domain.errors import ServiceUnavailable
from domain.events.event import ENDPOINT_TYPES, EventEndpoint
from domain.events.find_endpoint import EndpointNotFound
from domain.permissions import Permission
from entrypoints.container import Container, build
from entrypoints.databases import migrate
from entrypoints.demo.sample import store_sample
from entrypoints.demo.service import Supervisor
from entrypoints.demo.shop import EVENTS, CardApi, Shop, Timeline
from entrypoints.logs import configure_logs
from entrypoints.serve import (
    ServeError,
    listen,
    on_stop_signals,
    refuse_another_origin,
    refuse_missing_psps,
)
from entrypoints.settings import OFF, LogLevel, Setting, Settings, settings_given
from entrypoints.waitress_server import Server

HOST: Final = "127.0.0.1"


def run_demo(port: int) -> None:
    """Serve the API on `port` and the demo shop on the next port, until SIGTERM or SIGINT.

    If `port` is 0, two free ports are used. Each port has a separate database, unless
    CARDONFILE_DATABASE_URL is set. Raises ServeError, SettingsError, and the errors of `migrate`.
    """
    live = Settings.read(_environment(port)).live_key
    if live is not None:
        raise ServeError(f"the demo takes only test cards, but {live} is a live key: unset it")
    at = partial(listen, HOST, option="--port, or make demo PORT=9000")
    with at(port) as for_api, at(port + 1 if port else 0) as for_shop:
        api_port, shop_port = (listening.getsockname()[1] for listening in (for_api, for_shop))
        api_origin, shop_origin = f"http://{HOST}:{api_port}", f"http://{HOST}:{shop_port}"
        environment = _environment(api_port)
        settings = Settings.read(environment, host=HOST, port=api_port)
        if not settings.is_on_loopback:
            raise ServeError(f"the demo runs on this machine only: unset {Setting.PUBLIC_BASE_URL}")
        # Requests are not logged, so that the welcome message stays visible.
        configure_logs(settings.log_format, at_least=LogLevel.ERROR)
        migrate(settings.database)
        container = build(settings)
        store_sample(container.storage())
        refuse_another_origin(container)
        refuse_missing_psps(container)
        issue_token = partial(container.issue_token(), lifetime=timedelta(hours=24))
        shop_may = frozenset(
            {Permission.GUESTS_VIEW, Permission.GUESTS_ADD, Permission.GUESTS_PORTAL}
        )
        shop_token = issue_token(caller="demo-shop", permissions=shop_may)
        token = issue_token(caller="demo-visitor", permissions=frozenset(Permission))
        endpoint = _add_endpoint(container, shop_origin + EVENTS)
        timeline = Timeline()
        docs = f"{api_origin}/docs#token={token}"
        service = Supervisor(for_api, environment, timeline.read)
        shop = Shop(
            CardApi(f"{HOST}:{api_port}", shop_token),
            timeline,
            secret=endpoint.secrets.current,
            origin=shop_origin,
            payments_origin=settings.public_base_url,
            docs=docs,
            switch=service.switch,
        )
        server = Server(shop.app(), for_shop)
        on_stop_signals(server.stop)
        charge_key = _charge_key(settings)
        click.echo(_welcome(api_origin, shop_origin, docs, token, charge_key))
        try:
            with ThreadPoolExecutor(1, "demo-shop") as thread:
                serving = thread.submit(server.run)
                # The API stops second, because the shop's last responses may need it.
                serving.add_done_callback(lambda _: service.stop())
                try:
                    service.run()
                finally:
                    server.stop()
            serving.result()
        finally:
            # The visitor may have removed the endpoint. If the disk is full, the endpoint may stay.
            with suppress(EndpointNotFound, ServiceUnavailable):
                container.remove_event_endpoint()(endpoint.endpoint_id)
            container.storage().close()


def _environment(port: int) -> dict[str, str]:
    given = settings_given(os.environ)
    # Events are sent to the shop, which is on this machine.
    networks = ",".join(filter(None, (given.get(Setting.EVENT_NETWORKS), "127.0.0.0/8")))
    return {
        # Two demos that run at once do not share a database.
        Setting.DATABASE_URL: f"sqlite:///cardonfile-demo-{port}.db",
        # A visitor tries every test card, including those that are refused.
        Setting.CARD_TESTING_LIMITS: OFF,
        **given,
        Setting.EVENT_NETWORKS: networks,
    }


def _add_endpoint(container: Container, url: str) -> EventEndpoint:
    """Add the shop as an endpoint for all events, in place of any endpoint of an earlier run.

    Return the endpoint.
    """
    with container.storage().read() as unit:
        known = unit.event_endpoints.all()
    for endpoint in known:
        # An earlier run was killed. Only that run knew the secret.
        if endpoint.url == url:
            container.remove_event_endpoint()(endpoint.endpoint_id)
    return container.add_event_endpoint()(url=url, types=ENDPOINT_TYPES)


def _charge_key(settings: Settings) -> str:
    """Return the key with which the shop charges cards at the fake PSP."""
    own = settings.psps[NAME].settings
    return make(own, SystemClock(), RandomIds()).psp.charge_key


def _welcome(api_origin: str, shop_origin: str, docs: str, token: str, charge_key: str) -> str:
    words = catalog("en")
    cards = "\n".join(
        f"  {' '.join(textwrap.wrap(number, 4))}    {words.text(f'test_cards.{card.behaviour}')}"
        for number, card in TEST_CARDS.items()
    )
    return f"""\
cardonfile demo: all data is invented, and only test cards are accepted.

  Shop    {shop_origin}    (begin here)
  API     {api_origin}
  Token   {token}    (for 24 hours)
  Docs    {docs}
  Key     {charge_key}    (to charge cards: POST {api_origin}{CHARGES})

In the shop, add a card and make something go wrong. The card still arrives, and it
is stored only once. Test cards:

{cards}

Use any future expiry date and any 3 digits as CVC. Where the billing address is
verified, the postal code {WRONG_ZIPCODE} is wrong for every card.

The faults that you cause are expected. They are logged below as errors.
Stop with Ctrl-C."""
