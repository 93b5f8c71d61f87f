"""The page with a button that opens the PSP's hosted page.

The page is shown, for example, if the link is old, or if the guest must first agree to a text.
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
    """Respond with a page whose button sends a form.

    Without `hosted_page`, the form goes to the address of this page. With `hosted_page`, the form
    goes to the PSP and contains the fields that open the PSP's page.
    """
    show_page(req, resp, "continue.html", page_content, hosted_page=hosted_page)
    protect_page(resp, has_form=True)
