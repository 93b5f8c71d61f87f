"""The PSPs of an installation: those of cardonfile, and those that CARDONFILE_PSPS names.

Each is an entry point of the group `cardonfile.psps`. The code of a PSP sees every key, so one of
another distribution is not imported before an operator has named it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from itertools import permutations
from typing import TYPE_CHECKING, Any, Final, TypeVar

from adapters.psp.plugin import ENTRY_POINTS, AnyPspPlugin, BackgroundWork, PspPlugin, Surroundings
from adapters.psp.settings import SettingsError
from domain.identifiers import MerchantAccount, ProviderName
from domain.ports import Clock, Ids, PaymentProvider

if TYPE_CHECKING:
    import falcon

PSPS_SETTING: Final = "CARDONFILE_PSPS"
OWN_DISTRIBUTION: Final = "cardonfile"

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


Given = TypeVar("Given")


@dataclass(frozen=True, slots=True)
class InstalledPsp:
    """A PSP that is here; its settings are None when it is not set up.

    Every method raises SettingsError, with one sentence, when the plugin fails in whatever way.
    """

    plugin: AnyPspPlugin
    settings: Any = field(repr=False)  # each PSP's own, of which only its plugin knows more

    @property
    def is_set_up(self) -> bool:
        """Tell whether there is anything to reach it with."""
        return self.settings is not None

    def has_keys_for(self, account: MerchantAccount) -> bool:
        """Tell whether a center may take cards for this merchant account."""
        if not self.is_set_up:
            return False
        accounts: Collection[MerchantAccount] | None = _ask(
            self.plugin, "tell its accounts", lambda: self.plugin.accounts(self.settings)
        )
        return accounts is None or account in accounts

    def how_to_set_up(self, account: MerchantAccount) -> str:
        """End a sentence on an account that is not set up."""
        return _ask(
            self.plugin, "tell how to set it up", lambda: str(self.plugin.how_to_set_up(account))
        )

    @property
    def live_setting(self) -> str | None:
        """Name a setting that holds a key for real cards; None when there is none."""
        if not self.is_set_up:
            return None
        return _ask(
            self.plugin, "tell its live keys", lambda: self.plugin.live_setting(self.settings)
        )

    def make(self, clock: Clock, ids: Ids) -> PaymentProvider:
        """Give its adapter."""
        adapter: PaymentProvider = _ask(
            self.plugin,
            "be used with its settings",
            lambda: self.plugin.make(self.settings, clock, ids),
        )
        if PaymentProvider not in type(adapter).__mro__:
            raise SettingsError(f"the PSP {self.plugin.name} makes no PaymentProvider")
        return adapter

    def add_routes(
        self, adapter: PaymentProvider, app: falcon.App[falcon.Request, falcon.Response]
    ) -> None:
        """Add its pages, if it has any."""
        add_routes = self.plugin.add_routes
        if add_routes is not None:
            _ask(self.plugin, "add its pages", lambda: add_routes(adapter, app))

    def background(self, adapter: PaymentProvider, webhooks_url: str) -> BackgroundWork | None:
        """Give what it runs beside the worker, or None."""
        background = self.plugin.background
        if background is None:
            return None
        return _ask(self.plugin, "run beside the worker", lambda: background(adapter, webhooks_url))


def _ask(plugin: AnyPspPlugin, what: str, ask: Callable[[], Given]) -> Given:
    """Have a plugin do something. Raises SettingsError, without the text of any other failure."""
    try:
        return ask()
    except SettingsError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the code of others does
        # The code of others may put a secret into its text.
        raise SettingsError(
            f"the PSP {plugin.name} cannot {what} ({type(error).__name__})"
        ) from None


def installed_names() -> Sequence[str]:
    """Name every PSP that is installed, whether named by CARDONFILE_PSPS or not; imports none."""
    return sorted(_offers())


def load_psps(named: str | None) -> Mapping[ProviderName, AnyPspPlugin]:
    """Import the PSPs of cardonfile, and those that CARDONFILE_PSPS names, with commas between.

    Raises SettingsError for one that is unknown, broken, or offered twice.
    """
    return _load(frozenset(name.strip() for name in (named or "").split(",") if name.strip()))


def read_psps(
    plugins: Mapping[ProviderName, AnyPspPlugin], here: Surroundings
) -> Mapping[ProviderName, InstalledPsp]:
    """Read the settings of each PSP. Raises SettingsError for the first that cannot be used."""
    return {
        name: InstalledPsp(plugin, _ask(plugin, "read its settings", partial(plugin.read, here)))
        for name, plugin in plugins.items()
    }


@cache
def _load(named: frozenset[str]) -> Mapping[ProviderName, AnyPspPlugin]:
    offers = _offers()
    unknown = sorted(named - offers.keys())
    if unknown:
        raise SettingsError(
            f"{PSPS_SETTING}: no PSP {unknown[0]!a} is installed; there are {', '.join(sorted(offers))}"
        )
    plugins: dict[ProviderName, AnyPspPlugin] = {}
    for name, offered in sorted(offers.items()):
        if name in named or any(map(_is_own, offered)):
            if len(offered) > 1:
                packages = " and ".join(sorted(map(_distribution, offered)))
                raise SettingsError(
                    f"the PSP {name} is offered by {packages}: uninstall all but one"
                )
            plugins[ProviderName(name)] = _plugin(offered[0])
    for one, other in permutations(plugins, 2):
        if other.startswith(f"{one}_"):
            raise SettingsError(
                f"{PSPS_SETTING}: {other} would share settings with the account "
                f"{other.removeprefix(f'{one}_')} of {one}: use only one of them"
            )
    return plugins


def _offers() -> Mapping[str, Sequence[EntryPoint]]:
    offers: dict[str, list[EntryPoint]] = defaultdict(list)
    for entry_point in entry_points(group=ENTRY_POINTS):
        offers[entry_point.name].append(entry_point)
    return offers


def _plugin(offered: EntryPoint) -> AnyPspPlugin:
    where = f"{PSPS_SETTING}: the PSP {offered.name} of {_distribution(offered)}"
    try:
        plugin = offered.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the code of others does
        # Of what the code of others says when it fails, only the kind is sure to hold no secret.
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        why = f"there is no module {missing}" if missing else type(error).__name__
        raise SettingsError(f"{where} cannot be loaded: {why}") from None
    if not isinstance(plugin, PspPlugin) or not isinstance(plugin.settings, tuple):
        raise SettingsError(f"{where} is no PspPlugin: {offered.value}")
    if plugin.name != offered.name or not _NAME.fullmatch(offered.name):
        raise SettingsError(
            f"{where} calls itself {plugin.name!a}: both names must be the same, of lower-case "
            "letters, digits and underscores"
        )
    return plugin


def _is_own(offered: EntryPoint) -> bool:
    return _distribution(offered) == OWN_DISTRIBUTION


def _distribution(offered: EntryPoint) -> str:
    return offered.dist.name if offered.dist is not None else "an unknown package"
