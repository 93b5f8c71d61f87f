"""Builders of complete sample records. Keyword arguments replace single fields."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from adapters.catalogs import shipped_consents
from adapters.psp_suite.samples import (
    GUEST_ID,
    MERCHANT_ACCOUNT,
    NOW,
    TOKEN_ID,
    a_page_request,
    a_uuid,
)
from domain.access.token import AccessToken
from domain.agreements.agreement import Agreement
from domain.agreements.reservation_text import ReservationText, ShownText
from domain.agreements.terms import AgreementTerms, Money
from domain.audit.entry import Action, Actor, AuditEntry
from domain.billing import BillingInfo
from domain.cards.account import Account
from domain.cards.discard import Discard
from domain.cards.import_card import CardToImport
from domain.centers.center import Center
from domain.centers.center_settings import CenterSettings, Logo
from domain.centers.payment_configuration import PaymentConfiguration
from domain.consents.consent_text import ConsentText
from domain.consents.given_consent import GivenConsent
from domain.desk_links.desk_link import DeskLink
from domain.events.event import CardSummary, Event, EventDelivery, EventEndpoint, EventType, Secrets
from domain.guests.guest import Guest
from domain.identifiers import (
    DEFAULT_MERCHANT_ACCOUNT,
    AccountId,
    AgreementId,
    CallerName,
    CardToken,
    CenterId,
    EndpointId,
    EventId,
    GuestReference,
    ProductId,
    ProviderName,
    PspAccount,
    TokenId,
    WorkerId,
    link_key_from,
)
from domain.permissions import Caller, Permission
from domain.portal.portal_session import PortalId, PortalSession, PortalVisit
from domain.products.product import Product
from domain.psps.card import Card
from domain.psps.evidence import Evidence, EvidenceOrigin
from domain.psps.hosted_page import Consent, HostedPage, PageAttempt, Prefill, PspGuest
from domain.psps.merchant_standing import MerchantStanding
from domain.sessions.refused_card import RefusedCard
from domain.sessions.session import CardSession
from domain.source import Source
from domain.worker.heartbeat import WorkerProcess
from tests.pictures import a_png

# `changes` is Any: fields of any type, whose names replace() checks.

PROVIDER: Final = ProviderName("fake")
CALLER: Final = CallerName("web-store")

CENTER_ID: Final = CenterId(a_uuid(1))
OTHER_CENTER_ID: Final = CenterId(a_uuid(2))


def a_center(**changes: Any) -> Center:
    return replace(Center(id=CENTER_ID, name="Harbor Spa"), **changes)


def a_consent_text(**changes: Any) -> ConsentText:
    """Return a center's custom consent text in German."""
    text = ConsentText(language="de", version="own-1", text="Sie erlauben es {center}.")
    return replace(text, **changes)


def a_shipped_consent(center_name: str = "Harbor Spa", language: str = "en") -> Consent:
    """Return the shipped consent, which applies unless an operator has set a custom text."""
    return shipped_consents()[language].at(a_center(name=center_name))


def a_guest(**changes: Any) -> Guest:
    guest = Guest(id=GUEST_ID, first_name="Zoë", last_name="Null", email="zoe@guests.example")
    return replace(guest, **changes)


def a_product(number: int = 1, **changes: Any) -> Product:
    product = Product(
        id=ProductId(a_uuid(1_000_000 + number)),
        center_id=CENTER_ID,
        code=f"P-{number}",
        name=f"Massage {number}",
        description="An hour of rest",
        amount=Decimal("120.50"),
        currency="EUR",
    )
    return replace(product, **changes)


def a_configuration(**changes: Any) -> PaymentConfiguration:
    configuration = PaymentConfiguration(
        provider=PROVIDER,
        merchant_account=MERCHANT_ACCOUNT,
        avs=True,
        redirect_origins=("https://shop.example", "myspa://"),
    )
    return replace(configuration, **changes)


def center_settings(**changes: Any) -> CenterSettings:
    settings = CenterSettings(
        contact="tel:+49301234567",
        color="#1d4f91",
        logo=Logo(media_type="image/png", content=a_png()),
    )
    return replace(settings, **changes)


def a_reservation_text(**changes: Any) -> ReservationText:
    text = ReservationText(
        language="en",
        version="2026-11",
        text="{cancel_by}: {late_cancellation}\n{no_show}",
        text_when_late="{late_cancellation}\n{no_show}",
        button="Agree",
        keep="Keep this card",
        on_psp_page="{starts_at}",
    )
    return replace(text, **changes)


