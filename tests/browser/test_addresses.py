"""Browsers parse an address in the same way as `redirect_origin`."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playwright.sync_api import Page

from domain.redirects import redirect_origin
from tests.fuzzing import TIMES
from tests.strategies import uris

READ = """addresses => addresses.map(address => {
    try { const url = new URL(address); return [url.origin, url.username + url.password] }
    catch { return null }
})"""

pytestmark = pytest.mark.fuzz


# Shows S6.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10 * TIMES)
@given(st.lists(uris, min_size=20, max_size=60))
def test_the_server_reads_the_same_origin_from_an_address_as_the_browser(
    page: Page, addresses: list[str]
) -> None:
    origins = {each: redirect_origin(each) for each in addresses}
    usable = {uri: each for uri, each in origins.items() if each and each.startswith("http")}

    read = page.evaluate(READ, list(usable))

    assert read == [[origin, ""] for origin in usable.values()]
