"""The hosted page `/c/pay/{id}` as a plain form.

Its fields have the names of Stripe's page, so that one browser test runs on both.
"""

from __future__ import annotations

import html
import re
from typing import Final
from urllib.parse import parse_qs

from markdown_it import MarkdownIt

from adapters.psp_suite.stand_in import Request, Response, html_response
from tests.fake_stripe.parameters import Refused
from tests.fake_stripe.stripe import FakeStripe, Merchant, Object

_MARKDOWN: Final = MarkdownIt("commonmark", {"html": False})
_PATH: Final = re.compile(r"/c/pay/([^/]+)(/challenge)?")
_ADDRESS: Final = {
    "line1": "Address",
    "city": "City",
    "state": "State",
    "postal_code": "ZIP",
    "country": "Country",
}


def show(stripe: FakeStripe, request: Request) -> Response:
    """Show a page or handle its submitted form."""
    match = _PATH.fullmatch(request.path)
    if match is None:
        return _page(404, "<h1>Not found</h1>")
    reference, is_challenge = match[1], match[2] is not None
    try:
        merchant, session = stripe.open_session(reference)
        if session["status"] != "open":
            return _page(200, "<h1>You did it</h1><p>This page is over.</p>")
        if request.method != "POST":
            body = _challenge() if is_challenge else _form(merchant, session)
            return _page(200, body)
        typed = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        if is_challenge:
            status = stripe.answer_challenge(
                reference, confirmed=typed["answer"] == "Complete authentication"
            )
        else:
            status = _submit(stripe, reference, typed)
    except Refused as refused:
        return _page(refused.status, f"<h1>{html.escape(str(refused))}</h1>")
    if status == "succeeded":
        return _redirect(session["success_url"])
    if status == "requires_action":
        return _redirect(f"{stripe.url}/c/pay/{reference}/challenge")
    return _page(200, _form(merchant, session, "Your card was declined."))


def _submit(stripe: FakeStripe, reference: str, typed: dict[str, str]) -> str:
    month, year = (int(part) for part in re.findall("[0-9]{2}", typed["cardExpiry"]))
    return stripe.submit_card(
        reference,
        typed["cardNumber"].replace(" ", ""),
        expiry=(month, 2000 + year),
        address={name: typed[name] for name in _ADDRESS if name in typed},
    )


def _form(merchant: Merchant, session: Object, alert: str = "") -> str:
    customer = merchant.customers[session["customer"]]
    fields = [
        ("cardNumber", "Card number", ""),
        ("cardExpiry", "Expiration", ""),
        ("cardCvc", "CVC", ""),
    ]
    if session.get("billing_address_collection") == "required":
        known = customer.get("address") or {}
        fields += [(name, label, known.get(name, "")) for name, label in _ADDRESS.items()]
    inputs = "".join(
        f'<p><label>{label} <input id="{name}" name="{name}" value="{html.escape(value)}" required></label></p>'
        for name, label, value in fields
    )
    # "Customize text and policies": bold text and links are written in Markdown.
    message = session.get("custom_text", {}).get("submit", {}).get("message", "")
    consent = _MARKDOWN.renderInline(message)
    # "Customize payment method reuse agreement": Checkout shows its own text in setup mode.
    agreement = session.get("consent_collection", {}).get("payment_method_reuse_agreement", {})
    if agreement.get("position") != "hidden":
        consent += "</p><p>You allow the business to charge your card for future payments."
    name = session.get("branding_settings", {}).get("display_name", "The chain of spas")
    return (
        f"<p>{html.escape(name)}</p><h1>Save your card</h1><p>{html.escape(customer.get('email') or '')}</p>"
        + (f'<p role="alert">{alert}</p>' if alert else "")
        + f'<form method="post">{inputs}<p>{consent}</p>'
        + '<button data-testid="hosted-payment-submit-button">Save card</button></form>'
        + f'<p><a href="{html.escape(session["cancel_url"])}">Back</a></p>'
    )


def _challenge() -> str:
    return (
        '<h1>3D Secure</h1><form method="post">'
        '<input type="submit" name="answer" value="Complete authentication">'
        '<input type="submit" name="answer" value="Fail authentication"></form>'
    )


def _page(status: int, body: str) -> Response:
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Checkout</title>'
        f'<link rel="icon" href="data:,"></head><body><main>{body}</main></body></html>'
    )
    return html_response(page, status)


def _redirect(address: str) -> Response:
    return Response(303, headers={"Content-Type": "text/html", "Location": address})
