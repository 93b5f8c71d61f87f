"""A plugin for pytest with the option `--psp`, which names the PSPs that the contract suite tests.

Load it with `-p adapters.psp_suite.pytest_plugin`.
"""

from __future__ import annotations

from importlib import import_module
from inspect import getattr_static, isabstract
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adapters.psp_suite.under_test import PspUnderTest

SUITE = Path(__file__).parent

_psps = pytest.StashKey["dict[str, type[PspUnderTest]]"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("cardonfile").addoption(
        "--psp",
        action="append",
        default=[],
        metavar="MODULE:CLASS",
        help="test this PspUnderTest in the contract suite of cardonfile; may be repeated",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the suite's marks."""
    config.addinivalue_line(
        "markers", "psp_needs(*abilities): tests only PSPs with these abilities"
    )
    config.addinivalue_line("markers", "psp_cases(names, cases): parameters from a PSP's facts")


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Load the classes named with `--psp` before the suite is collected.

    At this time, a UsageError still ends the run. Do nothing in a worker of pytest-xdist, which
    could not show the error. There, `psps` loads the classes.
    """
    config = collector.config
    if (
        collector.path.parent == SUITE
        and isinstance(collector, pytest.Module)
        and not hasattr(config, "workerinput")
    ):
        config.stash[_psps] = load(config.getoption("psp"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests for which no PSP has the required abilities."""
    left_out = [item for item in items if item.path.parent == SUITE and _has_no_psp(item)]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print, for each PSP, the parts that the suite did not test because the author left them out.

    Print nothing in a worker of pytest-xdist.
    """
    for name, psp in config.stash.get(_psps, {}).items():
        terminalreporter.line(f"{name}: not tested: {', '.join(psp.not_tested()) or 'nothing'}")


def psps(config: pytest.Config) -> dict[str, type[PspUnderTest]]:
    """Return the classes named with `--psp`. The keys are their names in test ids."""
    if _psps not in config.stash:
        try:
            config.stash[_psps] = load(config.getoption("psp"))
        except pytest.UsageError as error:
            raise pytest.Collector.CollectError(str(error)) from None
    return config.stash[_psps]


def load(named: Sequence[str]) -> dict[str, type[PspUnderTest]]:
    """Import each `MODULE:CLASS`, and return the classes by name.

    The names are those of the PSPs, or those of the classes if two PSPs have the same name. Raises
    pytest.UsageError with one sentence.
    """
    if not named:
        raise pytest.UsageError(
            "name the PSP to test: --psp MODULE:CLASS, where CLASS is a subclass of "
            "adapters.psp_suite.under_test.PspUnderTest"
        )
    classes = list(dict.fromkeys(map(_load_one, named)))
    names = [psp.plugin.name for psp in classes]
    return {
        name if names.count(name) == 1 else psp.__name__: psp
        for name, psp in zip(names, classes, strict=True)
    }


def _has_no_psp(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and item.callspec.params.get("psp") is None


def _load_one(named: str) -> type[PspUnderTest]:
    from adapters.psp_suite.under_test import PspUnderTest

    module_name, _, class_name = named.partition(":")
    if not module_name or not class_name:
        raise pytest.UsageError(f"--psp {named}: expected MODULE:CLASS")
    try:
        module = import_module(module_name)
    except Exception as error:
        raise pytest.UsageError(
            f"--psp {named}: {module_name} cannot be imported ({type(error).__name__}: {error}); "
            "`python -m pytest` searches the current folder too"
        ) from error
    found = getattr(module, class_name, None)
    if not isinstance(found, type) or not issubclass(found, PspUnderTest):
        raise pytest.UsageError(
            f"--psp {named}: {module_name} has no subclass of PspUnderTest named {class_name}"
        )
    missing = sorted(found.__abstractmethods__) if isabstract(found) else []
    missing += [each for each in ("plugin", "facts") if getattr_static(found, each, None) is None]
    if missing:
        raise pytest.UsageError(f"--psp {named}: {class_name} lacks {', '.join(missing)}")
    return found
