"""Configures the documentation site. `make docs` builds it from the pages that GitHub shows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from docutils import nodes
from sphinx.util.docutils import SphinxDirective
from typing_extensions import override

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "cardonfile"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinxcontrib.mermaid"]
root_doc = "docs/site"
include_patterns = ["*.md", "docs/*.md", "docs/*.rst", "docs/providers/*.md"]
html_theme = "furo"
html_title = "cardonfile"
# The anchors that GitHub makes, to the depth that the pages have.
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
# Docstrings mark code with one backtick, as Markdown does.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True


class NamesForAdapters(SphinxDirective):
    """Documents each name that an adapter of another distribution may import."""

    @override
    def run(self) -> list[nodes.Node]:
        """Return a section for each module of `adapters.psp.interface.NAMES`."""
        from adapters.psp.interface import NAMES

        text = "".join(
            f"{module}\n{'-' * len(module)}\n\n"
            f".. automodule:: {module}\n   :members: {', '.join(names.split())}\n\n"
            for module, names in NAMES.items()
        )
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def mark_code(_: Sphinx, __: str, ___: str, ____: object, _____: object, lines: list[str]) -> None:
    """Mark the indented examples of a docstring as code, which Markdown does without a mark."""
    for number in range(len(lines) - 1, 0, -1):
        before = [line for line in lines[:number] if line][-1:]
        if (
            lines[number].startswith("    ")
            and not lines[number - 1]
            and before
            and not before[0].startswith(" ")
        ):
            lines[number:number] = ["::", ""]


def setup(app: Sphinx) -> None:
    """Register the directive and the hook; Sphinx calls this."""
    app.add_directive("names-for-adapters", NamesForAdapters)
    app.connect("autodoc-process-docstring", mark_code)
