"""The docs match the code: names that both have are compared, none is listed here."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Final

import click
import pytest
from falcon import inspect as falcon_inspect
from prometheus_client import CollectorRegistry

from adapters.metrics.counted import Counts
from adapters.metrics.stored import StoredGauges
from adapters.psp_example.adapter import ACCOUNTS as ACME
from domain.permissions import Permission
from domain.sessions.end import NEXT_STATUS, SessionStatus
from domain.sessions.session_log import Step
from entrypoints.cli.main import main
from entrypoints.csv_import import KINDS
from entrypoints.psps import load_psps
from entrypoints.settings import REPLACED, Setting
from tests import generated_docs
from tests.installation import Installation

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
CODE: Final = tuple(
    path
    for folder in ("domain", "adapters", "entrypoints")
    for path in sorted((ROOT / folder).rglob("*.py"))
)
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())

_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^(#+) +(.+?)$", re.MULTILINE)
_LINK: Final = re.compile(r'\[[^\]]*\]\(([^)\s]+)\)|<img [^>]*src="([^"]+)"')
_SHOWN: Final = re.compile(r"^ *# Shows ([IFS][0-9].*)\.$", re.MULTILINE)
_RULER: Final = re.compile(r"[|: -]+")
# A name that ends in an underscore is a prefix of settings.
_SETTING: Final = re.compile(r"\bCARDONFILE_[A-Z_]*[A-Z](?![A-Z_])")
_EVENT: Final = re.compile(r'log\.(?:debug|info|warning|error)\(\s*"(\w+)"')
_SOURCE_PATH: Final = re.compile(r"`((?:domain|adapters|entrypoints|tests|docs)/[\w./-]*)`")


def doc(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def without_fences(text: str) -> str:
    return _FENCE.sub("", text)


def section(text: str, heading: str) -> str:
    """Return the text below a heading, up to the next heading of its level or above."""
    prose = without_fences(text)
    begin = re.search(rf"^(#+) {re.escape(heading)}$", prose, re.MULTILINE)
    assert begin, f"no heading {heading!r}"
    next_heading = rf"^#{{1,{len(begin[1])}}} "
    return re.split(next_heading, prose[begin.end() :], maxsplit=1, flags=re.MULTILINE)[0]


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


class TestHttpApi:
    def test_every_generated_part_of_the_docs_is_up_to_date(self) -> None:
        assert generated_docs.PAGE.read_text() == generated_docs.page(), (
            "python -m tests.generated_docs"
        )

    def test_the_docs_explain_what_to_do_for_every_error_type(self) -> None:
        told = section(doc("http-api.md"), "What to do")

        named = re.findall(r"(`\w+`(?:,\s+`\w+`)*)\s+\((\d+)\)", told)
        listed = [(each, int(code)) for types, code in named for each in re.findall(r"\w+", types)]
        assert sorted(listed) == sorted(
            (each.type, each.code) for each in generated_docs.refusals()
        )

    def test_the_state_diagram_of_a_session_matches_the_code(self) -> None:
        drawn = re.findall(r"^    (.+ --> .+)$", doc("http-api.md"), re.MULTILINE)

        assert sorted(drawn) == sorted(
            [
                f"[*] --> {SessionStatus.OPEN}: add-card",
                *(f"{before} --> {after}: {by}" for (before, by), after in NEXT_STATUS.items()),
            ]
        )


def packages() -> set[str]:
    """Return the name of every package in pyproject.toml."""
    project = PROJECT["project"]
    groups = (*project["optional-dependencies"].values(), *PROJECT["dependency-groups"].values())
    required = chain(project["dependencies"], *groups)
    return {re.split(r"[<>=~!\[ ]", each, maxsplit=1)[0] for each in required}


LISTED: Final[Sequence[tuple[str, str, str, Callable[[], Collection[str]]]]] = (
    ("http-api.md", "Authentication", r"`(\w+:\w+)`: ", lambda: set(Permission)),
    ("operations.md", "Settings", r"`(\w+)`", settings_of_code),
    ("operations.md", "Logs", r"(`[^(:]+`) \(", logged_events),
    ("dependencies.md", "Dependencies", "`(.+?)`", packages),
)
"""A page, a heading on it, how an item of the list below begins, and what the code has."""


@pytest.mark.parametrize(("page", "heading", "item", "of_code"), LISTED)
def test_the_lists_in_the_docs_match_the_code(
    page: str, heading: str, item: str, of_code: Callable[[], Collection[str]]
) -> None:
    items = re.findall(f"^- {item}", section(doc(page), heading), re.MULTILINE)
    listed = [name for each in items for name in re.split(r",\s+", each.replace("`", ""))]

    assert set(listed) == set(of_code())


class TestOperations:
    def test_the_docs_name_only_settings_that_the_code_reads(self) -> None:
        pages = (*DOCS, *(ROOT / "docs" / "examples").iterdir())
        of_tests, named = (
            set(chain.from_iterable(_SETTING.findall(path.read_text()) for path in paths))
            for paths in ((ROOT / "Makefile",), pages)
        )
        read = settings_of_code("harbor_spa") | of_tests | REPLACED.keys() | ACME.names()

        assert {name for name in named - read if name.removesuffix("_FILE") not in read} == set()

    def test_the_documented_columns_of_import_files_match_the_code(self) -> None:
        described = section(doc("operations.md"), "cardonfile import")
        listed = dict(re.findall(r"^- (\w+): (.+)$", described, re.MULTILINE))

        columns = {what: re.findall(r"`(\w+)`", names) for what, names in listed.items()}
        assert columns == {what: [*kind.columns, *kind.optional] for what, kind in KINDS.items()}


class TestMetrics:
    def test_the_documented_metrics_match_the_code(self, installation: Installation) -> None:
        registry = CollectorRegistry()
        Counts(registry)
        read_status, storage = installation.container.read_status(), installation.storage
        clock, release = installation.clock, "1"
        registry.register(
            StoredGauges(storage=storage, read_status=read_status, clock=clock, release=release)
        )
        lines = []
        for collector in registry._collector_to_names:
            for family in collector.collect():
                # Each family of stored gauges knows its labels.
                labels = vars(family).get("_labelnames", vars(collector).get("_labelnames"))
                shown = ", ".join(f"`{label}`" for label in sorted(labels or ()))
                name = f"{family.name}_total" if family.type == "counter" else family.name
                lines.append(f"- `{name}`{shown and f' ({shown})'}: {family.documentation}")

        listed = re.findall(
            "^- `cardonfile_.+$", section(doc("metrics.md"), "What there is"), re.MULTILINE
        )
        assert sorted(listed) == sorted(lines)

    def test_every_example_alert_is_tested_and_names_only_existing_metrics_and_events(self) -> None:
        examples = (ROOT / "docs" / "examples" / "alerts.yml").read_text()
        tested = (ROOT / "tests" / "deploy" / "alerts.yml").read_text()
        alerts = re.findall(r"- alert: (\w+)", examples)
        metrics = re.findall(r"\bcardonfile_\w+", examples)
        events = re.findall(r"`(?!cardonfile)([a-z_]+)`", examples)
        listed = re.findall(r"^- `(cardonfile_\w+)`", doc("metrics.md"), re.MULTILINE)

        assert set() < set(alerts) == set(re.findall(r'alertname="(\w+)"', tested))
        assert {re.sub("_(bucket|count|sum)$", "", name) for name in metrics} <= set(listed)
        assert set() < set(events) <= logged_events()


def test_every_numbered_promise_in_the_docs_has_tests() -> None:
    promised = re.findall(r"^- \*\*([IFS][0-9]+)\*\* \w", doc("reliability.md"), re.MULTILINE)
    paths = chain.from_iterable((ROOT / each).rglob("*.py") for each in ("adapters", "tests"))
    shown = chain.from_iterable(_SHOWN.findall(path.read_text()) for path in paths)

    counts = Counter(promise[0] for promise in promised)
    assert sorted(promised) == sorted(
        f"{kind}{number}" for kind, count in counts.items() for number in range(1, count + 1)
    )
    assert {promise for each in shown for promise in each.split(", ")} == set(promised)


def test_the_addresses_of_the_fake_psp_are_documented(installation: Installation) -> None:
    routes = falcon_inspect.inspect_routes(installation.container.app())
    own = {route.path for route in routes if route.path.startswith("/fake-psp/")}

    assert set() < own <= {row[0] for row in table_rows(section(doc("fake-psp.md"), "Where it is"))}


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_every_link_or_path_in_the_docs_exists(path: Path) -> None:
    text = path.read_text()
    targets = chain.from_iterable(_LINK.findall(without_fences(text)))
    for target in (each for each in targets if each and "://" not in each):
        name, _, anchor = target.partition("#")
        linked = (path.parent / name).resolve() if name else path
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target
    for named in _SOURCE_PATH.findall(text):
        assert (ROOT / named).exists(), named


def test_every_name_in_the_guides_for_authors_exists_in_the_code() -> None:
    guides = ("architecture.md", "adding-a-provider.md", "../CONTRIBUTING.md")
    of_tests = (ROOT / "tests").rglob("*.py")
    code = (*CODE, *of_tests, ROOT / "Makefile", ROOT / "pyproject.toml")
    known = set(chain.from_iterable(re.findall(r"\w+", path.read_text()) for path in code))
    known |= set(chain.from_iterable(re.findall(r"\w+", str(path)) for path in DOCS))

    texts = (without_fences(doc(page)) for page in guides)
    named = chain.from_iterable(re.findall(r"`([a-zA-Z_][\w.]*)`", text) for text in texts)
    assert {part for name in named for part in name.split(".")} - known == set()


def anchors(path: Path) -> set[str]:
    """Return the anchors that code hosts give a page's headings, and those that it names."""
    text = without_fences(path.read_text())
    titles = (each[2] for each in _HEADING.finditer(text))
    named = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    return named | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("body", code_blocks("json"))
def test_every_json_example_in_the_docs_can_be_parsed(body: str) -> None:
    json.loads(body)


# `tests/entrypoints/test_integrating.py` runs those of the other pages.
@pytest.mark.parametrize(
    "body",
    code_blocks("python", but=[ROOT / "docs" / "integrating.md", ROOT / "docs" / "fake-psp.md"]),
)
def test_every_python_example_is_part_of_the_file_that_its_first_line_names(body: str) -> None:
    first, _, shown = body.partition("\n")

    assert shown in (ROOT / first.removeprefix("# ")).read_text()


@pytest.mark.parametrize("body", code_blocks("sh"))
def test_every_shell_command_in_the_docs_can_be_run(body: str) -> None:
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


def parse(command: click.Command, words: Sequence[str]) -> None:
    """Parse a command's arguments without running it."""
    if isinstance(command, click.Group):
        parse(command.commands[words[0]], words[1:])
    else:
        command.make_context(command.name, list(words))
