"""The addresses for guests' browsers, all made from the public base URL."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from domain.card_sessions import CardSession
from domain.identifiers import TokenId


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedLinks:
    """Makes addresses under `base_url`, which comes from the settings, never from a request."""

    base_url: str

    def hosted_payment_uri(self, session: CardSession) -> str:
        """Return the address to which a client redirects the guest (interface, `openHostedPage`)."""
        redirect_uri = quote(session.redirect_uri, safe="")
        return (
            f"{self.base_url}/hosted-payments?token_id={session.token_id}"
            f"&redirect_uri={redirect_uri}"
        )

    def return_uri(self, token_id: TokenId) -> str:
        """Return the address to which the PSP redirects the guest after the page."""
        return f"{self.base_url}/hosted-payments/return?token_id={token_id}"

    def cancel_uri(self, token_id: TokenId) -> str:
        """Return the address of the page's link back without a card."""
        return f"{self.base_url}/hosted-payments/cancel?token_id={token_id}"
