"""The docs say what the code does: whatever has a name in the code has it in the docs too.

Names are taken from the code and the files themselves, so that nothing is listed twice.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Final, TypeGuard

import click
import pytest
from click.testing import CliRunner
from falcon import inspect as falcon_inspect
from msgspec import Struct
from msgspec.structs import fields as struct_fields

import adapters.http.answers
import adapters.http.errors
import domain.errors
from adapters.fake_psp.cards import TEST_CARDS, WRONG_ZIPCODE, PublishedCard
from adapters.http.openapi import OPERATIONS, Operation, document
from adapters.http.requests import AddCardBody
from domain.billing import MAX_LENGTHS
from domain.errors import Refusal
from domain.permissions import Permission
from entrypoints.cli import main
from entrypoints.container import build
from entrypoints.csv_import import KINDS, Kind
from entrypoints.psps import load_psps
from entrypoints.settings import Setting, Settings

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
CODE: Final = tuple(
    path
    for folder in ("domain", "adapters", "entrypoints")
    for path in sorted((ROOT / folder).rglob("*.py"))
)
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())

_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^(#+) +(.+?)$", re.MULTILINE)
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_IMAGE: Final = re.compile(r'<img [^>]*src="([^"]+)"')
_RULER: Final = re.compile(r"[|: -]+")
# A name that ends in an underscore is the beginning of several.
_SETTING: Final = re.compile(r"\bCARDONFILE_[A-Z_]*[A-Z](?![A-Z_])")
_EVENT: Final = re.compile(r'log\.(?:debug|info|warning|error)\(\s*"(\w+)"')
_SOURCE_PATH: Final = re.compile(r"`((?:domain|adapters|entrypoints|tests|docs)/[\w./-]*)`")
_SECTION_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")


def settings_of_code(*accounts: str) -> set[str]:
    """Give every name that a setting may have: for the default account, and for these."""
    names = {str(each) for each in Setting}
    for plugin in load_psps(None).values():
        names.update(plugin.settings)
        if (own := plugin.account_settings) is not None:
            names |= own.names(
                f"{own.prefix}{account.upper()}_{own.required[0]}" for account in accounts
            )
    return names


def doc(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def without_fences(text: str) -> str:
    return _FENCE.sub("", text)


def section(text: str, heading: str) -> str:
    """Give what stands under a heading, up to the next one of its level or above."""
    prose = without_fences(text)
    headings = list(_HEADING.finditer(prose))
    at = next((n for n, each in enumerate(headings) if each[2] == heading), None)
    assert at is not None, f"no heading {heading!r}"
    level = len(headings[at][1])
    end = next((each.start() for each in headings[at + 1 :] if len(each[1]) <= level), len(prose))
    return prose[headings[at].end() : end]


def table_rows(text: str) -> list[list[str]]:
    """Give the rows of every table, each as its cells without backticks."""
    return [
        [cell.strip().replace("`", "") for cell in line.strip().strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|") and not _RULER.fullmatch(line)
    ]


def code_blocks(wanted: str) -> list[object]:
    """Give every fenced block in a language."""
    return [
        pytest.param(body, id=f"{path.name}-{number}")
        for path in DOCS
        for number, (language, body) in enumerate(_FENCE.findall(path.read_text()), 1)
        if language == wanted
    ]


def commands_in(block: str) -> Iterator[list[str]]:
    """Give the commands of a shell block, each as its words."""
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words


def command_paths(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Name every command below one; groups do nothing by themselves."""
    if not isinstance(command, click.Group):
        yield path
        return
    for name, below in command.commands.items():
        yield from command_paths(below, (*path, name))


def command_at(path: Sequence[str]) -> click.Command:
    command: click.Command = main
    for name in path:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    return command


def take(command: click.Command, words: Sequence[str]) -> None:
    """Have a command read its arguments, without doing what it does."""
    if isinstance(command, click.Group):
        take(command.commands[words[0]], words[1:])
    else:
        command.make_context(command.name, list(words))


