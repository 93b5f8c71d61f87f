"""The HTML page whose button opens the hosted page: of an old link, or with what the guest agrees to."""

from __future__ import annotations

from urllib.parse import urlsplit

import falcon

from adapters.http.problem_page import protect_page, show_page
from domain.hosted_payments.find_way_back import WayBack


def show_continue_page(
    req: falcon.Request, resp: falcon.Response, way_back: WayBack | None
) -> None:
    """Respond with the page. Its form is sent to the address that it was loaded from."""
    show_page(req, resp, "continue.html", way_back)
    # Browsers check the redirect after a form too. It leads to the PSP, whose address is not known
    # yet, or to the shop, which may be an app.
    schemes = {"http:", "https:"}
    if way_back is not None:
        schemes.add(f"{urlsplit(way_back.redirect_uri).scheme}:")
    protect_page(resp, form_action=" ".join(sorted(schemes)))
