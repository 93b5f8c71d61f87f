"""The Falcon application: its middleware, routes and error handlers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import SimpleNamespace

import falcon
from msgspec import Struct

from adapters.guest_pages import add_style
from adapters.http.agreements import AgreementResource
from adapters.http.api_docs import ApiDocs, ApiDocsFiles
from adapters.http.authentication import Authentication
from adapters.http.cards import CardResource
from adapters.http.centers import CenterResource
from adapters.http.desk_links import DeskResource
from adapters.http.dispatcher import Dispatcher
from adapters.http.errors import add_error_handlers
from adapters.http.events import EventResource
from adapters.http.evidence import EvidenceResource
from adapters.http.guests import GuestResource
from adapters.http.health import HealthChecks
from adapters.http.hosted_payments import HostedPayments
from adapters.http.logos import Logos
from adapters.http.middleware import AccessLog, Observe, Paths, RequestIds, SecurityHeaders
from adapters.http.openapi import OpenApi
from adapters.http.operations import operations_of
from adapters.http.portal import PortalResource
from adapters.http.problem_page import STYLE
from adapters.http.products import ProductResource
from adapters.http.sessions import SessionResource
from adapters.http.webhooks import Webhooks
from domain.events.event import EventType
from domain.hosted_payments.link import HostedLinks
from domain.outside import Ids


def create_app(
    *,
    guests: GuestResource,
    sessions: SessionResource,
    desk: DeskResource,
    portal: PortalResource,
    cards: CardResource,
    agreements: AgreementResource,
    evidence: EvidenceResource,
    centers: CenterResource,
    products: ProductResource,
    event_list: EventResource,
    hosted_payments: HostedPayments,
    webhooks: Webhooks,
    health: HealthChecks,
    logos: Logos,
    authenticate: Authentication,
    links: HostedLinks,
    events: Mapping[EventType, Struct],
    ids: Ids,
    hsts: str,
    observe: Observe | None = None,
) -> falcon.App[falcon.Request, falcon.Response]:
    """Return the WSGI application with these resources.

    `events` are examples of events for the OpenAPI document. `hsts` is the value of the header
    Strict-Transport-Security, which is only sent if the public address is https.
    """
    app: falcon.App[falcon.Request, falcon.Response] = falcon.App(
        middleware=[
            RequestIds(ids=ids),
            SecurityHeaders(hsts=hsts if links.base_url.startswith("https://") else None),
            # Probes arrive every few seconds. The checks themselves log the problems that they
            # find.
            AccessLog(
                unlogged={probe.path for probe in operations_of(HealthChecks)}, observe=observe
            ),
            Paths(),
        ]
    )
    add_error_handlers(app)
    hosted_payments.add_error_handlers(app)
    of_guests = (guests, sessions, desk, portal, cards, agreements, evidence)
    resources = (*of_guests, centers, products, event_list)
    of_service = (hosted_payments, webhooks, health, OpenApi(links, events))
    _add_routes(app, (*resources, *of_service), authenticate)
    add_style(app, STYLE)
    app.add_route("/hosted-payments/logos/{center_id}/{name}", logos)
    app.add_route("/docs", ApiDocs())
    app.add_route("/docs/{name}", ApiDocsFiles())
    return app


def _add_routes(
    app: falcon.App[falcon.Request, falcon.Response],
    resources: Iterable[object],
    authenticate: Authentication,
) -> None:
    # Two resources may share a path: cards are listed at the path at which a session is started.
    routes: defaultdict[str, SimpleNamespace] = defaultdict(SimpleNamespace)
    for resource in resources:
        for operation in operations_of(type(resource)):
            dispatcher = Dispatcher(
                operation=operation, resource=resource, authenticate=authenticate
            )
            route = routes[operation.path]
            setattr(route, f"on_{operation.method}", dispatcher.respond)
            if operation.also_head:
                route.on_head = dispatcher.respond
    for path, route in routes.items():
        app.add_route(path, route)
