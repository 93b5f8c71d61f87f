"""A variant of Acme's adapter, for an Acme that reports the outcome of a page only by webhook."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

from adapters.psp.webhooks import decode_webhook
from adapters.psp_example.adapter import AcmeEvent, AcmePage, AcmeProvider
from domain.identifiers import TokenId
from domain.psps import hosted_page as pages
from domain.psps.evidence import Evidence, EvidenceOrigin
from domain.psps.webhook import WebhookDelivery, WebhookNotice


class AcmeReport(AcmeEvent):
    page: AcmePage | None = None


REPORTS = msgspec.json.Decoder(list[AcmeReport])
REPORTED = msgspec.json.Decoder(AcmePage)


class AcmeByWebhook(AcmeProvider):
    def read_webhook(self, delivery: WebhookDelivery) -> Sequence[WebhookNotice]:
        account = self._verified(delivery)
        return [
            WebhookNotice(
                merchant_account=account,
                # The evidence contains all data that `outcome` needs, because the PSP cannot be
                # asked later.
                content=msgspec.json.encode(each.page).decode() if each.page else each.id,
                token_id=TokenId(each.reference.partition(":")[0]) if each.reference else None,
                card_token=each.card,
            )
            for each in decode_webhook(REPORTS, delivery.body)
            if each.page is not None or each.card is not None
        ]

    def outcome(
        self,
        request: pages.HostedPageRequest,
        page: pages.HostedPage,
        evidence: Sequence[Evidence],
    ) -> pages.Outcome:
        # Webhooks may arrive in any order. A page with a card keeps the card, and a closed page
        # stays closed; in all other cases the latest webhook decides.
        told = sorted(
            self._told(page, evidence),
            key=lambda each: (each.card is not None, each.status == "closed"),
        )
        return self._outcome(told[-1]) if told else pages.Pending()

    def _told(self, page: pages.HostedPage, evidence: Sequence[Evidence]) -> Iterator[AcmePage]:
        for each in evidence:
            # Guests can forge the evidence in the address to which their browsers return.
            if each.origin is EvidenceOrigin.WEBHOOK:
                with suppress(msgspec.MsgspecError, UnicodeError):
                    found = REPORTED.decode(each.content)
                    if found.id == page.reference:
                        yield found
