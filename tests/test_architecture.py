"""Rules that import-linter and ruff in `make lint` cannot express."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import grimp

import domain
from tests.programs import ROOT


def test_the_domain_imports_only_the_standard_library() -> None:
    graph = grimp.build_graph("domain", include_external_packages=True, cache_dir=None)
    outside = {module for module in graph.modules if graph.is_module_squashed(module)}

    assert outside, "no import was found"
    assert outside <= sys.stdlib_module_names


def test_every_public_method_of_the_domain_has_a_docstring() -> None:
    undocumented = [
        (path.name, public.name, method.name)
        for path in Path(domain.__path__[0]).rglob("*.py")
        for public in ast.parse(path.read_text()).body
        if isinstance(public, ast.ClassDef) and not public.name.startswith("_")
        for method in public.body
        if isinstance(method, ast.FunctionDef) and not ast.get_docstring(method)
        if not method.name.startswith("_")
    ]
    assert undocumented == []


def test_only_the_module_of_the_container_overrides_a_part_of_the_container() -> None:
    overriding = [
        (path.name, line.strip())
        for path in (ROOT / "entrypoints").rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"\.(override|set_kwargs|set_provides)\(", line)
    ]
    assert overriding == [("container.py", "container.settings.override(settings)")]
