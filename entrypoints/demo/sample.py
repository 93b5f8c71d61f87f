"""The sample records of the demo: invented centers, guests, products, and a card.

Every id is fixed, so that a second run finds the records of the first run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID, uuid5

from adapters.catalogs import shipped_consents, shipped_reservation_texts
from adapters.fake_psp.plugin import NAME as FAKE
from domain.cards.account import Account
from domain.centers.center import Center
from domain.centers.center_settings import CenterSettings
from domain.centers.payment_configuration import CardsPerGuest, PaymentConfiguration
from domain.consents.given_consent import GivenConsent
from domain.guests.guest import Guest
from domain.identifiers import (
    AccountId,
    CallerName,
    CardToken,
    CenterId,
    GuestId,
    GuestReference,
    MerchantAccount,
    ProductId,
    TokenId,
)
from domain.languages import DEFAULT_LANGUAGE
from domain.products.product import Product
from domain.sessions.end import SessionStatus
from domain.sessions.polling import Progress
from domain.sessions.session import CardSession
from domain.source import DEFAULT_SOURCE
from domain.storage import Storage

_ACCOUNT: Final = MerchantAccount("default")


BILLING_INFO: Final = {"address": "1 Main Street", "zipcode": "98101", "country_code": "US"}
"""The billing address of every guest, in the API's format."""

EVE: Final = {"first_name": "Eve", "last_name": "Example", "email": "eve@example.com"}
"""The guest of the shop. Every visit adds a new guest with these details."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCenter:
    """A sample center, how it takes cards, and its products.

    `treatments` contains the name, the description and the price in US dollars of each product.
    """

    center: Center
    configuration: PaymentConfiguration
    treatments: tuple[tuple[str, str, str], ...]

    def products(self) -> Iterator[Product]:
        """Yield a product for each treatment."""
        for name, description, price in self.treatments:
            code = name.split()[0].upper()
            yield Product(
                id=ProductId(str(uuid5(UUID(self.center.id), code))),
                center_id=self.center.id,
                code=code,
                name=name,
                description=description,
                amount=Decimal(price),
                currency="USD",
            )


_LINK_MINUTES: Final = 7 * 24 * 60
SPA: Final = SampleCenter(
    center=Center(id=CenterId("5a000000-0000-4000-8000-000000000001"), name="Still Water Spa"),
    configuration=PaymentConfiguration(
        provider=FAKE,
        merchant_account=_ACCOUNT,
        link_minutes=_LINK_MINUTES,
        # The short times let a visitor see how the card of a booking is removed.
        keep_after_end_days=0,
    ),
    treatments=(
        ("Swedish massage", "Long, firm strokes for back and legs", "84.00"),
        ("Hot stone massage", "Warm stones along the spine", "108.00"),
        ("Aroma bath", "A bath with lavender or pine", "54.00"),
        ("Facial", "Cleansing, mask and a light massage", "72.00"),
        ("Body scrub", "Sea salt and almond oil", "66.00"),
    ),
)

EVES_CARD: Final = {"center_id": SPA.center.id, "billing_info": BILLING_INFO, "locale": "auto"}
"""The body that the shop sends to the API to add Eve's card."""


def a_booking(reference: str, now: datetime) -> dict[str, object]:
    """Return the `agreement` of an add-card request, for a massage that ends in two minutes."""
    return {
        "reference": reference,
        "description": "Swedish massage",
        "starts_at": (now + timedelta(minutes=1)).isoformat(timespec="seconds"),
        "ends_at": (now + timedelta(minutes=2)).isoformat(timespec="seconds"),
        "no_show": {"amount": "40.00", "currency": "EUR"},
        # The shop knows that its own guest opens the link, in the next window.
        "reuse": "offer",
    }


SALON: Final = SampleCenter(
    center=Center(id=CenterId("5a000000-0000-4000-8000-000000000002"), name="Corner Hair Salon"),
    configuration=PaymentConfiguration(
        provider=FAKE,
        merchant_account=_ACCOUNT,
        cards_per_guest=CardsPerGuest.ONE,
        link_minutes=_LINK_MINUTES,
    ),
    treatments=(
        ("Haircut", "Wash and cut", "39.00"),
        ("Styling", "Wash and blow-dry", "30.00"),
        ("Color", "One shade, from root to tip", "51.00"),
    ),
)