def messages(refusal: type[Refusal]) -> Iterator[str]:
    """Give every message of a refusal; `<field>` stands for the field that one is about."""
    parameters = list(inspect.signature(refusal).parameters.values())
    about = {each.name: f"<{each.name}>" for each in parameters if "str" in str(each.annotation)}
    if hasattr(refusal, "message"):
        yield refusal.message
        return
    yield refusal(**about).message
    if all(each.default is not each.empty for each in parameters):
        yield refusal().message


def numbers(version: str) -> tuple[int, ...]:
    """Give a version as numbers, which compare as versions do."""
    return tuple(map(int, version.split(".")))


def package_names(requirements: Iterable[str]) -> set[str]:
    return {re.split(r"[<>=~!\[ ]", each, maxsplit=1)[0] for each in requirements}


@cache
def names_of_tests(path: Path) -> list[list[str]]:
    """Name the tests of a file, each with the class that it is in, if any."""
    body = ast.parse(path.read_text()).body
    classes = [each for each in body if isinstance(each, ast.ClassDef)]
    return [
        *([each.name] for each in body if is_test(each)),
        *([own.name, each.name] for own in classes for each in own.body if is_test(each)),
    ]


def is_test(node: ast.stmt) -> TypeGuard[ast.FunctionDef]:
    return isinstance(node, ast.FunctionDef) and node.name.startswith("test_")


def anchors(path: Path) -> set[str]:
    """Give the anchors that code hosts make of a page's headings."""
    titles = (each[2] for each in _HEADING.finditer(without_fences(path.read_text())))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


class TestHttpApi:
    @pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
    def test_an_operation_is_described_whole(self, operation: Operation) -> None:
        described = self._section_of(operation)
        responses = document("http://localhost")["paths"][operation.path][  # type: ignore[index]  # JSON, whose values are objects
            operation.method
        ]["responses"]

        listed = {name for row in table_rows(described) for name in row[0].split(", ")}
        for parameter in operation.parameters:
            assert parameter["name"] in listed
        for status in responses:
            assert re.search(rf"\b{status}\b", described), status

    @pytest.mark.parametrize(
        "refusal",
        [
            each
            for module in (domain.errors, adapters.http.errors)
            for _, each in inspect.getmembers(module, inspect.isclass)
            if issubclass(each, Refusal) and each is not Refusal
        ],
        ids=lambda refusal: refusal.__name__,
    )
    def test_a_refusal_is_listed_with_its_code(self, refusal: type[Refusal]) -> None:
        errors = section(doc("http-api.md"), "7. Errors")
        rows = [row[1:] for row in table_rows(errors)]

        for message in messages(refusal):
            assert [str(refusal.code), message] in rows

    def test_a_field_is_listed(self) -> None:
        resources = section(doc("http-api.md"), "2. Resources and their fields")
        names = {
            field.encode_name
            for _, struct in inspect.getmembers(adapters.http.answers, inspect.isclass)
            if issubclass(struct, Struct) and struct is not Struct
            for field in struct_fields(struct)
            # Lists and health answers are shown where they are answered.
            if not struct.__name__.endswith(("Cards", "ForSale", "Health"))
        }
        names |= {field.encode_name for field in struct_fields(AddCardBody)}

        assert names
        for name in names:
            assert f"`{name}`" in resources, name

    @pytest.mark.parametrize(("name", "length"), MAX_LENGTHS.items())
    def test_a_field_of_the_billing_address_is_listed_with_its_length(
        self, name: str, length: int
    ) -> None:
        billing_info = section(doc("http-api.md"), "2.2 billing_info object")

        assert [name, "string", f"{length} characters"] in [
            row[:3] for row in table_rows(billing_info)
        ]

    @pytest.mark.parametrize("permission", Permission)
    def test_a_permission_is_listed(self, permission: Permission) -> None:
        authentication = section(doc("http-api.md"), "5. Authentication")

        assert permission in [row[0] for row in table_rows(authentication)]

    def test_every_section_that_the_code_cites_is_there(self) -> None:
        headings = [each[2] for each in _HEADING.finditer(without_fences(doc("http-api.md")))]
        numbers = {heading.split()[0].rstrip(".") for heading in headings}
        cited = {
            number
            for path in CODE
            for citation in re.findall(r"\b[Ss]ections? ([0-9][0-9., andto]*)", path.read_text())
            for number in _SECTION_NUMBER.findall(citation)
        }

        assert cited
        assert cited <= numbers

    def _section_of(self, operation: Operation) -> str:
        text = doc("http-api.md")
        named = f"`{operation.method.upper()} {operation.path}`"
        headings = [each[2] for each in _HEADING.finditer(without_fences(text)) if each[1] == "###"]
        sections = [section(text, heading) for heading in headings if heading.startswith("4.")]
        described = [each for each in sections if named in each]
        assert len(described) == 1, f"{named} is not described in one section"
        return described[0]


