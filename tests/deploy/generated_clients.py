"""Clients in other languages that openapi-generator generates from the OpenAPI document.

`make test-deploy` runs it. `built_clients.py` tests the clients that `make clients` builds. Java's packages come from Debian, which lacks Jackson's module for times:
`clients/stand_ins` has what the client needs of it. Go and C# are generated only, because a compiler
would fetch packages from elsewhere.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from adapters.psp_suite.samples import GUEST_ID
from tests.builders import CENTER_ID, a_guest
from tests.entrypoints.running import Running, run_service
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


def run(folder: Path, *command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


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


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with run_service(tmp_path_factory.mktemp("service")) as running:
        yield running


def adds_a_card(service: Running, folder: Path, *command: str | Path, **environment: str) -> None:
    """Run a program that adds a card, reads the guest, lists the cards, and prints what it read."""
    base_url = f"http://127.0.0.1:{service.port}"
    arguments = (base_url, service.token, GUEST_ID, CENTER_ID)
    printed = run(folder, *command, *arguments, **environment)
    assert json.loads(printed) == {
        "success": True,
        "error": None,
        "first_name": a_guest().first_name,
        "cards": 0,
    }


def test_a_generated_java_client_can_add_a_card(tmp_path: Path, service: Running) -> None:
    options = ("--library", "native", "--additional-properties")
    client = generate(
        tmp_path,
        "java",
        *options,
        "openApiNullable=false,useJakartaEe=true,hideGenerationTimestamp=true",
    )
    sources = [
        *(file for file in client.glob("src/main/**/*.java") if file.name not in STOOD_IN_FOR),
        *SOURCES.glob("**/*.java"),
    ]
    jars = ":".join(JARS)
    run(tmp_path, "javac", "-nowarn", "-d", "classes", "-cp", jars, *sources)

    adds_a_card(service, tmp_path, "java", "-cp", f"classes:{jars}", "AddACard")


@pytest.mark.parametrize("language", ["go", "csharp"])
def test_a_client_can_be_generated_in_other_languages(tmp_path: Path, language: str) -> None:
    client = generate(tmp_path, language)

    assert list(
        client.rglob("*GuestRecord.cs" if language == "csharp" else "model_guest_record.go")
    )
