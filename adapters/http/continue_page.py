"""The HTML page whose button opens the hosted page: of an old link, or with what the guest agrees to."""

from __future__ import annotations

import falcon

from adapters.http.problem_page import protect_page, show_page
from domain.hosted_payments.find_way_back import WayBack


def show_continue_page(
    req: falcon.Request, resp: falcon.Response, way_back: WayBack | None
) -> None:
    """Respond with the page. Its form is sent to the address that it was loaded from."""
    show_page(req, resp, "continue.html", way_back)
    protect_page(resp, has_form=True)