CLINIC: Final = SampleCenter(
    center=Center(id=CenterId("5a000000-0000-4000-8000-000000000003"), name="Clear Skin Clinic"),
    configuration=PaymentConfiguration(
        provider=FAKE, merchant_account=_ACCOUNT, avs=True, link_minutes=_LINK_MINUTES
    ),
    treatments=(
        ("Consultation", "A doctor looks at your skin", "45.00"),
        ("Peeling", "A mild fruit-acid peeling", "66.00"),
        ("Light therapy", "Blue light against blemishes", "57.00"),
    ),
)

CENTERS: Final = (SPA, SALON, CLINIC)

GUESTS: Final = tuple(
    Guest(
        id=GuestId(f"6e000000-0000-4000-8000-{number:012}"),
        first_name=first_name,
        last_name=last_name,
        email=f"{first_name.lower()}@example.com",
    )
    for number, (first_name, last_name) in enumerate(
        (("Ada", "Sample"), ("Ben", "Example"), ("Carla", "Specimen"), ("Dan", "Placeholder")), 1
    )
)

_ADDED_AT: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)

SESSION: Final = CardSession(
    token_id=TokenId("5e000000-0000-4000-8000-000000000001"),
    guest_id=GUESTS[-1].id,
    center_id=SPA.center.id,
    caller=CallerName("demo-sample"),
    source=DEFAULT_SOURCE,
    redirect_uri="https://shop.example/",
    billing_info=None,
    configuration=SPA.configuration,
    created_at=_ADDED_AT,
    expires_at=_ADDED_AT + timedelta(minutes=30),
    due_at=None,
    status=SessionStatus.COMPLETED,
    progress=Progress.RETURNED,
    account_id=AccountId("ca000000-0000-4000-8000-000000000001"),
    ended_at=_ADDED_AT,
)
"""A completed session of the last guest, which stored CARD."""

_CONSENT: Final = shipped_consents()[DEFAULT_LANGUAGE].at(SPA.center)

CARD: Final = Account(
    account_id=AccountId("ca000000-0000-4000-8000-000000000001"),
    token_id=SESSION.token_id,
    guest_id=SESSION.guest_id,
    center_id=SESSION.center_id,
    provider=FAKE,
    merchant_account=_ACCOUNT,
    # The fake PSP does not have this card. Guests cannot add it, because it is not a test card.
    guest_reference=GuestReference("guest_sample"),
    token=CardToken("card_sample"),
    fingerprint="sample",
    card_logo="visa",
    last_four="1111",
    expiry_month=12,
    expiry_year=2035,
    source=SESSION.source,
    consent_version=_CONSENT.version,
    consented_at=_ADDED_AT,
    created_at=_ADDED_AT,
    due_at=None,
    is_default=True,
)
"""The card that SESSION stored."""

CONSENT: Final = GivenConsent(
    account_id=CARD.account_id,
    token_id=SESSION.token_id,
    version=CARD.consent_version,
    language=_CONSENT.language,
    text=_CONSENT.text,
    agreed_at=CARD.consented_at,
)
"""The consent that the guest gave for CARD."""


def store_sample(storage: Storage) -> None:
    """Store the sample records, or update those of an earlier run. Raises ServiceUnavailable.

    The card is stored only once, so a card that was removed stays removed.
    """
    with storage.write() as unit:
        unit.centers.put_many(sample.center for sample in CENTERS)
        unit.guests.put_many(GUESTS)
        unit.products.put_many(product for sample in CENTERS for product in sample.products())
        for sample in CENTERS:
            unit.configurations.put(sample.center.id, sample.configuration)
            for text in shipped_consents().values():
                unit.consent_texts.put(sample.center.id, text)
        unit.center_settings.put(SPA.center.id, CenterSettings(time_zone="Europe/Berlin"))
        for reservation_text in shipped_reservation_texts().values():
            unit.reservation_texts.put(SPA.center.id, reservation_text)
        if unit.sessions.get(SESSION.token_id) is None:
            unit.sessions.add(SESSION)
            unit.accounts.add(CARD)
            unit.consents.add(CONSENT)
        unit.commit()
