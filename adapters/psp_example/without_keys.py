"""A variant of Acme's adapter, for an Acme without idempotency keys.

It looks for an existing page in a list, which shows new pages late.
"""

from datetime import timedelta

import msgspec

from adapters.psp.http import JsonApi, RetryPolicy
from adapters.psp.settings import keys_of
from adapters.psp_example.adapter import PAGE, AcmePage, AcmeProvider
from domain.identifiers import MerchantAccount
from domain.psps import hosted_page as pages
from domain.psps.payment_provider import ProviderRefused, ProviderUnavailable

PAGES = msgspec.json.Decoder(list[AcmePage])
AT_ONCE = timedelta(seconds=1)
LIST_LAG = timedelta(seconds=11)
"""The longest time from the beginning of an attempt until the list shows its page. The call that
creates the page starts within 1 second and takes at most 5 seconds. After the call, the list shows
the page within 5 seconds.
"""


class AcmeWithoutKeys(AcmeProvider):
    def _api(self, account: MerchantAccount) -> JsonApi:
        keys = keys_of(self._accounts, account)
        return JsonApi(
            keys.url,
            headers={"Authorization": f"Bearer {keys.api_key}"},
            retry_policy=RetryPolicy(tries=1),
        )

    def start(self, request: pages.HostedPageRequest) -> pages.HostedPage:
        age = self._clock.now() - request.begun_at
        if AT_ONCE < age < LIST_LAG:
            raise ProviderUnavailable("the list may not show the page yet")
        with self._api(request.merchant_account) as api:
            made = self._made(api, request) if age >= LIST_LAG else []
            page = made[0] if made else api.ask(PAGE, "POST", "/pages", json=self._body(request))
        return self._page(request, page)

    def _made(self, api: JsonApi, request: pages.HostedPageRequest) -> list[AcmePage]:
        refusal = ""
        try:
            return api.ask(PAGES, "GET", f"/pages?reference={request.idempotency_key}")
        except ProviderRefused as refused:
            refusal = str(refused)
        # A page may exist, so the attempt is not over.
        raise ProviderUnavailable(refusal)
