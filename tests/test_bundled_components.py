"""The packages other than Python packages in the SBOM of a release."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from tests.bundled_components import add_bundled


def test_the_sbom_lists_the_bundled_javascript_packages_with_their_versions() -> None:
    sbom: dict[str, Any] = {"components": []}  # JSON

    add_bundled(sbom)

    purls = {each["name"]: each["purl"] for each in sbom["components"]}
    swagger_ui = purls["swagger-ui-dist"].removeprefix("pkg:npm/")
    # Where offapi has its files from.
    assert f"/{swagger_ui}/" in files("offapi").joinpath("url.json").read_text()
    assert purls["dompurify"].startswith("pkg:npm/dompurify@3.")
