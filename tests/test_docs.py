"""The docs match the code: names that both have are compared, none is listed here."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Final

import click
import pytest
from falcon import inspect as falcon_inspect
from prometheus_client import CollectorRegistry

from adapters.catalogs import catalog
from adapters.fake_psp.cards import TEST_CARDS, WRONG_ZIPCODE
from adapters.http.openapi import OPERATIONS
from adapters.metrics.counted import Counts
from adapters.metrics.stored import StoredGauges
from domain.permissions import Permission
from domain.sessions.session import NEXT_STATUS, SessionStatus
from domain.sessions.session_log import Step
from entrypoints.cli.main import main
from entrypoints.container import build
from entrypoints.csv_import import KINDS
from entrypoints.psps import load_psps
from entrypoints.settings import REPLACED, Setting, Settings
from tests import generated_docs
from tests.installation import Installation

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = (ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md")))
CODE: Final = tuple(
    path
    for folder in ("domain", "adapters", "entrypoints")
    for path in sorted((ROOT / folder).rglob("*.py"))
)
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())

_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^(#+) +(.+?)$", re.MULTILINE)
_LINK: Final = re.compile(r'\[[^\]]*\]\(([^)\s]+)\)|<img [^>]*src="([^"]+)"')
_RULER: Final = re.compile(r"[|: -]+")
# A name that ends in an underscore is a prefix of settings.
_SETTING: Final = re.compile(r"\bCARDONFILE_[A-Z_]*[A-Z](?![A-Z_])")
_EVENT: Final = re.compile(r'log\.(?:debug|info|warning|error)\(\s*"(\w+)"')
_SOURCE_PATH: Final = re.compile(r"`((?:domain|adapters|entrypoints|tests|docs)/[\w./-]*)`")
_CITATION: Final = re.compile(r"\(interface, `(\w+)`\)")


def doc(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def without_fences(text: str) -> str:
    return _FENCE.sub("", text)


def section(text: str, heading: str) -> str:
    """Return the text below a heading, up to the next heading of its level or above."""
    prose = without_fences(text)
    headings = list(_HEADING.finditer(prose))
    at = next((n for n, each in enumerate(headings) if each[2] == heading), None)
    assert at is not None, f"no heading {heading!r}"
    level = len(headings[at][1])
    end = next((each.start() for each in headings[at + 1 :] if len(each[1]) <= level), len(prose))
    return prose[headings[at].end() : end]


def table_rows(text: str) -> list[list[str]]:
    """Return the rows of every table, each as its cells without backticks."""
    return [
        [cell.strip().replace("`", "") for cell in line.strip().strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|") and not _RULER.fullmatch(line)
    ]


def code_blocks(wanted: str, *, but: Sequence[Path] = ()) -> list[object]:
    """Return every fenced block in a language, as a parameter, but those of some pages."""
    return [
        pytest.param(body, id=f"{path.name}-{number}")
        for path in DOCS
        if path not in but
        for number, (language, body) in enumerate(_FENCE.findall(path.read_text()), 1)
        if language == wanted
    ]


class TestHttpApi:
    def test_every_generated_part_is_on_the_page_once(self) -> None:
        generated = generated_docs.BLOCK.findall(doc("http-api.md"))

        assert sorted(name for _, name, _ in generated) == sorted(generated_docs.blocks())

    def test_each_part_has_a_heading_of_its_name(self) -> None:
        headings = {each[2] for each in _HEADING.finditer(without_fences(doc("http-api.md")))}

        assert generated_docs.blocks().keys() - {"refusals"} <= headings

    def test_the_path_decides_the_form_of_a_refusal(self, installation: Installation) -> None:
        client = installation.client()
        for row in table_rows(section(doc("http-api.md"), "Envelope"))[1:]:
            paths = re.findall(r"/[^\s,]*", row[0])
            assert paths
            for path in paths:
                # No path supports this method.
                refused = client.simulate_patch(path.replace("…", "x"))
                body = refused.json if "json" in refused.headers["content-type"] else None
                form = (
                    "an HTML page"
                    if body is None
                    else "the envelope"
                    if "error" in body
                    else "bare"
                )
                assert (path, row[1].startswith(form)) == (path, True)

    def test_integrators_are_told_what_to_do_for_every_type_of_error(self) -> None:
        told = section(doc("integrating.md"), "12. When a request is refused")

        types = {each.type for each in generated_docs.refusals()}
        assert types <= set(re.findall(r"`(\w+)`", told))

    def test_every_permission_is_listed(self) -> None:
        described = section(doc("http-api.md"), "Authentication")

        assert set(Permission) == set(re.findall(r"^- `(\w+:\w+)`: ", described, re.MULTILINE))

    def test_every_operation_that_the_code_cites_exists(self) -> None:
        cited = {name for path in CODE for name in _CITATION.findall(path.read_text())}

        assert cited
        assert cited <= {operation.name for operation in OPERATIONS}


class TestOperations:
    def test_the_settings_that_are_listed_are_those_of_the_code(self) -> None:
        described = section(doc("operations.md"), "Settings")

        assert set(re.findall(r"^- `(\w+)`", described, re.MULTILINE)) == settings_of_code()

    def test_no_page_names_a_setting_that_the_code_does_not_read(self) -> None:
        # Some are read by tests, and some by the sample PSP of another distribution.
        elsewhere = (
            ROOT / "Makefile",
            ROOT / "adapters/psp/example/acme_psp/add_a_card.py",
        )
        of_tests = set(
            chain.from_iterable(_SETTING.findall(each.read_text()) for each in elsewhere)
        )
        pages = (*DOCS, *(ROOT / "docs" / "examples").iterdir())
        named = set(chain.from_iterable(_SETTING.findall(path.read_text()) for path in pages))
        read = settings_of_code("harbor_spa") | of_tests | REPLACED.keys()

        assert {name for name in named - read if name.removesuffix("_FILE") not in read} == set()

    def test_every_section_about_commands_is_about_one_or_a_group(self) -> None:
        # A command whose --help says everything has none.
        described = re.findall(
            r"^### cardonfile (.+)$", section(doc("operations.md"), "Commands"), re.MULTILINE
        )
        groups = {path[:end] for path, _ in commands(main) for end in range(1, len(path) + 1)}

        assert described
        assert set(described) <= {" ".join(each) for each in groups}

    def test_the_columns_of_imports_are_those_of_the_code(self) -> None:
        described = section(doc("operations.md"), "cardonfile import")
        listed = dict(re.findall(r"^- (\w+): (.+)$", described, re.MULTILINE))

        columns = {what: re.findall(r"`(\w+)`", names) for what, names in listed.items()}
        assert columns == {what: [*kind.columns, *kind.optional] for what, kind in KINDS.items()}

    def test_the_events_that_are_listed_are_those_that_the_code_logs(self) -> None:
        logged = logged_events()

        assert logged
        listed = re.findall(
            r"^- (`[^(:]+`) \(", section(doc("operations.md"), "Logs"), re.MULTILINE
        )
        assert sorted(chain.from_iterable(re.findall(r"\w+", each) for each in listed)) == sorted(
            logged
        )


class TestMetrics:
    ALERTS: Final = (ROOT / "docs" / "examples" / "alerts.yml").read_text()

    def test_the_metrics_that_are_listed_are_those_of_the_code(
        self, installation: Installation
    ) -> None:
        container, registry = installation.container, CollectorRegistry()
        Counts(registry)
        registry.register(
            StoredGauges(
                storage=installation.storage,
                read_status=container.read_status(),
                clock=installation.clock,
                release="1",
            )
        )
        lines = []
        for collector in registry._collector_to_names:
            for family in collector.collect():
                # Of what is read, each family knows its labels.
                labels = vars(family).get("_labelnames", vars(collector).get("_labelnames"))
                shown = ", ".join(f"`{label}`" for label in sorted(labels or ()))
                name = f"{family.name}_total" if family.type == "counter" else family.name
                lines.append(f"- `{name}`{shown and f' ({shown})'}: {family.documentation}")

        listed = re.findall(
            "^- `cardonfile_.+$", section(doc("metrics.md"), "What there is"), re.MULTILINE
        )
        assert sorted(listed) == sorted(lines)

    def test_alerts_name_only_metrics_that_are_listed(self) -> None:
        named = re.findall(r"\bcardonfile_\w+", self.ALERTS)
        listed = re.findall(r"^- `(cardonfile_\w+)`", doc("metrics.md"), re.MULTILINE)

        assert named
        assert {re.sub("_(bucket|count|sum)$", "", name) for name in named} <= set(listed)

    def test_alerts_name_only_events_that_the_code_logs(self) -> None:
        named = set(re.findall(r"`([a-z_]+)`", self.ALERTS))

        assert named
        assert {name for name in named if not name.startswith("cardonfile")} <= logged_events()

    def test_every_alert_is_tested(self) -> None:
        tested = (ROOT / "tests" / "deploy" / "alerts.yml").read_text()

        alerts = re.findall(r"- alert: (\w+)", self.ALERTS)
        assert alerts
        assert set(alerts) == set(re.findall(r'alertname="(\w+)"', tested))


def logged_events() -> set[str]:
    """Return the name of every event that the code logs."""
    return {name for path in CODE for name in _EVENT.findall(path.read_text())} | set(Step)


def settings_of_code(*accounts: str) -> set[str]:
    """Return the name of every setting: for the default account, and for these."""
    names = {str(each) for each in Setting}
    for plugin in load_psps(None).values():
        names.update(plugin.settings)
        if (own := plugin.account_settings) is not None:
            names |= own.names(
                f"{own.prefix}{account.upper()}_{own.required[0]}" for account in accounts
            )
    return names


def commands(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command below one, with its path."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name, below in command.commands.items():
        yield from commands(below, (*path, name))


class TestReliability:
    def test_every_promise_has_tests_under_its_number(self) -> None:
        promises = re.findall(r"^- \*\*([IFS])([0-9]+)\*\* \w", doc("reliability.md"), re.MULTILINE)

        numbers = defaultdict(list)
        for kind, number in promises:
            numbers[kind].append(int(number))
        assert numbers == {kind: list(range(1, len(of) + 1)) for kind, of in numbers.items()}
        assert {kind + number for kind, number in promises} == (
            generated_docs.tests_by_promise().keys()
        )

    def test_every_comment_about_a_promise_is_above_a_test(self) -> None:
        comments = chain.from_iterable(
            re.findall(r"^ *# Shows ([IFS][0-9].*)\.$", path.read_text(), re.MULTILINE)
            for folder in ("adapters", "tests")
            for path in (ROOT / folder).rglob("*.py")
        )

        counted = sum(len(each.split(", ")) for each in comments)
        assert counted == sum(map(len, generated_docs.tests_by_promise().values()))


def test_the_states_of_a_session_are_drawn_as_they_follow_each_other() -> None:
    (drawn,) = re.findall(
        r"^stateDiagram-v2\n(.*?)```", doc("http-api.md"), re.DOTALL | re.MULTILINE
    )

    assert sorted(line.strip() for line in drawn.splitlines()) == sorted(
        [
            f"[*] --> {SessionStatus.OPEN}: add-card",
            *(f"{before} --> {after}: {by}" for (before, by), after in NEXT_STATUS.items()),
        ]
    )


@pytest.mark.parametrize("path", generated_docs.PAGES, ids=lambda path: path.name)
def test_a_generated_page_is_up_to_date(path: Path) -> None:
    assert path.read_text() == generated_docs.PAGES[path](), "python -m tests.generated_docs"


class TestFakePsp:
    def test_its_test_data_is_listed(self) -> None:
        described = section(doc("fake-psp.md"), "Test cards")
        breaking = {0x2011: "-", 0xA0: " "}

        assert {
            (
                " ".join(re.findall("....", number)),
                card.brand,
                catalog("en").text(f"test_cards.{card.behaviour}").translate(breaking),
            )
            for number, card in TEST_CARDS.items()
        } <= {tuple(row[:3]) for row in table_rows(described)}
        assert f"`{WRONG_ZIPCODE}`" in described

    def test_its_addresses_are_listed(self, tmp_path: Path) -> None:
        settings = Settings.read({"CARDONFILE_DATABASE_URL": f"sqlite:///{tmp_path}/cards.db"})
        routes = {route.path for route in falcon_inspect.inspect_routes(build(settings).app())}
        own = {path for path in routes if path.startswith("/fake-psp/")}

        assert own
        assert own <= {row[0] for row in table_rows(section(doc("fake-psp.md"), "Where it is"))}


class TestProject:
    def test_the_dependencies_in_the_tables_are_those_of_the_project(self) -> None:
        project = PROJECT["project"]
        extras = dict(project["optional-dependencies"])
        wanted = {
            "At run time": project["dependencies"],
            "For tests": extras.pop("dev"),
            "For benchmarks": extras.pop("bench"),
            "Extras": chain.from_iterable(extras.values()),
            "To build": PROJECT["dependency-groups"]["build"],
            "To release": PROJECT["dependency-groups"]["release"],
        }

        for heading, requirements in wanted.items():
            listed = re.findall(
                r"^- `(.+?)`", section(doc("dependencies.md"), heading), re.MULTILINE
            )
            assert set(listed) == package_names(requirements), heading

    def test_the_version_is_that_of_the_newest_release_or_ahead_of_it(self) -> None:
        newest, *released = re.findall(r"^## (\S+)", doc("changelog.md"), re.MULTILINE)
        version = PROJECT["project"]["version"]
        if newest == "Unreleased":
            assert version.endswith(".dev0")
            assert numbers(version.removesuffix(".dev0")) > numbers(released[0])
        else:
            assert version == newest

    def test_links_lead_from_the_readme_to_every_page(self) -> None:
        reached: set[Path] = set()
        to_read = [ROOT / "README.md"]
        while to_read:
            path = to_read.pop()
            reached.add(path)
            links = {link.partition("#")[0] for link, _ in _LINK.findall(path.read_text())}
            linked = {(path.parent / link).resolve() for link in links}
            to_read.extend(linked.intersection(DOCS) - reached)

        assert set(DOCS) <= reached


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def package_names(requirements: Iterable[str]) -> set[str]:
    return {re.split(r"[<>=~!\[ ]", each, maxsplit=1)[0] for each in requirements}


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_every_link_or_path_leads_somewhere(path: Path) -> None:
    text = path.read_text()
    for target in chain.from_iterable(_LINK.findall(without_fences(text))):
        if not target or "://" in target:
            continue
        name, _, anchor = target.partition("#")
        linked = (path.parent / name).resolve() if name else path
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target
    for named in _SOURCE_PATH.findall(text):
        assert (ROOT / named).exists(), named


@pytest.mark.parametrize("page", ["architecture.md", "adding-a-provider.md"])
def test_authors_are_told_names_that_the_code_has(page: str) -> None:
    of_tests = (ROOT / "tests").rglob("*.py")
    code = (*CODE, *of_tests, ROOT / "Makefile", ROOT / "pyproject.toml")
    known = set(chain.from_iterable(re.findall(r"\w+", path.read_text()) for path in code))

    named = re.findall(r"`([a-zA-Z_][\w.]*)`", without_fences(doc(page)))
    assert named
    assert {part for name in named for part in name.split(".")} <= known


def anchors(path: Path) -> set[str]:
    """Return the anchors that code hosts give a page's headings, and those that it names."""
    text = without_fences(path.read_text())
    titles = (each[2] for each in _HEADING.finditer(text))
    named = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    return named | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("body", code_blocks("json"))
