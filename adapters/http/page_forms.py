"""Check forms of pages that are opened with a secret.

These pages are the front desk's page and the guest's own page.
"""

from __future__ import annotations

from hashlib import sha256

import falcon

from adapters.guest_pages import is_sent_from
from adapters.http.hosted_payments import ClickedElsewhere, form_in


def form_token(secret: str) -> str:
    """Return the token for the forms of the page that is opened with `secret`.

    A form that contains the token must come from somebody who knows the secret. The token does not
    reveal the secret.
    """
    return sha256(f"form {secret}".encode(errors="surrogatepass")).hexdigest()


def require_form_of_page(req: falcon.Request, origin: str, secret: str) -> None:
    """Check that the form in a request comes from the page that is opened with `secret`.

    Raises ClickedElsewhere if the form lacks the token of that page, or if the request's headers
    state another origin than `origin`.
    """
    form = form_in(req)
    if not is_sent_from(origin, req) or form.get("token") != form_token(secret):
        raise ClickedElsewhere
