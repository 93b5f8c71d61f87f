"""The Falcon application: which resource answers under which path."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import falcon
import structlog

from adapters.http.authentication import Authentication
from adapters.http.errors import ErrorAnswers
from adapters.http.guest_accounts import GuestAccount, GuestAccounts, GuestCardSession
from adapters.http.health import Alive, Ready, WorkerWatch
from adapters.http.hosted_payments import (
    HostedPaymentCancel,
    HostedPaymentLink,
    HostedPaymentReturn,
    ProblemPages,
)
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

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class UseCases:
    """The use cases that requests lead to."""

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
    """Give the WSGI application. `wake_reconciler` is called when there may be work for it."""
    app: falcon.App[falcon.Request, falcon.Response] = falcon.App(
        middleware=[Transport(is_https=links.base_url.startswith("https://")), AccessLog()]
    )
    app.req_options.strip_url_path_trailing_slash = False
    ErrorAnswers().add_to(app)
    ProblemPages(find_way_back=use_cases.find_way_back).add_to(app)
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
    app.add_route(
        "/hosted-payments",
        HostedPaymentLink(
            open_hosted_page=use_cases.open_hosted_page,
            wake_reconciler=wake_reconciler,
        ),
    )
    app.add_route(
        "/hosted-payments/return",
        HostedPaymentReturn(
            return_from_hosted_page=use_cases.return_from_hosted_page,
            wake_reconciler=wake_reconciler,
        ),
    )
    app.add_route(
        "/hosted-payments/cancel",
        HostedPaymentCancel(cancel_hosted_page=use_cases.cancel_hosted_page),
    )
    webhooks = Webhooks(receive_webhook=use_cases.receive_webhook, wake_reconciler=wake_reconciler)
    app.add_route("/webhooks/{provider}", webhooks)
    app.add_route("/webhooks/{provider}/{account}", webhooks)
    app.add_route("/healthz", Alive())
    app.add_route("/readyz", Ready(storage=storage, workers=workers))
    app.add_route("/openapi.json", OpenApi(links))
    return app


@dataclass(frozen=True, kw_only=True)
class Transport:
    """What every answer carries, whatever it is about."""

    is_https: bool

    def process_response(
        self, _: falcon.Request, resp: falcon.Response, __: object, ___: bool
    ) -> None:
        """Keep answers out of caches, and browsers from guessing and from plain HTTP."""
        if not resp.get_header("Cache-Control"):
            resp.set_header("Cache-Control", "no-store")
        resp.set_header("X-Content-Type-Options", "nosniff")
        if self.is_https:
            resp.set_header("Strict-Transport-Security", "max-age=31536000")


class AccessLog:
    """One log line for each request, without its query, body or token."""

    def process_request(self, req: falcon.Request, _: falcon.Response) -> None:
        """Note when the request came."""
        req.context.started_at = time.perf_counter()

    def process_response(
        self, req: falcon.Request, resp: falcon.Response, _: object, __: bool
    ) -> None:
        """Write the line. The route stands for the path, which holds tokens and guests."""
        elapsed_seconds = time.perf_counter() - req.context.started_at
        log.info(
            "request",
            # What is no method of HTTP is a client's own text, of any length.
            method=req.method if req.method in falcon.HTTP_METHODS else "other",
            route=req.uri_template,
            status=resp.status_code,
            caller=req.context.get("caller"),
            milliseconds=round(elapsed_seconds * 1000, 1),
        )
