"""Webhooks from PSPs: `/webhooks/{provider}` and `/webhooks/{provider}/{account}`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import falcon
import structlog

from adapters.http.errors import InvalidWebhook, NotFound
from adapters.http.requests import read_bytes
from adapters.http.responses import Health, json_body
from adapters.http.use_cases import UseCases
from domain.card_numbers import holds_card_number
from domain.identifiers import MerchantAccount, ProviderName
from domain.psps.hosted_page import WebhookDelivery
from domain.psps.payment_provider import ProviderUnavailable, WebhookRejected

MAX_WEBHOOK_BYTES: Final = 256 * 1024
UNKNOWN: Final = "unknown"

_ACCOUNT = re.compile(r"[a-z0-9_]{1,64}")

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class Webhooks:
    """Store a PSP's events; the reconciler then settles their sessions."""

    use_cases: UseCases
    wake_reconciler: Callable[[], None]

    def on_post(
        self, req: falcon.Request, resp: falcon.Response, provider: str, account: str | None = None
    ) -> None:
        """Verify the raw bytes of an event and store it; 200 means that it is stored."""
        delivery = WebhookDelivery(
            headers={name.lower(): value for name, value in req.headers.items()},
            body=read_bytes(req, MAX_WEBHOOK_BYTES),
            merchant_account=None if account is None else MerchantAccount(account),
        )
        # Only names that settings can hold are logged: the path is the sender's. It learns no reason.
        is_known = ProviderName(provider) in self.use_cases.receive_webhook.providers
        of = {
            "provider": provider if is_known else UNKNOWN,
            "merchant_account": account and _shown(account),
        }
        try:
            self.use_cases.receive_webhook(ProviderName(provider), delivery)
        except WebhookRejected as rejected:
            log.warning("webhook_rejected", **of, reason=str(rejected))
            raise InvalidWebhook from rejected
        except ProviderUnavailable as missing:
            log.warning(
                "webhook_without_keys", **of, do="set the account's keys, or its address at the PSP"
            )
            raise NotFound from missing
        self.wake_reconciler()
        json_body(resp, Health(status="received"))


def _shown(account: str) -> str:
    is_name = _ACCOUNT.fullmatch(account) and not holds_card_number(account)
    return account if is_name else UNKNOWN
