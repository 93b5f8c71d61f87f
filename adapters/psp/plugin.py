"""How the adapter of a PSP offers itself to cardonfile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from adapters.psp.settings import AccountSettings
from domain.identifiers import MerchantAccount, ProviderName
from domain.ports import Clock, Ids, PaymentProvider

if TYPE_CHECKING:
    import falcon

ENTRY_POINTS = "cardonfile.psps"
"""The group of entry points that a distribution offers its plugins in, each under its name."""

PspSettings = TypeVar("PspSettings")
Adapter = TypeVar("Adapter", bound=PaymentProvider)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What an adapter may know of the installation when it reads its settings.

    `environment` holds the environment variables that are set and not empty. `database_file` is the
    file of the SQLite database, or where it would be by default.
    """

    environment: Mapping[str, str]
    public_base_url: str
    database_file: Path


class BackgroundWork(Protocol):
    """Something that runs beside the background worker, in threads of its own."""

    def start(self) -> None:
        """Start; called once."""
        ...

    def stop(self) -> None:
        """Stop after what is under way, within 20 seconds."""
        ...


def _nothing(_: object) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PspPlugin(Generic[PspSettings, Adapter]):
    """One PSP, as an entry point of the group `cardonfile.psps` offers it under the same name.

    `name` is what operators type: lower-case letters, digits and underscores.
    `read` gives the settings, with secrets absent from their `repr`, or None when the PSP is not
    set up. It raises SettingsError, with one sentence, for what cannot be right.
    `account_settings` and `settings` name all that it reads: each account's, and all others.
    `accounts` gives the merchant accounts that there are keys for, or None when any will do.
    `how_to_set_up` ends a sentence on an account that is not set up, such as "set CARDONFILE_…".
    `make` gives the adapter, a subclass of PaymentProvider. It may be called twice in a process,
    which may fork afterwards: it leaves nothing open. It raises SettingsError when a package is
    missing.
    `max_consent_length` is how many characters of consent its page shows at most.
    `live_setting` names a setting that holds a key for real cards, if there is one.
    `test_setting` names the setting that allows a PSP for test cards alone: it is refused beside
    live keys.
    `add_routes` puts pages of its own into the application, under `/<name>-…/`.
    `background` gives what it runs beside the worker; it is told where its webhooks go.
    """

    name: ProviderName
    max_consent_length: int
    read: Callable[[Surroundings], PspSettings | None]
    accounts: Callable[[PspSettings], Collection[MerchantAccount] | None]
    how_to_set_up: Callable[[MerchantAccount], str]
    make: Callable[[PspSettings, Clock, Ids], Adapter]
    account_settings: AccountSettings | None = None
    settings: tuple[str, ...] = ()
    live_setting: Callable[[PspSettings], str | None] = _nothing
    test_setting: str | None = None
    add_routes: Callable[[Adapter, falcon.App[falcon.Request, falcon.Response]], None] | None = None
    background: Callable[[Adapter, str], BackgroundWork] | None = None


# Any: what a plugin's settings and adapter are is its own affair.
AnyPspPlugin = PspPlugin[Any, Any]
