"""Prints a table of what Stripe does in test mode: the part of `make test-stripe` without a guest.

    python -m tests.adapters.stripe.ask_stripe

Each row is one call, through the SDK or the adapter. If the adapter relies on another result, the
row ends in DIFFERS and the exit status is 1. Where Stripe documents nothing, the adapter accepts
every result, and the row only shows it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import click
import stripe
from structlog.testing import capture_logs

from adapters.psp.contract.samples import MERCHANT_ACCOUNT, a_page_request
from adapters.psp.http import RetryPolicy
from adapters.stripe.keys import StripeKeys
from adapters.stripe.payloads import consent_as_sent, page_parameters
from adapters.stripe.provider import StripeProvider
from adapters.system.clock import SystemClock
from adapters.system.ids import RandomIds
from domain.hosted_pages import HostedPageRequest, consent_for
from domain.identifiers import CardToken, GuestId, GuestReference, TokenId
from tests.adapters.stripe.in_test_mode import api_base, key_of_test_mode, sdk_client

CENTER: Final = "*Spa* [x](https://evil.example) & Co"
RETRIES: Final = RetryPolicy(total_seconds=30, connect_seconds=10, pause_seconds=1)


class Row(NamedTuple):
    """A call, what Stripe did, and what the adapter relies on, if on anything."""

    asked: str
    seen: str
    expected: str | None

    @property
    def differs(self) -> bool:
        """Return whether Stripe did something else than the adapter relies on."""
        return self.expected is not None and self.expected not in self.seen


class Questions:
    """Calls Stripe with a customer made for it, and collects the rows."""

    def __init__(self, key: str, base: str) -> None:
        self.rows: list[Row] = []
        keys = StripeKeys(secret_key=key, webhook_secrets=("whsec_unused",))
        self._provider = StripeProvider(
            {MERCHANT_ACCOUNT: keys}, clock=SystemClock(), api_base=base, retry_policy=RETRIES
        )

    def ask_all(self) -> None:
        """Make all calls, and delete the customers that were made."""
        self._note(
            "whose key it is",
            lambda: self._provider.identity(MERCHANT_ACCOUNT) or "not told",
            None,
        )
        try:
            customer = self._made_customer()
            self._about_pages(customer)
            self._about_cards(customer)
            self._about_a_deleted_customer(customer)
        except stripe.StripeError as error:
            self._show("what everything else needs", _kind(error), "an answer")

    def _about_pages(self, customer: str) -> None:
        request = self._a_request()
        key = {"idempotency_key": request.idempotency_key}
        with sdk_client(RETRIES) as client:
            # Any: what is to be refused is not of the form that the SDK describes.
            sessions: Any = client.v1.checkout.sessions
            parameters: Any = page_parameters(request, customer, None)
            page = self._note(
                "a page without a currency",
                lambda: sessions.create(parameters, key),
                "open",
                lambda session: session.status,
            )
            if page is None:
                parameters["currency"] = "eur"
                page = self._note("a page in eur", lambda: sessions.create(parameters), None)
            if page is None:
                return
            self._show("its payment_method_types", ", ".join(page.payment_method_types), "card")
            link = page.wallet_options and page.wallet_options.link
            self._show("its wallet_options[link][display]", link and link.display, "never")
            self._show("its locale", page.locale, "en")
            submit = page.custom_text.submit
            as_sent = submit and submit.message == consent_as_sent(request.consent.text)
            self._show("its consent text", "as sent" if as_sent else "another", "as sent")
            self._note(
                "the same call again, under its key",
                lambda: sessions.create(parameters, key),
                "the same page",
                lambda session: "the same page" if session.id == page.id else "another page",
            )
            self._note(
                "another call under that key",
                lambda: sessions.create({**parameters, "locale": "de"}, key),
                "IdempotencyError",
            )
            self._note(
                "a page with a currency",
                lambda: sessions.create({**parameters, "currency": "eur"}),
                "open",
                lambda session: session.status,
            )
            soon = int((datetime.now(UTC) + timedelta(minutes=29)).timestamp())
            self._note(
                "a page that ends in 29 minutes",
                lambda: sessions.create({**parameters, "expires_at": soon}),
                "param expires_at",
            )
            self._note(
                "to expire a page",
                lambda: sessions.expire(page.id),
                "expired",
                lambda session: session.status,
            )
            self._note(
                "to expire it again", lambda: sessions.expire(page.id), "InvalidRequestError"
            )
            self._note(
                "an unknown page",
                lambda: sessions.retrieve("cs_test_unknown"),
                "code resource_missing",
            )

    def _about_cards(self, customer: str) -> None:
        with sdk_client(RETRIES) as client:
            card = self._set_up(client, customer, "pm_card_visa", "succeeded")
            if card is not None:
                method = client.v1.payment_methods.retrieve(card)
                holder = "its customer" if method.customer == customer else "nobody"
                self._show("who holds that card at once", holder, "its customer")
                details: Any = method.card
                self._show("its type and brand", f"{method.type} {details.brand}", "card visa")
                self._show("its fingerprint", "there" if details.fingerprint else "none", "there")
                self._note(
                    "to detach it",
                    lambda: client.v1.payment_methods.detach(card),
                    "held by nobody",
                    lambda detached: f"held by {detached.customer or 'nobody'}",
                )
                self._note(
                    "to detach it again", lambda: client.v1.payment_methods.detach(card), None
                )
            wrong = self._set_up(client, customer, "pm_card_avsFail", "succeeded")
            if wrong is not None:
                method = client.v1.payment_methods.retrieve(wrong)
                checks: Any = method.card and method.card.checks
                self._show(
                    "its address checks, no address given",
                    f"{checks.address_line1_check}, {checks.address_postal_code_check}",
                    None,
                )
            self._set_up(client, customer, "pm_card_authenticationRequired", "requires_action")
            self._set_up(client, customer, "pm_card_visa_chargeDeclined", "CardError")

    def _about_a_deleted_customer(self, customer: str) -> None:
        with sdk_client(RETRIES) as client:
            card = self._set_up(client, customer, "pm_card_mastercard", "succeeded")
            client.v1.customers.delete(customer)
            self._note(
                "a customer who was deleted",
                lambda: client.v1.customers.retrieve(customer),
                "deleted",
                lambda gone: "deleted" if gone.to_dict().get("deleted") else "there",
            )
            self._note(
                "to update that customer",
                lambda: client.v1.customers.update(customer, {"name": "Zoe"}),
                "code resource_missing",
            )
            if card is not None:
                self._note(
                    "who holds a card of that customer",
                    lambda: client.v1.payment_methods.retrieve(card),
                    None,
                    lambda method: "the customer" if method.customer == customer else "nobody",
                )
                self._note("to detach it", lambda: client.v1.payment_methods.detach(card), None)
                self._note(
                    "the adapter: to discard it",
                    lambda: self._provider.discard(
                        MERCHANT_ACCOUNT, GuestReference(customer), CardToken(card)
                    ),
                    "done",
                )

    def _set_up(
        self, client: stripe.StripeClient, customer: str, method: str, expected: str
    ) -> str | None:
        """Set a test card up as Checkout does; returns its id if that succeeded."""
        made = self._note(
            f"to set {method} up",
            lambda: client.v1.setup_intents.create(
                {
                    "customer": customer,
                    "payment_method": method,
                    "confirm": True,
                    "usage": "off_session",
                    "allowed_payment_method_types": ["card"],
                    "return_url": "https://cards.example/return",
                }
            ),
            expected,
            lambda intent: intent.status,
        )
        return made.payment_method if made is not None and made.status == "succeeded" else None

    def _note(
        self,
        asked: str,
        ask: Callable[[], Any],  # whatever object of the SDK it gives
        expected: str | None,
        read: Callable[[Any], object] = lambda answer: answer,
    ) -> Any:
        """Add a row for a call; returns the response, or None if Stripe refused."""
        try:
            answer = ask()
        except stripe.StripeError as error:
            self._show(asked, _kind(error), expected)
            return None
        except Exception as error:  # noqa: BLE001 - a question that fails is an answer too
            self._show(asked, type(error).__name__, expected)
            return None
        self._show(asked, "done" if answer is None else read(answer), expected)
        return answer

    def _show(self, asked: str, seen: object, expected: str | None) -> None:
        self.rows.append(Row(asked, str(seen), expected))

    def _a_request(self) -> HostedPageRequest:
        now = datetime.now(UTC)
        request = a_page_request(begun_at=now, live_until=now + timedelta(minutes=30))
        ids = RandomIds()
        return replace(
            request,
            token_id=TokenId(ids.uuid()),
            guest_id=GuestId(ids.uuid()),
            consent=consent_for(CENTER),
        )

    def _made_customer(self) -> str:
        with sdk_client(RETRIES) as client:
            return client.v1.customers.create({"metadata": {"made_by": "make test-stripe"}}).id


def _kind(error: stripe.StripeError) -> str:
    """Return the kind, code and parameter of a refusal; its text may repeat what was sent."""
    code, param = error.code, getattr(error, "param", None)
    parts = [f"{type(error).__name__} {error.http_status}"]
    parts += [f"code {code}"] if code else []
    parts += [f"param {param}"] if param else []
    return ", ".join(parts)


def table(rows: list[Row]) -> str:
    """Return the rows below a header, in columns."""
    cells = [("ASKED", "STRIPE DID", "RELIED ON", "")]
    for row in rows:
        verdict = "DIFFERS" if row.differs else "ok" if row.expected else "to know"
        cells.append((row.asked, row.seen, row.expected or "-", verdict))
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    return "\n".join(
        "  ".join((*map(str.ljust, row[:3], widths), row[3])).rstrip() for row in cells
    )


def main() -> int:
    """Make the calls and print the table; returns 1 if a row differs."""
    questions = Questions(key_of_test_mode(), api_base())
    # The adapter's log would only repeat the table.
    with capture_logs():
        try:
            questions.ask_all()
        finally:
            click.echo(table(questions.rows))
    return int(any(row.differs for row in questions.rows))


if __name__ == "__main__":
    sys.exit(main())
