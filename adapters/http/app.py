"""The Falcon application: its middleware, routes and error handlers."""

from __future__ import annotations

from collections.abc import Callable

import falcon

from adapters.http.api_docs import ApiDocs, ApiDocsFiles
from adapters.http.authentication import Authentication
from adapters.http.centers import Centers
from adapters.http.errors import add_error_handlers
from adapters.http.guest_accounts import GuestAccounts
from adapters.http.guests import Guests
from adapters.http.health import Alive, Ready, WorkerWatch
from adapters.http.hosted_payments import HostedPayments
from adapters.http.middleware import AccessLog, Paths, SecurityHeaders
from adapters.http.openapi import OpenApi
from adapters.http.products import Products
from adapters.http.rate_limits import RateLimits
from adapters.http.use_cases import UseCases
from adapters.http.webhooks import Webhooks
from domain.access.token import Identity
from domain.hosted_payments.link import HostedLinks
from domain.outside import Clock
from domain.storage import Storage


def create_app(
    *,
    use_cases: UseCases,
    identity: Identity,
    storage: Storage,
    links: HostedLinks,
    clock: Clock,
    limits: RateLimits,
    wake_reconciler: Callable[[], None],
    workers: WorkerWatch,
) -> falcon.App[falcon.Request, falcon.Response]:
    """Return the WSGI application.

    `wake_reconciler` is called after every request that may have left work for the reconciler.
    """
    app: falcon.App[falcon.Request, falcon.Response] = falcon.App(
        middleware=[
            SecurityHeaders(is_https=links.base_url.startswith("https://")),
            AccessLog(),
            Paths(),
        ]
    )
    add_error_handlers(app)
    authenticate = Authentication(identity=identity, limits=limits)

    Guests(use_cases=use_cases, authenticate=authenticate).add_to(app)
    GuestAccounts(
        use_cases=use_cases,
        authenticate=authenticate,
        links=links,
        clock=clock,
        wake_reconciler=wake_reconciler,
    ).add_to(app)
    Centers(use_cases=use_cases, authenticate=authenticate, clock=clock).add_to(app)
    Products(use_cases=use_cases, authenticate=authenticate).add_to(app)
    HostedPayments(use_cases=use_cases, links=links, wake_reconciler=wake_reconciler).add_to(app)
    webhooks = Webhooks(use_cases=use_cases, wake_reconciler=wake_reconciler)
    app.add_route("/webhooks/{provider}", webhooks)
    app.add_route("/webhooks/{provider}/{account}", webhooks)
    app.add_route("/healthz", Alive())
    app.add_route("/readyz", Ready(storage=storage, workers=workers))
    app.add_route("/openapi.json", OpenApi(links))
    app.add_route("/docs", ApiDocs())
    app.add_route("/docs/{name}", ApiDocsFiles())
    return app
