"""Load the PSPs of an installation: cardonfile's own PSPs, and those listed in CARDONFILE_PSPS.

Each PSP is an entry point of the group `cardonfile.psps`. The code of a plugin can read every key,
so a plugin of another distribution is imported only if CARDONFILE_PSPS lists it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from adapters.psp.interface import INTERFACE
from adapters.psp.plugin import ENTRY_POINTS, AnyPspPlugin, BackgroundWork, PspPlugin, Surroundings
from adapters.psp.settings import PspSettingsError
from domain.identifiers import MerchantAccount, ProviderName
from domain.outside import Clock, Ids
from domain.psps.capabilities import Capabilities
from domain.psps.payment_provider import PaymentProvider
from entrypoints.settings_error import SettingsError

if TYPE_CHECKING:
    import falcon

PSPS_SETTING: Final = "CARDONFILE_PSPS"
OWN_DISTRIBUTION: Final = "cardonfile"
MAX_FAULT_LENGTH: Final = 200

_ABOUT_CODE: Final = (ImportError, AttributeError, NameError, SyntaxError, TypeError)

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_CURRENCY = re.compile(r"[A-Za-z]{3}")

Returned = TypeVar("Returned")


@dataclass(frozen=True, slots=True)
class InstalledPsp:
    """A loaded PSP, and its settings, which are None if the PSP is not set up.

    If a method calls the plugin and the plugin raises an exception, the method raises a
    SettingsError whose text is one sentence. Only `is_live` and `currency` return None instead.
    """

    plugin: AnyPspPlugin
    settings: Any = field(repr=False)  # of a type that only its plugin knows

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the PSP."""
        return self.plugin.capabilities

    @property
    def is_set_up(self) -> bool:
        """Whether the PSP has settings."""
        return self.settings is not None

    def accounts(self) -> Collection[MerchantAccount] | None:
        """Return the merchant accounts that have keys, or None if the PSP accepts any account."""
        return _call(self.plugin, "list its accounts", lambda: self.plugin.accounts(self.settings))

    def how_to_set_up(self, account: MerchantAccount) -> str:
        """Return advice on how to set up an account, such as "set CARDONFILE_ACME_API_KEY"."""
        return _call(
            self.plugin, "say how to set it up", lambda: str(self.plugin.how_to_set_up(account))
        )

    @property
    def live_setting(self) -> str | None:
        """The name of a setting that contains a key for real cards.

        None if there is no such key.
        """
        if not self.is_set_up:
            return None
        return _call(
            self.plugin, "name its live keys", lambda: self.plugin.live_setting(self.settings)
        )

    @property
    def takes_test_cards(self) -> bool:
        """Whether the PSP is set up and takes only test cards."""
        return self.is_set_up and self.plugin.test_setting is not None

    def is_live(self, account: MerchantAccount) -> bool | None:
        """Return whether an account takes real cards, or None if that is not known.

        Never raises.
        """
        if self.plugin.test_setting is not None:
            return False
        if not self.is_set_up:
            return None
        with suppress(SettingsError):
            answer = _call(
                self.plugin, "say its mode", lambda: self.plugin.is_live(self.settings, account)
            )
            return answer if isinstance(answer, bool) else None
        return None

    def currency(self, account: MerchantAccount) -> str | None:
        """Return the currency that is set for an account, in capitals, or None if none is set.

        Never raises.
        """
        if not self.is_set_up:
            return None
        with suppress(SettingsError):
            answer = _call(
                self.plugin,
                "say its currency",
                lambda: str(self.plugin.currency(self.settings, account)),
            )
            return answer.upper() if _CURRENCY.fullmatch(answer) else None
        return None

    @property
    def database(self) -> Path | None:
        """The SQLite file in which the PSP stores its own data, or None if there is no such file."""
        if not self.is_set_up:
            return None
        return _call(self.plugin, "name its database", lambda: self.plugin.database(self.settings))

    def make(self, clock: Clock, ids: Ids) -> PaymentProvider:
        """Return a new adapter. The PSP must be set up."""
        adapter: PaymentProvider = _call(
            self.plugin,
            "be used with its settings",
            lambda: self.plugin.make(self.settings, clock, ids),
        )
        if PaymentProvider not in type(adapter).__mro__:
            raise SettingsError(
                f"the plug-in of the PSP {self.plugin.name} does not make a PaymentProvider"
            )
        return adapter

    def add_routes(
        self, adapter: PaymentProvider, app: falcon.App[falcon.Request, falcon.Response]
    ) -> None:
        """Add the PSP's pages to the application, if it has any."""
        add_routes = self.plugin.add_routes
        if add_routes is not None:
            _call(self.plugin, "add its pages", lambda: add_routes(adapter, app))

    def background(self, adapter: PaymentProvider, webhooks_url: str) -> BackgroundWork | None:
        """Return the work that the PSP runs in the worker's process, or None if it runs no work.

        `webhooks_url` is the URL at which the PSP's webhooks reach the service.
        """
        background = self.plugin.background
        if background is None:
            return None
        return _call(
            self.plugin, "run beside the worker", lambda: background(adapter, webhooks_url)
        )


