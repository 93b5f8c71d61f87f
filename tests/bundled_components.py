"""Adds the npm packages that `offapi` bundles to SBOM files. This is a step of `make release`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import click

_SWAGGER_UI: Final = re.compile(r'PACKAGE_VERSION:"([0-9.]+)"')
_DOMPURIFY: Final = re.compile(r'DOMPurify\.version="([0-9.]+)"')


def bundled() -> Mapping[str, str]:
    """Return the version of each npm package in the JavaScript of `/docs`, by package name.

    Raises ValueError if the JavaScript does not state the versions as expected.
    """
    script = files("offapi").joinpath("swagger_bundle.js").read_text("utf-8")
    versions = {}
    for name, pattern in {"dompurify": _DOMPURIFY, "swagger-ui-dist": _SWAGGER_UI}.items():
        found = set(pattern.findall(script))
        if len(found) != 1:
            raise ValueError(f"{name} has {len(found)} versions in swagger_bundle.js")
        versions[name] = found.pop()
    return versions


def add_bundled(sbom: Any) -> None:  # Any: a document in JSON
    """Add the npm packages to the components of an SBOM in CycloneDX's form."""
    for name, version in bundled().items():
        purl = f"pkg:npm/{name}@{version}"
        described = "JavaScript of /docs, in the package offapi"
        sbom["components"].append(
            {
                "type": "library",
                "bom-ref": purl,
                "name": name,
                "version": version,
                "description": described,
                "purl": purl,
            }
        )


@click.command()
@click.argument("sboms", type=click.Path(path_type=Path, exists=True), nargs=-1, required=True)
def main(sboms: tuple[Path, ...]) -> None:
    """Add the npm packages to these SBOM files."""
    for file in sboms:
        sbom = json.loads(file.read_text())
        add_bundled(sbom)
        file.write_text(json.dumps(sbom, indent=2) + "\n")


if __name__ == "__main__":
    main()
