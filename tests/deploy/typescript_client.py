"""A TypeScript client with types generated from the OpenAPI document, on a real service.

`make test-deploy` runs it where Node.js is installed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Final

import msgspec

from adapters.events.payload import examples
from adapters.http.openapi import document
from adapters.psp_suite.samples import GUEST_ID
from tests.builders import CENTER_ID
from tests.entrypoints.running import run_service

SOURCES: Final = Path(__file__).with_name("typescript")


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_strictly_typed_typescript_client_can_add_a_card(tmp_path: Path) -> None:
    client = tmp_path / "client"
    shutil.copytree(SOURCES, client)
    run(client, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
    with run_service(tmp_path) as service:
        base_url = f"http://127.0.0.1:{service.port}"
        (client / "openapi.json").write_bytes(msgspec.json.encode(document(base_url, examples())))
        run(client, "npx", "openapi-typescript", "openapi.json", "-o", "schema.d.ts")
        run(client, "npx", "tsc", "--project", ".")
        printed = run(client, "node", "add_a_card.js", base_url, service.token, GUEST_ID, CENTER_ID)

    assert json.loads(printed) == {
        "status": "open",
        "refusal": "Session not found",
        "type": "session_not_found",
        "event": "account.of_a_later_release",
        "card": None,
    }
