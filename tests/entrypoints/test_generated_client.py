"""A client that is generated from the OpenAPI document adds a card to a running service."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from adapters.events.payload import examples
from adapters.psp_suite.samples import GUEST_ID
from tests.builders import CENTER_ID
from tests.entrypoints.running import run_service
from tests.installation import REDIRECT_URI


def test_a_generated_client_can_add_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.json"
    # Without the formatters that it runs by default. It knows no images.
    known = {"image/svg+xml": "text/html"}
    config.write_text(json.dumps({"post_hooks": [], "content_type_overrides": known}))
    with run_service(tmp_path) as service:
        base_url = f"http://127.0.0.1:{service.port}"
        generated = subprocess.run(
            [
                *(sys.executable, "-m", "openapi_python_client", "generate", "--fail-on-warning"),
                *("--url", f"{base_url}/openapi.json", "--config", str(config)),
                *("--meta", "none", "--output-path", str(tmp_path / "generated_client")),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert generated.returncode == 0, generated.stdout + generated.stderr
        assert "arning" not in generated.stdout + generated.stderr
        monkeypatch.syspath_prepend(tmp_path)
        client, models, add_card, read_session, read_code = (
            importlib.import_module(f"generated_client{name}")
            for name in (
                *("", ".models", ".api.cards.add_card"),
                *(".api.sessions.read_session", ".api.sessions.read_code"),
            )
        )

        for event_type, example in examples().items():
            told = json.loads(msgspec.json.encode(example))
            event = models.EventPayload.from_dict(told)
            assert (event.type_, event.data.to_dict()) == (event_type, told["data"])
            account = event.data.account_id
            assert account is None or isinstance(account, UUID)
            # An event from a later release.
            newer = {**told, "type": "account.moved", "data": {**told["data"], "to": "elsewhere"}}
            assert models.EventPayload.from_dict(newer).data["to"] == "elsewhere"

        with client.AuthenticatedClient(base_url=base_url, token=service.token) as caller:
            body = models.AddCardBody(center_id=UUID(CENTER_ID), redirect_uri=REDIRECT_URI)
            added = add_card.sync_detailed(UUID(GUEST_ID), client=caller, body=body)
            session = read_session.sync(UUID(GUEST_ID), added.parsed.token_id, client=caller)
            code = read_code.sync(UUID(GUEST_ID), added.parsed.token_id, client=caller)
            refused = read_session.sync_detailed(UUID(GUEST_ID), UUID(GUEST_ID), client=caller)

    assert isinstance(added.parsed, models.CardSessionStarted)
    assert added.parsed.success is True
    assert added.parsed.hosted_payment_uri.startswith(f"{base_url}/hosted-payments?")
    assert isinstance(session, models.CardSessionState)
    assert (session.status.value, session.account_id) == ("open", None)
    assert "</svg>" in code
    assert isinstance(refused.parsed, models.Refused)
    # Nothing that the client does not know.
    assert json.loads(refused.content) == refused.parsed.to_dict()
    assert refused.parsed.to_dict() == {
        "success": False,
        "error": {"code": 404, "message": "Session not found"},
    }
    assert refused.headers["Error-Type"] == "session_not_found"
