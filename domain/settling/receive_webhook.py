"""Receive a PSP's webhook: store it as evidence, and make its sessions and cards on file due.

An unsigned webhook is not evidence, and it cannot make sessions due more often than a browser can.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from domain.identifiers import DEFAULT_MERCHANT_ACCOUNT, ProviderName, PspAccount
from domain.outside import Clock
from domain.psps.evidence import MAX_EVIDENCE, Evidence, EvidenceOrigin
from domain.psps.payment_provider import Providers, ProviderUnavailable, WebhookRejected
from domain.psps.webhook import WebhookDelivery, WebhookNotice
from domain.sessions.earlier_page import EarlierPage
from domain.sessions.session import CardSession
from domain.storage import Storage, UnitOfWork, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveWebhook:
    """Use case: verify a webhook, store it as evidence, and make its sessions due.

    The cards on file that the webhook names become due for reading. The same webhook may arrive
    more than once. A webhook has no effect if it is about an unknown session or card, the latest
    page of a settled session, or a closed merchant account. Raises WebhookRejected. Raises
    ProviderUnavailable if the PSP is not configured, or if there are no keys for the merchant
    account.
    """

    storage: Storage
    providers: Providers
    clock: Clock

    def __call__(self, provider: ProviderName, delivery: WebhookDelivery) -> None:
        """Verify and store the webhook. Does not call the PSP."""
        notices = [
            notice
            for notice in self._read(provider, delivery)
            if notice.signed or self._would_make_due(provider, notice)
        ]
        if not notices:
            return
        notices, now = self._in_order_of_locks(provider, notices), self.clock.now()

        def keep(unit: WriteUnit) -> int:
            foreign = 0
            for notice in notices:
                if _is_of_cards(notice):
                    account = PspAccount(provider, notice.merchant_account)
                    unit.accounts.make_due(
                        account,
                        now,
                        token=notice.card_token,
                        guest_reference=notice.guest_reference,
                    )
                    continue
                session = _session_of(unit, provider, notice)
                earlier = _earlier_pages(unit, session, notice)
                if session is None or not (earlier or session.may_be_asked_about):
                    continue
                if not _is_meant(provider, notice, session):
                    foreign += 1
                    continue
                for page in earlier:
                    unit.earlier_pages.keep(page.due_for_check(now))
                if not notice.signed:
                    unit.sessions.update(_due(session, earlier, now))
                    continue
                evidence = Evidence(
                    origin=EvidenceOrigin.WEBHOOK, content=notice.content, received_at=now
                )
                unit.evidence.add(session.token_id, evidence, at_most=MAX_EVIDENCE)
                unit.sessions.update(session.due_now(now))
            unit.commit()
            return foreign

        if self.storage.transact(keep) == len(notices):
            raise WebhookRejected("the sessions belong to another merchant account")

    def _read(self, provider: ProviderName, delivery: WebhookDelivery) -> Sequence[WebhookNotice]:
        """Verify a webhook, and return its notices except those about closed merchant accounts."""
        # The webhook is verified first, because its signature could become too old while the
        # database is read.
        try:
            notices = self.providers[provider].read_webhook(delivery)
        except (WebhookRejected, ProviderUnavailable):
            # The keys of a closed account may be gone, and a PSP repeats a webhook that is not
            # accepted.
            account = delivery.merchant_account or DEFAULT_MERCHANT_ACCOUNT
            if PspAccount(provider, account) not in self._closed():
                raise
            return []
        closed = self._closed()
        return [each for each in notices if (provider, each.merchant_account) not in closed]

    def _in_order_of_locks(
        self, provider: ProviderName, notices: list[WebhookNotice]
    ) -> list[WebhookNotice]:
        """Return the notices in the order in which records are locked: sessions by id, then cards.

        In any other order, this unit could deadlock with a unit that makes a guest's pages due.
        """
        if len(notices) == 1:
            return notices

        def place(notice: WebhookNotice) -> tuple[bool, str]:
            session = None if _is_of_cards(notice) else _session_of(unit, provider, notice)
            return _is_of_cards(notice), session.token_id if session else ""

        with self.storage.read() as unit:
            return sorted(notices, key=place)

    def _closed(self) -> Collection[PspAccount]:
        with self.storage.read() as unit:
            return unit.merchant_standings.closed()

    def _would_make_due(self, provider: ProviderName, notice: WebhookNotice) -> bool:
        """Return whether an unsigned notice would make a session due.

        Return False in the following cases. The notice is then ignored, and nothing is written to
        the storage.

        - The notice does not identify a session.
        - The session belongs to another merchant account.
        - It is not useful to ask the PSP about the session, and the notice cannot be about an
          earlier page.
        - The session is already due as soon as a browser's request may ask the PSP.
        """
        with self.storage.read() as unit:
            session = _session_of(unit, provider, notice)
            earlier = _earlier_pages(unit, session, notice)
        return (
            session is not None
            and (bool(earlier) or session.may_be_asked_about)
            and _is_meant(provider, notice, session)
            and _due(session, earlier, self.clock.now()) != session
        )


def _is_of_cards(notice: WebhookNotice) -> bool:
    return notice.card_token is not None or notice.guest_reference is not None


def _session_of(
    unit: UnitOfWork, provider: ProviderName, notice: WebhookNotice
) -> CardSession | None:
    session = None
    if notice.token_id is not None:
        session = unit.sessions.get(notice.token_id)
    if session is None and notice.page_reference is not None:
        session = unit.sessions.with_page(provider, notice.merchant_account, notice.page_reference)
    return session


def _earlier_pages(
    unit: UnitOfWork, session: CardSession | None, notice: WebhookNotice
) -> Sequence[EarlierPage]:
    """Return the earlier pages of a session that a notice may be about.

    If the notice does not identify a page, all earlier pages are returned.
    """
    if session is None:
        return ()
    return [
        page
        for page in unit.earlier_pages.of(session.token_id)
        if notice.page_reference in (None, page.page_reference)
    ]


def _due(session: CardSession, earlier: Sequence[EarlierPage], now: datetime) -> CardSession:
    return session.due_for_earlier_page(now) if earlier else session.due_when_allowed(now)


def _is_meant(provider: ProviderName, notice: WebhookNotice, session: CardSession) -> bool:
    configuration = session.configuration
    return (configuration.provider, configuration.merchant_account) == (
        provider,
        notice.merchant_account,
    )
