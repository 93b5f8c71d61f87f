"""The plugin for the fake PSP: its settings, its pages and its webhooks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from adapters.catalogs import LANGUAGES
from adapters.psp.plugin import BackgroundWork, PspPlugin, Surroundings
from adapters.psp.settings import PspSettingsError, is_loopback
from domain.identifiers import MerchantAccount, ProviderName
from domain.outside import Clock, Ids
from domain.psps.capabilities import Capabilities

# Large modules are imported where they are used, so that commands start quickly.
if TYPE_CHECKING:
    import falcon

    from adapters.fake_psp.provider import FakeProvider

NAME: Final = ProviderName("fake")
ALLOW: Final = "CARDONFILE_ALLOW_FAKE_PSP"
DATABASE: Final = "CARDONFILE_FAKE_PSP_DATABASE"
MAX_CONSENT_LENGTH: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeSettings:
    """The path of the fake PSP's database file, and the base address of its pages."""

    database: Path
    base_url: str


def read(here: Surroundings) -> FakeSettings | None:
    """Read the settings. Raises PspSettingsError.

    Return None if the fake PSP is not allowed in this installation.
    """
    allowed = here.environment.get(ALLOW)
    if allowed not in (None, "1"):
        raise PspSettingsError(f"{ALLOW} must be 1 or unset")
    default = here.database_file.with_name(f"{here.database_file.stem}-fake-psp.db")
    database = Path(here.environment.get(DATABASE, default))
    if database.resolve() == here.database_file.resolve():
        raise PspSettingsError(f"{DATABASE} must not be the database file of the service")
    if allowed is None and not is_loopback(here.public_base_url):
        return None
    return FakeSettings(database=database, base_url=here.public_base_url)


def make(settings: FakeSettings, clock: Clock, ids: Ids) -> FakeProvider:
    """Open the fake PSP. Raises PspSettingsError if its file cannot be used."""
    from adapters.fake_psp.database import PspUnavailable
    from adapters.fake_psp.provider import FakeProvider
    from adapters.fake_psp.psp import FakePsp

    try:
        psp = FakePsp(settings.database, base_url=settings.base_url, clock=clock, ids=ids)
    except PspUnavailable as error:
        raise PspSettingsError(f"the fake PSP cannot use its database ({error})") from error
    return FakeProvider(psp, webhook_secret=psp.webhook_secret, clock=clock)


def _add_routes(provider: FakeProvider, app: falcon.App[falcon.Request, falcon.Response]) -> None:
    from adapters.fake_psp import charges, pages

    pages.add_routes(app, provider.psp)
    charges.add_routes(app, provider.psp)


def _send_webhooks(provider: FakeProvider, url: str) -> BackgroundWork:
    from adapters.fake_psp.webhooks import WebhookSender

    return WebhookSender(provider.psp, url=url)


def _how_to_set_up(_: MerchantAccount) -> str:
    return (
        "it is meant for this machine only; set CARDONFILE_PUBLIC_BASE_URL to a "
        f"loopback address, or set {ALLOW}=1 to allow it elsewhere"
    )


PLUGIN: Final = PspPlugin(
    interface=3,
    name=NAME,
    capabilities=Capabilities(
        max_consent_length=MAX_CONSENT_LENGTH,
        forgets_guests=True,
        reads_cards=True,
        lists_cards=True,
        tells_funding=True,
        requires_authentication=True,
        public_name="Fake PSP",
        locales=LANGUAGES,
    ),
    settings=(ALLOW, DATABASE),
    read=read,
    accounts=lambda _: None,
    how_to_set_up=_how_to_set_up,
    make=make,
    test_setting=ALLOW,
    add_routes=_add_routes,
    background=_send_webhooks,
    database=lambda settings: settings.database,
)
