"""An installation that browsers reach, in a thread of the test process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any, Final
from urllib.parse import urlencode
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import WSGIApplication

from playwright.sync_api import Page
from typing_extensions import override

from adapters.catalogs import LANGUAGES
from domain.sessions.session import CardSession
from tests.browser.pages import type_into
from tests.builders import CENTER_ID
from tests.installation import GOOD_CARD, Installation
from tests.programs import free_port

ADDRESS: Final = {"address": "Hauptstr. 1", "country_code": "DE", "zipcode": "10115"}
SHOP: Final = "/back"
"""A path without a page. The service answers with an error page that names an icon, so that no
browser asks for another icon.
"""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _QuietHandler(WSGIRequestHandler):
    @override
    def log_message(self, *_: object) -> None: ...


@contextmanager
def listening(app: WSGIApplication, port: int = 0) -> Iterator[int]:
    """Serve an application on this machine. Provide its port."""
    with make_server("127.0.0.1", port, app, _Server, _QuietHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def serving(
    folder: Path,
    capabilities: Mapping[str, bool] | None = None,
    **environment: Any,  # they are keywords too
) -> Iterator[Installation]:
    """Serve an installation whose center has every language, and verifies billing addresses."""
    port = free_port()
    limits = "guest=off/2,guest-everywhere=off/off,caller=off/off,center=off/off"
    installed = Installation(
        folder,
        base_url=f"http://127.0.0.1:{port}",
        capabilities=capabilities,
        CARDONFILE_CARD_TESTING_LIMITS=limits,
        **environment,
    )
    installed.configure(avs=True, link_minutes=43_200)
    for language in LANGUAGES:
        installed.container.set_consent()(CENTER_ID, language)
    with listening(installed.container.app(), port):
        yield installed
    installed.close()


def address_of(served: Installation, path: str) -> str:
    """Return the address of a path."""
    return f"{served.settings.public_base_url}{path}"


def link(served: Installation, session: CardSession) -> str:
    """Return the link of a session."""
    return address_of(served, f"/hosted-payments?{urlencode({'key': session.link_key})}")


# Any: `changes` are fields of AddCardRequest, here and below.
def started(served: Installation, locale: str = "en", **changes: Any) -> CardSession:
    """Start a session. The guest comes back to `SHOP`."""
    request = {"redirect_uri": address_of(served, SHOP), "billing_info": ADDRESS, **changes}
    return served.add_card(locale=locale, **request)


def opened(served: Installation, page: Page, locale: str = "en", **changes: Any) -> CardSession:
    """Start a session, and open its link."""
    session = started(served, locale, **changes)
    page.goto(link(served, session))
    return session


def send_card(page: Page, number: str = GOOD_CARD, expiry: str = "09/31", cvc: str = "123") -> None:
    """Fill in the card in any language, and send the form. The last field is typed key by key."""
    page.locator("#number").fill(number)
    page.locator("#expiry").fill(expiry)
    type_into(page.locator("#cvc"), cvc)
    page.locator("main [type=submit]").click()