def terms_of_a_booking(**changes: Any) -> AgreementTerms:
    starts_at = NOW + timedelta(days=10)
    terms = AgreementTerms(
        reference="booking-17",
        description="2 × massage",
        starts_at=starts_at,
        ends_at=starts_at + timedelta(hours=1),
        no_show=Money(amount=Decimal("80.00"), currency="EUR"),
        late_cancellation=Money(amount=Decimal("40.00"), currency="EUR"),
        cancel_by=starts_at - timedelta(days=1),
        policy_uri="https://shop.example/terms",
    )
    return replace(terms, **changes)


def an_agreement(number: int = 1, **changes: Any) -> Agreement:
    terms = terms_of_a_booking(reference=f"booking-{number}")
    agreement = Agreement(
        agreement_id=AgreementId(a_uuid(700 + number)),
        account_id=AccountId(a_uuid(101)),
        guest_id=GUEST_ID,
        center_id=CENTER_ID,
        token_id=TOKEN_ID,
        terms=terms,
        shown=ShownText(
            version="2026-11",
            language="en",
            text="You may charge my card.",
            button="Agree",
            keep="Keep this card",
            on_psp_page="This card guarantees your booking.",
        ),
        agreed_at=NOW,
        kept_until=terms.ends_at + timedelta(days=7),
        due_at=terms.ends_at,
    )
    return replace(agreement, **changes)


def a_page(**changes: Any) -> HostedPage:
    page = HostedPage(
        reference="page-1",
        address="https://psp.example/pages/page-1",
        ends_at=NOW + timedelta(minutes=30),
        guest_reference=GuestReference("guest-at-psp"),
    )
    return replace(page, **changes)


def an_attempt(**changes: Any) -> PageAttempt:
    """Return an attempt whose page the PSP has created."""
    return replace(PageAttempt(request=a_page_request(), page=a_page()), **changes)


def a_session(**changes: Any) -> CardSession:
    """Return an open session whose link nobody has opened yet."""
    session = CardSession(
        token_id=TOKEN_ID,
        guest_id=GUEST_ID,
        center_id=CENTER_ID,
        caller=CALLER,
        source=Source.MOBILE,
        redirect_uri="https://shop.example/cards?done=1",
        billing_info=BillingInfo(last_name="null", zipcode="08001", country_code="ES"),
        configuration=a_configuration(),
        created_at=NOW,
        expires_at=NOW + timedelta(minutes=30),
        due_at=NOW + timedelta(minutes=30),
    )
    link_key = link_key_from(changes.get("token_id", TOKEN_ID))
    return replace(session, **{"link_key": link_key, **changes})


def a_refused_card(**changes: Any) -> RefusedCard:
    """Return the first card that was refused on the first page of a session."""
    card = RefusedCard(
        token_id=TOKEN_ID,
        attempt=1,
        number=1,
        guest_id=GUEST_ID,
        caller=CALLER,
        center_id=CENTER_ID,
        refused_at=NOW,
    )
    return replace(card, **changes)


def an_evidence(**changes: Any) -> Evidence:
    """Return evidence from a webhook."""
    evidence = Evidence(origin=EvidenceOrigin.WEBHOOK, content='{"card": "yes"}', received_at=NOW)
    return replace(evidence, **changes)


def an_account(number: int = 1, **changes: Any) -> Account:
    """Return an active account. Each number has its own card and session."""
    account = Account(
        account_id=AccountId(a_uuid(100 + number)),
        token_id=TokenId(a_uuid(200 + number)),
        guest_id=GUEST_ID,
        center_id=CENTER_ID,
        provider=PROVIDER,
        merchant_account=MERCHANT_ACCOUNT,
        guest_reference=GuestReference("guest-at-psp"),
        token=CardToken(f"token-{number}"),
        fingerprint=f"fingerprint-{number}",
        card_logo="visa",
        last_four="4242",
        expiry_month=3,
        expiry_year=2031,
        source=Source.WEB_STORE,
        consent_version="2026-11",
        consented_at=NOW,
        created_at=NOW,
        due_at=None,
    )
    return replace(account, **changes)


def a_consent(number: int = 1, **changes: Any) -> GivenConsent:
    """Return the consent under which the account with this number was stored."""
    account = an_account(number)
    consent = GivenConsent(
        account_id=account.account_id,
        token_id=account.token_id,
        version=account.consent_version,
        language="en",
        text="You may charge my card.",
        agreed_at=account.consented_at,
    )
    return replace(consent, **changes)


def a_discard(**changes: Any) -> Discard:
    """Return a discard that is due immediately."""
    discard = Discard(
        provider=PROVIDER,
        merchant_account=MERCHANT_ACCOUNT,
        guest_reference=GuestReference("guest-at-psp"),
        token=CardToken("token-1"),
        due_at=NOW,
    )
    return replace(discard, **changes)


