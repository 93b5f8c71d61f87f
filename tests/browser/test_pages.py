"""The checks that guard every page are themselves seen to fail."""

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


def answer_with(
    context: BrowserContext, body: str, *, status: int = 200, policy: str = "default-src *"
) -> None:
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


@pytest.mark.parametrize(
    ("body", "policy", "problem"),
    [
        ("<script>console.error('broken')</script>", "default-src * 'unsafe-inline'", "broken"),
        ("<script>missing()</script>", "default-src * 'unsafe-inline'", "missing is not defined"),
        ("<script>1</script>", "default-src 'self'", "Content Security Policy"),
        ("<p style='color: red'>1</p>", "default-src 'self'", "Content Security Policy"),
        ("<img alt='' src='/missing.png'>", "default-src 'self'", "404"),
        ("<img alt='' src='https://shop.test/a.png'>", "default-src *", "https://shop.test/a.png"),
    ],
    ids=["console", "exception", "script-policy", "style-policy", "missing-file", "other-host"],
)
def test_a_page_that_misbehaves_is_noticed(
    context: BrowserContext, body: str, policy: str, problem: str
) -> None:
    watch = Watch(context)
    answer_with(context, body, policy=policy)

    context.new_page().goto(PAGE, wait_until="networkidle")

    assert problem in "\n".join(watch.problems)


@pytest.mark.parametrize("status", [200, 404, 422])
def test_a_page_that_refuses_something_is_no_problem(context: BrowserContext, status: int) -> None:
    watch = Watch(context)
    answer_with(context, "<p>Nothing here</p>", status=status, policy="default-src 'self'")

    context.new_page().goto(PAGE, wait_until="networkidle")

    assert watch.problems == []


def test_axe_passes_an_accessible_page_under_the_strictest_policy(context: BrowserContext) -> None:
    watch = Watch(context)
    answer_with(context, "<p>Nothing here</p>", policy="default-src 'none'")
    page = context.new_page()
    page.goto(PAGE)

    assert_accessible(page)

    assert watch.problems == []


def test_axe_names_the_rule_and_the_element_that_breaks_it(context: BrowserContext) -> None:
    answer_with(context, "<label>Card number</label><input name='number'>")
    page = context.new_page()
    page.goto(PAGE)

    with pytest.raises(AssertionError) as failure:
        assert_accessible(page)

    assert "label (critical)" in str(failure.value)
    assert '<input name="number">' in str(failure.value)
