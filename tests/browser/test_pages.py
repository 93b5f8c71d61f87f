"""The check that every browser test makes detects a misbehaving page."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Route

from tests.browser.pages import Watch, assert_accessible

PAGE = "http://localhost/page"
BODY = (
    "<!doctype html><script>console.error('broken')</script><script>missing()</script>"
    "<p style='color: red'>1</p><img src='/missing.png'><img src='https://shop.test/a.png'>"
)


def test_the_browser_tests_report_every_problem_of_a_misbehaving_page(browser: Browser) -> None:
    def respond(route: Route) -> None:
        is_page = route.request.url == PAGE
        policy = {"Content-Security-Policy": "default-src * 'unsafe-inline'; style-src 'self'"}
        route.fulfill(
            status=200 if is_page else 404, headers=policy, body=BODY, content_type="text/html"
        )

    # Not the fixture `page`: this page misbehaves on purpose.
    with browser.new_context() as context:
        watch = Watch(context)
        context.route("**/*", respond)
        page = context.new_page()
        page.goto(PAGE, wait_until="networkidle")
        with pytest.raises(AssertionError, match=r"image-alt \(critical\)"):
            assert_accessible(page)

    noticed = "\n".join(watch.problems)
    for problem in (
        *("broken", "missing is not defined", "Content Security Policy", "missing.png"),
        *("https://shop.test/a.png", "no icon is named"),
    ):
        assert problem in noticed
