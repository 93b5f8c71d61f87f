"""The checks that every browser test makes detect a misbehaving page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Route

from tests.browser.pages import Watch, assert_accessible

PAGE = "http://localhost/page"
DOCUMENT = '<!doctype html><html lang="en"><title>Cards</title><main><h1>Cards</h1>{}</main></html>'


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    # Not the fixture `page`: these pages misbehave on purpose.
    with browser.new_context() as context:
        yield context


def answer_with(context: BrowserContext, body: str, policy: str, status: int = 200) -> None:
    def answer(route: Route) -> None:
        if route.request.url == PAGE:
            route.fulfill(
                status=status,
                content_type="text/html",
                headers={"Content-Security-Policy": policy},
                body=DOCUMENT.format(body),
            )
        else:
            route.fulfill(status=404)

    context.route("**/*", answer)


def test_the_browser_tests_report_every_problem_of_a_misbehaving_page(
    context: BrowserContext,
) -> None:
    watch = Watch(context)
    body = (
        "<script>console.error('broken')</script><script>missing()</script>"
        "<p style='color: red'>1</p><img alt='' src='/missing.png'>"
        "<img alt='' src='https://shop.test/a.png'>"
    )
    answer_with(context, body, "default-src * 'unsafe-inline'; style-src 'self'")

    context.new_page().goto(PAGE, wait_until="networkidle")

    noticed = "\n".join(watch.problems)
    for problem in (
        *("broken", "missing is not defined", "Content Security Policy", "missing.png"),
        *("https://shop.test/a.png", "no icon is named"),
    ):
        assert problem in noticed


def test_the_browser_tests_accept_a_page_with_an_error_status(
    context: BrowserContext,
) -> None:
    watch = Watch(context)
    body = "<link rel='icon' href='data:,'><p>Nothing here</p>"
    answer_with(context, body, "default-src 'none'; img-src data:", status=422)
    page = context.new_page()

    page.goto(PAGE, wait_until="networkidle")
    assert_accessible(page)

    assert watch.problems == []


def test_an_accessibility_failure_names_the_element_that_breaks_a_rule(
    context: BrowserContext,
) -> None:
    answer_with(context, "<label>Card number</label><input name='number'>", "default-src *")
    page = context.new_page()
    page.goto(PAGE)

    with pytest.raises(AssertionError, match=r"label \(critical\)") as failure:
        assert_accessible(page)

    assert '<input name="number">' in str(failure.value)