class TestOperations:
    def test_the_settings_in_the_table_are_those_that_the_code_reads(self) -> None:
        listed = {row[0] for row in table_rows(section(doc("operations.md"), "Settings"))}

        assert {name for name in listed if _SETTING.fullmatch(name)} == settings_of_code()

    @pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
    def test_no_setting_is_named_that_the_code_does_not_read(self, path: Path) -> None:
        # Set when tests are run, and read by them; and those of the PSP of another company.
        of_tests = {
            name
            for source in (ROOT / "Makefile", ROOT / "tests/outside/test_outside.py")
            for name in _SETTING.findall(source.read_text())
        }

        assert set(_SETTING.findall(path.read_text())) <= settings_of_code("harbor_spa") | of_tests

    @pytest.mark.parametrize("path", list(command_paths(main)), ids=" ".join)
    def test_a_command_is_described_with_its_options(self, path: tuple[str, ...]) -> None:
        described = section(doc("operations.md"), " ".join(("cardonfile", *path)))
        listed = [row[0].partition(" ")[0] for row in table_rows(described)]
        options = [
            name
            for parameter in command_at(path).params
            if isinstance(parameter, click.Option)
            for name in parameter.opts
        ]

        assert [name for name in listed if name.startswith("--")] == options

    @pytest.mark.parametrize(("what", "kind"), KINDS.items())
    def test_the_columns_of_an_import_are_listed(self, what: str, kind: Kind) -> None:
        rows = table_rows(section(doc("operations.md"), "cardonfile import"))
        start = next(number for number, row in enumerate(rows) if row[0] == what)
        after = rows[start + 1 :]
        end = next((number for number, row in enumerate(after) if row[0]), len(after))

        assert [row[1] for row in [rows[start], *after[:end]]] == list(kind.columns)

    def test_the_events_in_the_table_are_those_that_the_code_logs(self) -> None:
        logged = {name for path in CODE for name in _EVENT.findall(path.read_text())}
        rows = table_rows(section(doc("operations.md"), "Logs"))

        assert logged
        assert {row[0] for row in rows[1:]} == logged


class TestReliability:
    ROWS: Final = (
        *(f"I{number}" for number in range(1, 9)),
        *(f"F{number}" for number in range(1, 42)),
        *(f"S{number}" for number in range(1, 23)),
    )
    TABLE: Final = {
        row[0]: row[1:]
        for row in table_rows(doc("reliability.md"))
        if re.match("[IFS][0-9]", row[0])
    }

    def test_each_row_is_there_once_and_in_order(self) -> None:
        listed = [row[0] for row in table_rows(doc("reliability.md")) if row[0]]

        assert tuple(listed) == self.ROWS

    @pytest.mark.parametrize("number", ROWS)
    def test_a_row_has_tests_that_are_there_and_says_what_is_seen(self, number: str) -> None:
        promised, shown_by, seen = self.TABLE[number]

        assert promised
        assert seen
        assert shown_by
        for named in shown_by.split("<br>"):
            path, *names = named.split("::")
            assert names in names_of_tests(ROOT / path), named


