"""Clients in other languages that openapi-generator generates from the OpenAPI document.

`make test-deploy` runs it. `built_clients.py` tests the clients that `make clients` builds. Java's
packages come from Debian, which lacks Jackson's module for times: `clients/stand_ins` has what the
client needs of it. Go and C# are generated only, because a compiler would fetch packages from
elsewhere.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from adapters.psp_suite.samples import GUEST_ID
from tests.builders import CENTER_ID, a_guest
from tests.deploy.built_clients import run
from tests.entrypoints.running import run_service
from tests.openapi_document import openapi_document

SOURCES: Final = Path(__file__).with_name("clients")
GENERATOR: Final = Path("build/clients/bin").absolute()
JARS: Final = tuple(
    f"/usr/share/java/{name}.jar"
    for name in (
        *("jackson-annotations", "jackson-core", "jackson-databind"),
        *("jakarta-annotation-api", "jsr305"),
    )
)

STOOD_IN_FOR: Final = ("RFC3339InstantDeserializer.java", "RFC3339JavaTimeModule.java")


def generate(folder: Path, language: str, *options: str) -> Path:
    """Generate a client into a folder named for the language, and return the folder."""
    (folder / "openapi.json").write_bytes(openapi_document())
    into = folder / language
    said = run(
        folder,
        GENERATOR / "openapi-generator-cli",
        *("generate", "-g", language, "-i", "openapi.json", "-o", language, *options),
    )
    assert "not supported" not in said
    return into


def test_a_generated_java_client_can_add_a_card(tmp_path: Path) -> None:
    options = "openApiNullable=false,useJakartaEe=true,hideGenerationTimestamp=true"
    client = generate(tmp_path, "java", "--library", "native", "--additional-properties", options)
    sources = [
        *(file for file in client.glob("src/main/**/*.java") if file.name not in STOOD_IN_FOR),
        *SOURCES.glob("**/*.java"),
    ]
    jars = ":".join(JARS)
    run(tmp_path, "javac", "-nowarn", "-d", "classes", "-cp", jars, *sources)

    with run_service(tmp_path) as service:
        arguments = (f"http://127.0.0.1:{service.port}", service.token, GUEST_ID, CENTER_ID)
        printed = run(tmp_path, "java", "-cp", f"classes:{jars}", "AddACard", *arguments)

    name = a_guest().first_name
    assert json.loads(printed) == {"success": True, "error": None, "first_name": name, "cards": 0}


@pytest.mark.parametrize(
    ("language", "file"), [("go", "model_guest_record.go"), ("csharp", "*GuestRecord.cs")]
)
def test_a_client_can_be_generated_in_other_languages(
    tmp_path: Path, language: str, file: str
) -> None:
    assert list(generate(tmp_path, language).rglob(file))
