"""Check the forms of pages that are opened with a secret: the front desk's and the guest's own page."""

from __future__ import annotations

from hashlib import sha256

import falcon

from adapters.guest_pages import is_sent_from
from adapters.http.hosted_payments import ClickedElsewhere, form_in


def form_token(secret: str) -> str:
    """Return a text that proves that a form was on a page with this secret.

    The text does not reveal the secret.
    """
    return sha256(f"form {secret}".encode(errors="surrogatepass")).hexdigest()


def require_form_of_page(req: falcon.Request, origin: str, secret: str) -> None:
    """Raise ClickedElsewhere unless the form was on the page with this secret at this origin."""
    form = form_in(req)
    if not is_sent_from(origin, req) or form.get("token") != form_token(secret):
        raise ClickedElsewhere
