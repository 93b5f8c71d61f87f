"""What import-linter, run by `make lint`, cannot express."""

from __future__ import annotations

import sys

import grimp


def test_the_domain_imports_only_the_standard_library() -> None:
    graph = grimp.build_graph("domain", include_external_packages=True, cache_dir=None)
    outside = {module for module in graph.modules if graph.is_module_squashed(module)}

    assert outside, "no import was found"
    assert outside <= sys.stdlib_module_names
