"""The page with a button that opens the hosted page.

It is shown if the link is old, or if the guest must first agree to a text.
"""

from __future__ import annotations

import falcon

from adapters.http.problem_page import protect_page, show_page
from domain.hosted_payments.find_page_content import PageContent
from domain.psps.hosted_page import HostedPage


def show_continue_page(
    req: falcon.Request,
    resp: falcon.Response,
    page_content: PageContent | None,
    hosted_page: HostedPage | None = None,
) -> None:
    """Respond with the page. Its form is sent to the page's own address.

    With a `hosted_page`, the form sends the fields of that page to the PSP instead.
    """
    show_page(req, resp, "continue.html", page_content, hosted_page=hosted_page)
    protect_page(resp, has_form=True)