def test_json_can_be_parsed(body: str) -> None:
    json.loads(body)


# `tests/entrypoints/test_integrating.py` runs those of the other page.
@pytest.mark.parametrize("body", code_blocks("python", but=[ROOT / "docs" / "integrating.md"]))
def test_python_is_part_of_the_file_that_its_first_line_names(body: str) -> None:
    first, _, shown = body.partition("\n")

    assert shown in (ROOT / first.removeprefix("# ")).read_text()


@pytest.mark.parametrize("body", code_blocks("sh"))
def test_shell_commands_can_be_run(body: str) -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)

    subprocess.run(["sh", "-n"], input=body, text=True, check=True)
    for line in body.replace("\\\n", " ").splitlines():
        command, *arguments = shlex.split(line, comments=True) or [""]
        if command == "cardonfile":
            parse(main, arguments)
        elif command == "make":
            assert arguments[0] in targets
        elif command == "curl":
            for option, value in pairwise(arguments):
                if option == "-d":
                    json.loads(value)


@pytest.mark.parametrize("extras", ["oracle", "jwt,redis"])
def test_make_names_the_extras_that_there_are(extras: str) -> None:
    made = subprocess.run(
        ["make", "-n", "install", f"EXTRAS={extras}"],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert made.returncode == 2
    assert "with spaces between, in quotes: granian jwt postgresql redis stripe" in made.stderr


def parse(command: click.Command, words: Sequence[str]) -> None:
    """Have a command read its arguments, without running it."""
    if isinstance(command, click.Group):
        parse(command.commands[words[0]], words[1:])
    else:
        command.make_context(command.name, list(words))
