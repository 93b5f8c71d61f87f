"""Installs the clients of `make clients` into empty environments, and runs them.

The programs are those in the README of each client. The shop in TypeScript is that of
docs/integrating.md. `make test-deploy` runs this where Node.js is installed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import playwright
import pytest

from tests.demo import ADA
from tests.integrating import PAGE, Given, blocks, buys_at, given_demo, type_card
from tests.programs import ROOT, free_port

CLIENTS: Final = ROOT / "build" / "clients"
SHOP: Final = Path(__file__).with_name("shop")
"""The folder that lists the locked packages of the shop in TypeScript."""
NODE: Final = Path(playwright.__file__).parent / "driver" / "node"
"""The Node.js of Playwright, which is new enough to run TypeScript."""

# This code is appended to the program. It verifies the events that it reads, one event a line.
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


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Given]:
    with given_demo(tmp_path_factory.mktemp("demo")) as given:
        yield given


def run(folder: Path, *command: str | Path) -> str:
    """Run a command in a folder, and return what it prints."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def package(pattern: str) -> Path:
    """Return the package that `make clients` has built."""
    (found,) = (CLIENTS / "dist").glob(pattern)
    return found


def program_of(client: str, language: str) -> str:
    """Return the program in the README of a client."""
    return "\n".join(blocks((CLIENTS / client / "README.md").read_text(), language))


def adds_a_card(given: Given, folder: Path, command: Sequence[str | Path]) -> None:
    """Run a program that starts to add a card. Type the card, and let the program verify the event."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**given.environment, "GUEST": ADA},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdin
        assert program.stdout
        hosted_payment_uri = program.stdout.readline().strip()
        token_id = re.findall("token_id=([0-9a-f-]+)", hosted_payment_uri)[0]
        type_card(hosted_payment_uri, "https://shop.example/card/back")
        event = given.event_of(token_id)
        answers = []
        for body in (event.body.decode(), event.body.decode() + " "):
            sent = json.dumps({"headers": dict(event.headers), "body": body})
            program.stdin.write(f"{sent}\n")
            program.stdin.flush()
            answers.append(program.stdout.readline().strip())
        program.stdin.close()
    assert program.returncode == 0
    assert answers == [event.content["data"]["account_id"], "WebhookVerificationError"]
    given.demo.remove_cards()


def test_the_built_python_client_adds_a_card(given: Given, tmp_path: Path) -> None:
    run(tmp_path, sys.executable, "-m", "venv", "empty")
    python = tmp_path / "empty" / "bin" / "python"
    run(tmp_path, python, "-m", "pip", "--quiet", "install", package("*.whl"))
    (tmp_path / "shop.py").write_text(program_of("python", "python") + PYTHON_READS)

    # -u, because the program does not flush what it prints into a pipe.
    adds_a_card(given, tmp_path, [python, "-u", "shop.py"])


def test_the_built_typescript_client_adds_a_card(given: Given, tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"private": true, "type": "module"}')
    run(tmp_path, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", package("*.tgz"))
    program = TYPESCRIPT_KNOWS + program_of("typescript", "ts") + TYPESCRIPT_READS
    (tmp_path / "shop.ts").write_text(program)
    strictly = [
        "--strict",
        "--skipLibCheck",
        "--target",
        "es2022",
        "--module",
        "nodenext",
        "--lib",
        "es2022,dom",
    ]
    compiler = CLIENTS / "typescript" / "node_modules" / ".bin" / "tsc"
    run(tmp_path, compiler, *strictly, "shop.ts")

    adds_a_card(given, tmp_path, ["node", "shop.js"])


def test_the_typescript_shop_in_the_docs_runs_as_printed(given: Given, tmp_path: Path) -> None:
    shutil.copytree(SHOP, tmp_path, dirs_exist_ok=True)
    run(tmp_path, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
    (printed,) = blocks(PAGE.read_text(), "ts")
    port = str(free_port())
    (tmp_path / "shop.mts").write_text(printed.replace("9000", port))

    buys_at(f"http://127.0.0.1:{port}", given, [NODE, "shop.mts"], tmp_path)
    run(tmp_path, CLIENTS / "typescript" / "node_modules" / ".bin" / "tsc", "--project", ".")
