"""The clients of `make clients`, installed into empty environments, against a running service.

The programs are those in the README of each client. `make test-deploy` runs this where Node.js is
installed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from entrypoints.cli.main import main
from entrypoints.demo.sample import SPA
from tests.demo import ADA, Demo, running_demo
from tests.entrypoints.test_integrating import type_card
from tests.event_receiver import EventReceiver, Received
from tests.programs import ROOT
from tests.waiting import wait_until

CLIENTS: Final = ROOT / "build" / "clients"

# What follows the program: it verifies each event that it reads, a line each.
PYTHON_READS: Final = """
import json, sys

for line in iter(sys.stdin.readline, ""):
    event = json.loads(line)
    try:
        print(verified(event["body"].encode(), event["headers"]).data.account_id, flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)
"""
TYPESCRIPT_KNOWS: Final = """
declare const process: { env: Record<string, string | undefined>; stdin: AsyncIterable<Uint8Array> };
"""
TYPESCRIPT_READS: Final = """
for await (const line of process.stdin) {
  const event = JSON.parse(new TextDecoder().decode(line));
  try {
    console.log(verified(event.body, event.headers).data.accountId);
  } catch (error) {
    console.log((error as Error).constructor.name);
  }
}
"""


@dataclass(frozen=True)
class Service:
    """A running service, and what a program needs to use it."""

    demo: Demo
    receiver: EventReceiver
    environment: Mapping[str, str]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("demo")
    settings = {
        "CARDONFILE_DATABASE_URL": f"sqlite:///{folder}/cardonfile.db",
        "CARDONFILE_EVENT_NETWORKS": "127.0.0.0/8",
    }
    with EventReceiver() as receiver, running_demo(folder, settings) as demo:
        added = CliRunner().invoke(
            main, ["events", "add", receiver.url, "--type", "account.stored"], env=settings
        )
        given = {"API": demo.api, "TOKEN": demo.token, "GUEST": ADA, "CENTER": SPA.center.id}
        secret = {"EVENTS_SECRET": added.stdout.strip(), "NO_PROXY": "127.0.0.1"}
        yield Service(demo, receiver, {**os.environ, **given, **secret})


def run(folder: Path, *command: str | Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def package(pattern: str) -> Path:
    """Return the package that `make clients` has built."""
    (found,) = (CLIENTS / "dist").glob(pattern)
    return found


def program_of(client: str, language: str) -> str:
    """Return the program in the README of a client."""
    readme = (CLIENTS / client / "README.md").read_text()
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert blocks
    return "\n".join(blocks)


def adds_a_card(service: Service, folder: Path, command: Sequence[str | Path]) -> None:
    """Run a program that starts to add a card. Type the card, and let the program verify the event."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env=service.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdin
        assert program.stdout
        hosted_payment_uri = program.stdout.readline().strip()
        token_id = re.findall("token_id=([0-9a-f-]+)", hosted_payment_uri)[0]
        type_card(hosted_payment_uri)

        def find() -> Received | None:
            return next((e for e in service.receiver.received if about(e) == token_id), None)

        event = wait_until(find)
        answers = []
        for body in (event.body.decode(), event.body.decode() + " "):
            sent = json.dumps({"headers": dict(event.headers), "body": body})
            program.stdin.write(f"{sent}\n")
            program.stdin.flush()
            answers.append(program.stdout.readline().strip())
        program.stdin.close()
    assert program.returncode == 0
    assert answers == [event.content["data"]["account_id"], "WebhookVerificationError"]
    service.demo.remove_cards()


def about(event: Received) -> Any:  # JSON
    return event.content["data"]["token_id"]


def test_the_python_client_adds_a_card(service: Service, tmp_path: Path) -> None:
    run(tmp_path, sys.executable, "-m", "venv", "empty")
    python = tmp_path / "empty" / "bin" / "python"
    run(tmp_path, python, "-m", "pip", "--quiet", "install", package("*.whl"))
    (tmp_path / "shop.py").write_text(program_of("python", "python") + PYTHON_READS)

    adds_a_card(service, tmp_path, [python, "shop.py"])


def test_the_typescript_client_adds_a_card(service: Service, tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"private": true, "type": "module"}')
    run(tmp_path, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", package("*.tgz"))
    program = TYPESCRIPT_KNOWS + program_of("typescript", "ts") + TYPESCRIPT_READS
    (tmp_path / "shop.ts").write_text(program)
    strictly = (
        "--strict",
        "--skipLibCheck",
        "--target",
        "es2022",
        "--module",
        "nodenext",
        "--lib",
        "es2022,dom",
    )
    compiler = CLIENTS / "typescript" / "node_modules" / ".bin" / "tsc"
    run(tmp_path, compiler, *strictly, "shop.ts")

    adds_a_card(service, tmp_path, ["node", "shop.js"])