class TestFakePsp:
    @pytest.mark.parametrize(("number", "card"), TEST_CARDS.items())
    def test_a_test_card_is_listed(self, number: str, card: PublishedCard) -> None:
        grouped = " ".join(re.findall("....", number))

        rows = table_rows(section(doc("fake-psp.md"), "Test cards"))

        assert [grouped, card.brand, card.behaviour] in [row[:3] for row in rows]

    def test_the_wrong_postal_code_is_named(self) -> None:
        assert f"`{WRONG_ZIPCODE}`" in section(doc("fake-psp.md"), "Test cards")

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
        for_tests, for_benchmarks = extras.pop("dev"), extras.pop("bench")
        listed = {
            heading: {row[0] for row in table_rows(section(doc("dependencies.md"), heading))[1:]}
            for heading in ("At run time", "Extras", "To build", "For tests", "For benchmarks")
        }

        assert listed == {
            "At run time": package_names(project["dependencies"]),
            "Extras": package_names(chain.from_iterable(extras.values())),
            "To build": package_names(PROJECT["dependency-groups"]["build"]),
            "For tests": package_names(for_tests),
            "For benchmarks": package_names(for_benchmarks),
        }

    def test_the_version_is_ahead_of_the_newest_release_or_is_that_release(self) -> None:
        newest, *released = re.findall(r"^## (\S+)", doc("changelog.md"), re.MULTILINE)
        version = PROJECT["project"]["version"]
        if newest == "Unreleased":
            assert version.endswith(".dev0")
            assert numbers(version.removesuffix(".dev0")) > numbers(released[0])
        else:
            assert version == newest

    def test_the_version_is_the_one_that_the_command_tells(self) -> None:
        told = CliRunner().invoke(main, ["--version"], prog_name="cardonfile").stdout
        assert told == f"cardonfile, version {PROJECT['project']['version']}\n"

    def test_the_readme_leads_to_every_page(self) -> None:
        linked = set(_LINK.findall((ROOT / "README.md").read_text()))

        assert {str(path.relative_to(ROOT)) for path in DOCS[1:]} <= linked


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
class TestLinks:
    def test_a_link_leads_somewhere(self, path: Path) -> None:
        prose = without_fences(path.read_text())
        for target in _LINK.findall(prose) + _IMAGE.findall(prose):
            if "://" in target:
                continue
            name, _, anchor = target.partition("#")
            linked = (path.parent / name).resolve() if name else path
            assert linked.exists(), target
            assert not anchor or anchor in anchors(linked), target

    def test_a_path_of_the_source_tree_is_there(self, path: Path) -> None:
        for named in _SOURCE_PATH.findall(path.read_text()):
            assert (ROOT / named).exists(), named


class TestExamples:
    @pytest.mark.parametrize("body", code_blocks("json"))
    def test_json_is_json(self, body: str) -> None:
        json.loads(body)

    @pytest.mark.parametrize("body", code_blocks("python"))
    def test_python_is_what_the_file_says_that_its_first_line_names(self, body: str) -> None:
        first, _, shown = body.partition("\n")

        assert shown in (ROOT / first.removeprefix("# ")).read_text()

    @pytest.mark.parametrize("body", code_blocks("sh"))
    def test_the_shell_can_read_a_command(self, body: str) -> None:
        shell = subprocess.run(
            ["sh", "-n"], input=body, text=True, capture_output=True, check=False
        )

        assert (shell.returncode, shell.stderr) == (0, "")

    @pytest.mark.parametrize("body", code_blocks("sh"))
    def test_a_command_can_be_pasted_into_a_shell_that_knows_no_comments(self, body: str) -> None:
        # zsh, which macOS starts, takes them for words when they are typed.
        assert not re.search(r"^#|\s#", body, re.MULTILINE)

    @pytest.mark.parametrize("body", code_blocks("sh"))
    def test_the_body_of_a_curl_line_is_json(self, body: str) -> None:
        for words in commands_in(body):
            for option, value in pairwise(words):
                if words[0] == "curl" and option == "-d":
                    json.loads(value)

    @pytest.mark.parametrize("body", code_blocks("sh"))
    def test_a_command_line_is_one_that_the_program_takes(self, body: str) -> None:
        for words in commands_in(body):
            if words[0] == "cardonfile":
                take(main, words[1:])

    @pytest.mark.parametrize("body", code_blocks("sh"))
    def test_a_make_target_is_one_of_the_makefile(self, body: str) -> None:
        targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
        for words in commands_in(body):
            if words[0] == "make":
                assert words[1] in targets