def an_event_endpoint(**changes: Any) -> EventEndpoint:
    """Return an endpoint that is subscribed to two event types of one center."""
    endpoint = EventEndpoint(
        endpoint_id=EndpointId(a_uuid(400)),
        url="https://shop.example/events",
        types=(EventType.ACCOUNT_STORED, EventType.SESSION_FAILED),
        centers=frozenset({CENTER_ID}),
        secrets=Secrets.of("a secret of thirty-two characters"),
        created_at=NOW,
    )
    return replace(endpoint, **changes)


def an_event_delivery(number: int = 1, **changes: Any) -> EventDelivery:
    """Return a delivery of the event with this number. The delivery is due immediately."""
    delivery = EventDelivery(
        event=Event(
            event_id=EventId(f"evt_{a_uuid(500 + number)}"),
            type=EventType.ACCOUNT_STORED,
            occurred_at=NOW,
            guest_id=GUEST_ID,
            center_id=CENTER_ID,
            token_id=TOKEN_ID,
            account_id=AccountId(a_uuid(101)),
            status="active",
            card=CardSummary(card_logo="visa", last_four="4242", expiry_on="09/31"),
        ),
        endpoint_id=EndpointId(a_uuid(400)),
        due_at=NOW,
    )
    return replace(delivery, **changes)


def a_caller(**changes: Any) -> Caller:
    """Return a caller with two permissions, limited to two centers."""
    caller = Caller(
        name=CALLER,
        permissions=frozenset({Permission.GUESTS_ADD, Permission.PAYMENTS_USE}),
        centers=frozenset({CENTER_ID, OTHER_CENTER_ID}),
    )
    return replace(caller, **changes)


def an_audit_entry(number: int = 1, **changes: Any) -> AuditEntry:
    """Return an entry of the audit trail."""
    entry = AuditEntry(
        entry_id=a_uuid(600 + number),
        happened_at=NOW,
        actor=Actor("user:deploy"),
        action=Action.TOKEN_ISSUED,
        about="cof_Jx2vQ9aT",
    )
    return replace(entry, **changes)


def an_access_token(**changes: Any) -> AccessToken:
    """Return an access token that was just issued."""
    token = AccessToken(
        token_hash="5e884898da28047151d0e56f8dc62927",
        prefix="5e88",
        caller=a_caller(),
        issued_at=NOW,
        expires_at=NOW + timedelta(hours=24),
    )
    return replace(token, **changes)


def a_desk_link(**changes: Any) -> DeskLink:
    """Return a desk link for the session that `a_session` returns."""
    link = DeskLink(
        secret_hash="8c6976e5b5410415bde908bd4dee15df",
        token_id=TOKEN_ID,
        label="Chair 3",
        caller=a_caller(),
        access_token_hash=an_access_token().token_hash,
        created_at=NOW,
    )
    return replace(link, **changes)


def a_portal_session(number: int = 1, **changes: Any) -> PortalSession:
    """Return a portal link of the sample guest that one browser has opened."""
    session = PortalSession(
        portal_id=PortalId(a_uuid(800 + number)),
        secret_hash=f"hash-{number}",
        guest_id=GUEST_ID,
        center_id=CENTER_ID,
        caller=CALLER,
        access_token_hash=an_access_token().token_hash,
        shows_guest=True,
        return_uri="https://shop.example/account",
        locale="de-AT",
        created_at=NOW,
        expires_at=NOW + timedelta(minutes=15),
        visits=(PortalVisit(secret_hash="hash", ends_at=NOW + timedelta(hours=1)),),
    )
    return replace(session, **changes)


def a_psp_guest() -> PspGuest:
    """Return the reference of a guest at a PSP."""
    return PspGuest(PROVIDER, MERCHANT_ACCOUNT, GUEST_ID, CENTER_ID, Prefill.GUEST)


def a_standing(**changes: Any) -> MerchantStanding:
    """Return the standing of the merchant account that the other builders use."""
    return replace(MerchantStanding.of(PspAccount(PROVIDER, MERCHANT_ACCOUNT)), **changes)


def a_worker(number: int = 1, **changes: Any) -> WorkerProcess:
    """Return a background worker."""
    worker = WorkerProcess(
        worker_id=WorkerId(f"worker {number}"), host=f"host-{number}", pid=number, release="0.2.0"
    )
    return replace(worker, **changes)


# Any: `changes` holds fields of any type, and replace() refuses wrong names.
def a_card_to_import(card: Card, **changes: Any) -> CardToImport:
    """Return a card at the PSP, as a row of an import file describes it."""
    brought = CardToImport(
        guest_id=GUEST_ID,
        center_id=CENTER_ID,
        provider=ProviderName("fake"),
        merchant_account=DEFAULT_MERCHANT_ACCOUNT,
        guest_reference=card.guest_reference,
        token=card.token,
        consented_at=NOW - timedelta(days=400),
        consent_version="2024-05",
        consent_language=None,
        consent_text=None,
    )
    return replace(brought, **changes)