def _call(plugin: AnyPspPlugin, what: str, function: Callable[[], Returned]) -> Returned:
    """Call a function of a plugin. Any exception becomes a SettingsError.

    `what` completes the sentence "the PSP cannot …" of the error.
    """
    try:
        return function()
    except PspSettingsError as error:
        raise SettingsError(str(error)) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin may raise anything
        # The text of a plugin's exception may contain a secret, so only its type is shown.
        raise SettingsError(
            f"the PSP {plugin.name} cannot {what} ({type(error).__name__})"
        ) from None


def installed_names() -> Sequence[str]:
    """Return the names of all installed PSPs, sorted, without importing a plugin."""
    return sorted(_entry_points())


def distribution_of(name: str) -> str:
    """Return the name and version of the distribution that provides a PSP.

    If several distributions provide the PSP, all are returned. Raises SettingsError if the PSP is
    not installed.
    """
    installed = _entry_points()
    if name not in installed:
        raise SettingsError(_not_installed(name, installed))
    return " and ".join(
        f"{_distribution(found)} {found.dist.version if found.dist else ''}".rstrip()
        for found in installed[name]
    )


def load_psps(named: str | None) -> Mapping[ProviderName, AnyPspPlugin]:
    """Import cardonfile's own PSPs and those in `named`, which is the value of CARDONFILE_PSPS.

    Return the plugins by name. Raises SettingsError for a PSP that is unknown, broken, or installed
    twice.
    """
    return _load(frozenset(name.strip() for name in (named or "").split(",") if name.strip()))


def read_psps(
    plugins: Mapping[ProviderName, AnyPspPlugin], surroundings: Surroundings
) -> Mapping[ProviderName, InstalledPsp]:
    """Read the settings of each PSP. Raises SettingsError for the first unusable setting."""
    return {
        name: InstalledPsp(
            plugin, _call(plugin, "read its settings", partial(plugin.read, surroundings))
        )
        for name, plugin in plugins.items()
    }


@cache
def _load(named: frozenset[str]) -> Mapping[ProviderName, AnyPspPlugin]:
    installed = _entry_points()
    unknown = sorted(named - installed.keys())
    if unknown:
        raise SettingsError(f"{PSPS_SETTING}: {_not_installed(unknown[0], installed)}")
    plugins: dict[ProviderName, AnyPspPlugin] = {}
    for name, found in sorted(installed.items()):
        distributions = sorted(map(_distribution, found))
        if name not in named and OWN_DISTRIBUTION not in distributions:
            continue
        if len(found) > 1:
            raise SettingsError(
                f"the PSP {name} is provided by {' and '.join(distributions)}: uninstall all but one"
            )
        plugins[ProviderName(name)] = _plugin(found[0])
    for one, other in permutations(plugins, 2):
        if other.startswith(f"{one}_"):
            raise SettingsError(
                f"{PSPS_SETTING}: the settings of the PSP {other} have the same names as those of "
                f"the account {other.removeprefix(f'{one}_')} of the PSP {one}; use only one of "
                "these PSPs"
            )
    return plugins


def _entry_points() -> Mapping[str, Sequence[EntryPoint]]:
    by_name: dict[str, list[EntryPoint]] = defaultdict(list)
    for entry_point in entry_points(group=ENTRY_POINTS):
        by_name[entry_point.name].append(entry_point)
    return by_name


def _not_installed(name: str, installed: Collection[str]) -> str:
    return f"no PSP {name!a} is installed; the installed ones are {', '.join(sorted(installed))}"


def _plugin(found: EntryPoint) -> AnyPspPlugin:
    distribution = _distribution(found)
    where = f"{PSPS_SETTING}: the PSP {found.name} of {distribution}"
    right_one = f"install a release of {distribution} for interface {INTERFACE}"
    try:
        plugin = found.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin may raise anything
        # The text of other errors may contain a secret.
        is_about_code = isinstance(error, _ABOUT_CODE)
        text = f": {error}" if is_about_code else ""
        why = repr(f"{type(error).__name__}{text}"[:MAX_FAULT_LENGTH])[1:-1]
        advice = f"; if it is for another interface, {right_one}" if is_about_code else ""
        raise SettingsError(f"{where} cannot be loaded: {why}{advice}") from None
    if isinstance(plugin, PspPlugin) and plugin.interface != INTERFACE:
        raise SettingsError(
            f"{where} is for the PSP interface {plugin.interface!a}, but this cardonfile has "
            f"{INTERFACE}: {right_one}"
        )
    if not isinstance(plugin, PspPlugin) or not isinstance(plugin.settings, tuple):
        raise SettingsError(f"{where} is not a PspPlugin: {found.value}")
    if plugin.name != found.name or not _NAME.fullmatch(found.name):
        raise SettingsError(
            f"{where} calls itself {plugin.name!a}: use the same name in the plugin and in its "
            "entry point, with only lower-case letters, digits and underscores"
        )
    return plugin


def _distribution(found: EntryPoint) -> str:
    return found.dist.name if found.dist is not None else "an unknown package"
