"""The plugin interface, with which a package adds a PSP to cardonfile."""

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
    """The facts about an installation that an adapter needs to read its settings.

    `environment` contains the environment variables that are set and not empty. If an operator
    keeps the setting X in a file and sets `X_FILE`, `environment` contains X. The name of a PSP's
    setting must therefore not end in `_FILE`. `database_file` is the path of the SQLite database,
    or its default path if the service uses PostgreSQL.
    """

    environment: Mapping[str, str]
    public_base_url: str
    database_file: Path


class BackgroundWork(Protocol):
    """Work that runs in separate threads of the background worker's process."""

    def start(self) -> None:
        """Start the threads. The worker calls this method once."""
        ...

    def stop(self) -> None:
        """Finish the current work, and stop within 20 seconds."""
        ...


def _nothing(*_: object) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PspPlugin(Generic[PspSettings, Adapter]):
    """One PSP. It is registered as an entry point of the group `cardonfile.psps` with its `name`.

    Values:

    - `interface`: the version of `adapters/psp/interface.py` for which the plugin was written, as a
      literal number.
    - `name`: the name that operators type, in lower-case letters, digits and underscores.
    - `capabilities`: the capabilities of the PSP.
    - `account_settings`: the settings that each merchant account has.
    - `settings`: the names of all other variables that the plugin reads.
    - `test_setting`: only for a PSP that takes nothing but test cards, the setting with which an
      operator allows this PSP. Such a PSP is refused in an installation with live keys.

    Functions:

    - `read` returns the settings, or None if the PSP is not set up. The `repr` of the settings may
      show addresses, but nothing else, not even a merchant's id. Raises PspSettingsError, with one
      sentence, for wrong settings.
    - `accounts` returns the merchant accounts that have keys, or None if the PSP accepts any name.
    - `how_to_set_up` returns the end of a sentence about an account without keys, such as
      "set `CARDONFILE_…`".
    - `make` returns the adapter, a subclass of PaymentProvider. `make` may be called twice, and the
      process may fork afterwards, so `make` must not leave anything open. Raises PspSettingsError
      if a package is missing.
    - `live_setting` returns the name of a setting that contains a key for real cards, or None if
      there is no such key.
    - `is_live` returns whether an account takes real cards, or None if its keys do not show that.
    - `currency` returns the currency that is set for an account (ISO 4217), or None if none is set.
    - `add_routes` adds the PSP's own pages to the application, below `/<name>-…/`.
    - `background` returns work that runs in the worker's process. The function receives the URL for
      the PSP's webhooks.
    - `database` returns the path of the PSP's SQLite file, or None if there is no such file.
      Backups include the file.
    - `check` tries the keys of an account, and looks for other faults in the account's setup at the
      PSP. The function receives the URL to which the PSP should send webhooks. It must not change
      anything at the PSP, must not raise exceptions, and must end within 5 seconds.
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
