"""The Falcon application: its middleware, routes and error handlers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import falcon

from adapters.http.authentication import Authentication
from adapters.http.errors import add_error_handlers
from adapters.http.guest_accounts import GuestAccount, GuestAccounts, GuestCardSession
from adapters.http.health import Alive, Ready, WorkerWatch
from adapters.http.hosted_payments import HostedPayments
from adapters.http.middleware import AccessLog, SecurityHeaders
from adapters.http.openapi import OpenApi
from adapters.http.products import CenterProducts
from adapters.http.rate_limits import RateLimits
from adapters.http.webhooks import Webhooks
from domain.add_card import AddCard
from domain.find_way_back import FindWayBack
from domain.hosted_links import HostedLinks
from domain.leave_hosted_page import CancelHostedPage, ReturnFromHostedPage
from domain.list_accounts import ListAccounts
from domain.list_products import ListProducts
from domain.open_hosted_page import OpenHostedPage
from domain.ports import Clock, Identity, Storage
from domain.read_account import ReadAccount
from domain.read_session import ReadSession
from domain.receive_webhook import ReceiveWebhook
from domain.remove_account import RemoveAccount


@dataclass(frozen=True, kw_only=True)
class UseCases:
    """The use cases that the routes call."""

    add_card: AddCard
    list_accounts: ListAccounts
    read_account: ReadAccount
    remove_account: RemoveAccount
    read_session: ReadSession
    list_products: ListProducts
    open_hosted_page: OpenHostedPage
    return_from_hosted_page: ReturnFromHostedPage
    cancel_hosted_page: CancelHostedPage
    find_way_back: FindWayBack
    receive_webhook: ReceiveWebhook


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
        middleware=[SecurityHeaders(is_https=links.base_url.startswith("https://")), AccessLog()]
    )
    add_error_handlers(app)
    authenticate = Authentication(identity=identity, limits=limits)

    accounts = "/api/v1/guests/{guest_id}/accounts"
    app.add_route(
        accounts,
        GuestAccounts(
            authenticate=authenticate,
            limits=limits,
            add_card=use_cases.add_card,
            list_accounts=use_cases.list_accounts,
            links=links,
            clock=clock,
        ),
    )
    app.add_route(
        accounts + "/{account_id}",
        GuestAccount(
            authenticate=authenticate,
            read_account=use_cases.read_account,
            remove_account=use_cases.remove_account,
            clock=clock,
            wake_reconciler=wake_reconciler,
        ),
    )
    app.add_route(
        accounts + "/sessions/{token_id}",
        GuestCardSession(authenticate=authenticate, read_session=use_cases.read_session),
    )
    app.add_route(
        "/v1/centers/{center_id}/products",
        CenterProducts(authenticate=authenticate, list_products=use_cases.list_products),
    )
    HostedPayments(
        open_hosted_page=use_cases.open_hosted_page,
        return_from_hosted_page=use_cases.return_from_hosted_page,
        cancel_hosted_page=use_cases.cancel_hosted_page,
        find_way_back=use_cases.find_way_back,
        wake_reconciler=wake_reconciler,
    ).add_to(app)
    webhooks = Webhooks(receive_webhook=use_cases.receive_webhook, wake_reconciler=wake_reconciler)
    app.add_route("/webhooks/{provider}", webhooks)
    app.add_route("/webhooks/{provider}/{account}", webhooks)
    app.add_route("/healthz", Alive())
    app.add_route("/readyz", Ready(storage=storage, workers=workers))
    app.add_route("/openapi.json", OpenApi(links))
    return app
