"""Webhooks from PSPs: `/webhooks/{provider}` and `/webhooks/{provider}/{account}`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import falcon

from adapters.http.client_networks import logged_network
from adapters.http.errors import InvalidWebhook, NotFound, RequestBodyTooLarge
from adapters.http.operations import Operation, Tag, parameter
from adapters.http.refusal_log import RefusalLog
from adapters.http.requests import read_bytes
from adapters.http.responses import Health
from domain.card_numbers import holds_card_number
from domain.identifiers import MerchantAccount, ProviderName
from domain.psps.payment_provider import ProviderUnavailable, WebhookRejected
from domain.psps.webhook import WebhookDelivery
from domain.settling.receive_webhook import ReceiveWebhook

_WEBHOOK: Final = Operation(
    method="post",
    path="/webhooks/{provider}",
    name="receiveWebhook",
    tag=Tag.SERVICE,
    summary="Where a payment service provider sends its events",
    description=(
        "The provider chooses the format, so the operation cannot be tried out here. If the provider "
        "signs its events, an event without a valid signature is refused. If it does not, an event "
        "only makes the service ask the provider about the session. Unknown events are ignored."
    ),
    parameters=(
        parameter("provider", "path", "The provider's name.", type="string", examples=["fake"]),
    ),
    has_body_of_provider=True,
    refusals=(InvalidWebhook(), NotFound(), RequestBodyTooLarge()),
)


MAX_WEBHOOK_BYTES: Final = 256 * 1024
UNKNOWN: Final = "unknown"
LINES_A_MINUTE: Final = 100
"""The maximum number of refused webhooks logged in a minute. Anybody can send webhooks."""

_ACCOUNT = re.compile(r"[a-z0-9_]{1,64}")


@dataclass(frozen=True, kw_only=True)
class Webhooks:
    """Receive and store webhooks from PSPs. The worker then settles their sessions."""

    receive_webhook: ReceiveWebhook
    wake_reconciler: Callable[[], None]
    refusal_log: RefusalLog = field(default_factory=lambda: RefusalLog(LINES_A_MINUTE))

    @_WEBHOOK
    def receive(self, req: falcon.Request, provider: str) -> Health:
        """Verify the raw bytes of a webhook, and store the webhook.

        Status 200 means that the webhook was accepted.
        """
        return self._receive(req, provider, None)

    @replace(
        _WEBHOOK,
        path="/webhooks/{provider}/{account}",
        name="receiveWebhookOfAccount",
        summary="Where a payment service provider sends the events of one merchant account",
        description="As above. A signature is verified with the secrets of this account.",
        parameters=(
            *_WEBHOOK.parameters,
            parameter(
                "account",
                "path",
                "The merchant account's name.",
                type="string",
                examples=["harbor"],
            ),
        ),
    )
    def receive_of_account(self, req: falcon.Request, provider: str, account: str) -> Health:
        """Do the same as `receive`, but only for one merchant account.

        The webhook is verified with the secrets of this account.
        """
        return self._receive(req, provider, account)

    def _receive(self, req: falcon.Request, provider: str, account: str | None) -> Health:
        delivery = WebhookDelivery(
            headers={name.lower(): value for name, value in req.headers.items()},
            body=read_bytes(req, MAX_WEBHOOK_BYTES),
            merchant_account=None if account is None else MerchantAccount(account),
        )
        # The sender chooses the path, so a name is logged only if settings can contain it.
        # The sender is not told the reason.
        is_known = ProviderName(provider) in self.receive_webhook.providers
        of = {
            "provider": provider if is_known else UNKNOWN,
            "merchant_account": account and _shown(account),
            "network": logged_network(req.remote_addr),
        }
        try:
            self.receive_webhook(ProviderName(provider), delivery)
        except WebhookRejected as rejected:
            self.refusal_log.warning("webhook_rejected", {**of, "reason": str(rejected)})
            raise InvalidWebhook from rejected
        except ProviderUnavailable as missing:
            do = "set the account's keys here, or correct the webhook address at the PSP"
            self.refusal_log.warning("webhook_without_keys", {**of, "do": do})
            raise NotFound from missing
        self.wake_reconciler()
        return Health(status="received")


def _shown(account: str) -> str:
    is_name = _ACCOUNT.fullmatch(account) and not holds_card_number(account)
    return account if is_name else UNKNOWN
