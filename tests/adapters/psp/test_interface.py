"""Compares the names that adapters may import with the names that adapters import."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from typing import Final

from packaging.requirements import Requirement

from adapters.psp.interface import NAMES
from tests.programs import ROOT

PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# The packages of the PSPs that are registered here.
PSPS: Final = {
    module.rpartition(":")[0].rpartition(".")[0]
    for module in PROJECT["entry-points"]["cardonfile.psps"].values()
}
PROMISED: Final = {(module, name) for module, names in NAMES.items() for name in names.split()}
EXAMPLE: Final = ROOT / "adapters/psp_example"
GUIDE: Final = ROOT / "docs/adding-a-provider.md"
# Words and style of the fake PSP's pages are no part of the interface.
OF_PAGES: Final = ("adapters.catalogs", "adapters.guest_pages")
OWN: Final = (*PSPS, *OF_PAGES, "adapters.psp_example", "tests")


def adapters() -> Iterator[Path]:
    """Return the modules of every adapter, the modules that test it, and the guide."""
    yield GUIDE
    yield from (ROOT / "tests/adapters").glob("*/under_test.py")
    for folder in (EXAMPLE, *(ROOT / package.replace(".", "/") for package in sorted(PSPS))):
        # The charges of the fake PSP are for tests of shops, and refuse requests as the service does.
        yield from (path for path in folder.rglob("*.py") if path.name != "charges.py")


def imported(code: str) -> Iterator[tuple[str, str]]:
    """Return the names of cardonfile that code imports or reads as attributes of a module."""
    tree = ast.parse(code)
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in NAMES:
                    modules[alias.asname or alias.name] = whole
                else:
                    yield str(node.module), alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in modules:
                yield modules[node.value.id], node.attr


def test_psp_adapters_import_only_public_names() -> None:
    found: set[tuple[str, str]] = set()
    for path in adapters():
        # The first line of an excerpt is a comment, which names its file.
        excerpts = r"```python\n#.*?\n(.*?)```" if path == GUIDE else r"(.*)"
        for code in re.findall(excerpts, path.read_text(), re.DOTALL):
            found |= set(imported(dedent(code)))

    ours = {each for each in found if each[0].startswith(("domain", "adapters", "entrypoints"))}
    assert {each for each in ours if not each[0].startswith(OWN)} <= PROMISED


def test_every_public_name_for_psp_adapters_exists() -> None:
    for module, names in NAMES.items():
        assert set(names.split()) <= vars(import_module(module)).keys()


def test_the_example_plugin_requires_exactly_this_version() -> None:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    accepted = Requirement(project["dependencies"][0]).specifier

    version = PROJECT["version"]
    assert accepted.contains(version, prereleases=True)
    assert not accepted.contains(f"0.{int(version.split('.')[1]) + 1}.0")
