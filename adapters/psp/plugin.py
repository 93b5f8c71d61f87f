"""The plugin interface: how a package adds a PSP to cardonfile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from adapters.psp.findings import Finding
from adapters.psp.settings import AccountSettings
from domain.identifiers import MerchantAccount, ProviderName
from domain.outside import Clock, Ids
from domain.psps.capabilities import Capabilities
from domain.psps.payment_provider import PaymentProvider

if TYPE_CHECKING:
    import falcon

ENTRY_POINTS = "cardonfile.psps"
"""The entry point group in which a distribution registers its plugins by name."""

PspSettings = TypeVar("PspSettings")
Adapter = TypeVar("Adapter", bound=PaymentProvider)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The installation, as far as an adapter needs it to read its settings.

    `environment` holds the environment variables that are set and not empty. If an operator keeps
    the setting X in a file and sets `X_FILE`, it holds X; so no setting of a PSP ends in `_FILE`.
    `database_file` is the SQLite database, or its default path if the service uses another
    database.
    """

    environment: Mapping[str, str]
    public_base_url: str
    database_file: Path


class BackgroundWork(Protocol):
    """Work that runs in its own threads beside the background worker."""

    def start(self) -> None:
        """Start the threads; called once."""
        ...

    def stop(self) -> None:
        """Finish the current work, and stop within 20 seconds."""
        ...


def _nothing(*_: object) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PspPlugin(Generic[PspSettings, Adapter]):
    """One PSP, registered as an entry point of the group `cardonfile.psps` with the same name.

    - `interface`: the number in `adapters/psp/interface.py` for which it was written, as a literal.
    - `name`: what operators type, in lower-case letters, digits and underscores.
    - `capabilities`: what the PSP can do.
    - `read` returns the settings, or None if the PSP is not set up. Their `repr` shows only addresses,
      not even a merchant's id. It raises PspSettingsError, with one sentence, for wrong settings.
    - `accounts` returns the merchant accounts with keys, or None if the PSP accepts any name.
    - `how_to_set_up` returns the end of a sentence about an account without keys, such as
      "set `CARDONFILE_…`".
    - `make` returns the adapter, a subclass of PaymentProvider. It may be called twice, and the
      process may fork afterwards, so it must leave nothing open. It raises PspSettingsError if a
      package is missing.
    - `account_settings` and `settings` name every variable that it reads: per account, and others.
    - `live_setting` returns the name of a setting that holds a key for real cards, or None.
    - `is_live` returns whether an account takes real cards, or None if its keys do not show it.
    - `currency` returns the currency that is set for an account (ISO 4217), or None.
    - `test_setting` names the setting that allows a PSP that takes only test cards. Such a PSP is
      refused beside live keys.
    - `add_routes` adds the PSP's own pages to the application, below `/<name>-…/`.
    - `background` returns work to run beside the worker; it receives the URL of the PSP's webhooks.
    - `database` returns the PSP's own SQLite file, which a backup copies, or None.
    - `check` tries the keys of an account, and looks for other faults at the PSP. It receives the
      URL to which the PSP should send webhooks. It changes nothing at the PSP, raises nothing, and
      takes at most 5 seconds.
    """

    interface: int
    name: ProviderName
    capabilities: Capabilities
    read: Callable[[Surroundings], PspSettings | None]
    accounts: Callable[[PspSettings], Collection[MerchantAccount] | None]
    how_to_set_up: Callable[[MerchantAccount], str]
    make: Callable[[PspSettings, Clock, Ids], Adapter]
    account_settings: AccountSettings | None = None
    settings: tuple[str, ...] = ()
    live_setting: Callable[[PspSettings], str | None] = _nothing
    is_live: Callable[[PspSettings, MerchantAccount], bool | None] = _nothing
    currency: Callable[[PspSettings, MerchantAccount], str | None] = _nothing
    test_setting: str | None = None
    add_routes: Callable[[Adapter, falcon.App[falcon.Request, falcon.Response]], None] | None = None
    background: Callable[[Adapter, str], BackgroundWork] | None = None
    database: Callable[[PspSettings], Path | None] = _nothing
    check: Callable[[Adapter, MerchantAccount, str], Sequence[Finding]] | None = None


# Any: each plugin has its own types for settings and adapter.
AnyPspPlugin = PspPlugin[Any, Any]
