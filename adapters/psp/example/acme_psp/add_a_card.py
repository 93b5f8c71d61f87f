"""Sets cardonfile up with a fake Acme, adds a card, and prints what the shop reads.

Run it in an empty folder, where both distributions are installed.
"""

import json
import os
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import click
from click.testing import CliRunner
from falcon.testing import TestClient

from acme_psp.fake_acme import GOOD, FakeAcme, Merchant
from adapters.psp.stand_in import StandInServer
from entrypoints.cli.main import main
from entrypoints.wsgi import create_application

SERVICE = "http://127.0.0.1:8000"
CENTER, GUEST = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000011"
ACCOUNTS = f"/api/v1/guests/{GUEST}/accounts"
SHOP = "https://shop.example/cards"


def cardonfile(*words: str) -> str:
    """Run a command, which must succeed; returns what it prints."""
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


fake = FakeAcme(lambda: datetime.now(UTC))
fake.merchants["key_of_spa"] = Merchant("spa")
with closing(StandInServer(fake.respond, api="/v1/")) as server:
    fake.url = server.url
    os.environ |= {
        "CARDONFILE_PSPS": "acme",
        "CARDONFILE_ACME_URL": f"{fake.url}/v1",
        "CARDONFILE_ACME_API_KEY": "key_of_spa",
        "CARDONFILE_ACME_WEBHOOK_SECRETS": "secret of webhooks",
        "CARDONFILE_PUBLIC_BASE_URL": SERVICE,
    }
    Path("centers.csv").write_text(f"id,name\n{CENTER},Harbor Spa\n")
    Path("guests.csv").write_text(
        f"id,first_name,last_name,email\n{GUEST},Zoe,Null,zoe@guests.example\n"
    )
    cardonfile("migrate")
    cardonfile("import", "centers", "centers.csv")
    cardonfile("import", "guests", "guests.csv")
    cardonfile("configure-payments", CENTER, "--provider", "acme")
    may = ("--permission", "guests:add", "--permission", "guests:view")
    token = cardonfile("token", "issue", "--caller", "shop", *may).strip()

    http = TestClient(create_application(), headers={"Authorization": f"Bearer {token}"})
    added = http.simulate_post(ACCOUNTS, json={"center_id": CENTER, "redirect_uri": SHOP})
    link = added.json["hosted_payment_uri"].removeprefix(SERVICE)
    page = http.simulate_get(link).headers["location"].rpartition("/")[2]
    fake.type_card(page, GOOD, (9, 2031))
    way_out = fake.page(page)["asked"]["ways_out"]["done"].removeprefix(SERVICE)
    back = http.simulate_get(way_out).headers["location"]
    (card,) = http.simulate_get(ACCOUNTS).json["accounts"]
    click.echo(json.dumps({"back": back, **card}))
