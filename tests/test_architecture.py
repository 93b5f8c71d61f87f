"""entrypoints → adapters → domain → the standard library; adapters never import each other."""

from __future__ import annotations

import sys
from pathlib import Path

import grimp
import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).resolve().parents[1]


def test_the_import_contracts_hold(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    # The call puts the working directory on the path, for good; the copy is thrown away.
    monkeypatch.setattr(sys, "path", [*sys.path])

    status = lint_imports(config_filename="pyproject.toml", no_cache=True, no_logo=True)

    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out


def test_the_domain_imports_nothing_but_the_standard_library() -> None:
    # The contract lists what the domain must not import; this one also meets what is not listed.
    graph = grimp.build_graph("domain", include_external_packages=True, cache_dir=None)
    outside = {module for module in graph.modules if graph.is_module_squashed(module)}

    assert outside - sys.stdlib_module_names == set()
    assert outside, "a graph without any import was not read"
