"""The page says what the figures say, and nothing else."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks import report
from tests.benchmarks.add_card import SETTINGS
from tests.benchmarks.flow import SETTINGS as FLOWS
from tests.benchmarks.growth import CONNECTIONS, SIZES
from tests.benchmarks.imports import FEWER_ROWS, ROWS, SHELL
from tests.benchmarks.imports import OURS as OUR_IMPORT
from tests.benchmarks.pages import OFFSET, PAGES
from tests.benchmarks.pages import OURS as OUR_PAGES
from tests.benchmarks.results import (
    AddCard,
    Flow,
    Grown,
    Growth,
    Import,
    Load,
    Machine,
    Memory,
    Page,
    Results,
    Settled,
    Settlement,
    Start,
    read_growth,
    read_results,
    save,
)
from tests.benchmarks.servers import FLASK, FLOOR, ON_WAITRESS
from tests.benchmarks.settlements import SETTINGS as SETTLEMENTS
from tests.test_docs import section, table_rows

MACHINE = Machine(
    processor="A processor",
    cores=2,
    memory_gb=8,
    kernel="Linux 6",
    file_system="ext4",
    sync_ms=0.1,
    versions={"SQLite": "3.53.4"},
)


def a_load(answers: int = 1000, **changes: float) -> Load:
    seen = {"seconds": 1.0, "p50_ms": 1.0, "p99_ms": 5.0, "cpu_seconds": 0.5, **changes}
    return Load(answers=answers, refused=0, cut_off=0, **seen)


def some_results(**answers: int) -> Results:
    """Give the figures of two rounds; `answers` are those of a server by its name."""
    return Results(
        machine=MACHINE,
        rounds=2,
        seconds=1,
        add_card=[
            AddCard(
                server=setting.server,
                database=setting.database,
                processes=setting.processes,
                connections=connections,
                round=number,
                load=a_load(answers.get(setting.server, 1000)),
            )
            for number in (1, 2)
            for setting in SETTINGS
            for connections in setting.connections
        ],
        flows=[
            Flow(
                database=each.database,
                processes=each.processes,
                round=number,
                per_second=9,
                failed=0,
            )
            for number in (1, 2)
            for each in FLOWS
        ],
        pages=[
            Page(how=how, page=page, round=number, ms=1.0)
            for number in (1, 2)
            for page in PAGES
            for how in (OUR_PAGES, OFFSET)
        ],
        imports=[
            Import(how=how, rows=rows, round=1, seconds=1, peak_mb=90)
            for rows in (FEWER_ROWS, ROWS)
            for how in (OUR_IMPORT, SHELL)
        ],
        starts=[Start(server=ON_WAITRESS, round=1, seconds=0.6, memory_mb=90)],
        memory=[
            Memory(requests=requests, memory_mb=90 + requests / 100_000)
            for requests in (1, 40_000, 140_000)
        ],
        settlements=[
            Settlement(database=database, workers=workers, round=round_, per_second=30.0 * workers)
            for database, workers in SETTLEMENTS
            for round_ in (1, 2)
        ],
        settled=Settled(cards=300, p50_ms=40, p99_ms=900),
    )


def some_growth(most_cpu_seconds: float = 0.5) -> Growth:
    return Growth(
        machine=MACHINE,
        rounds=1,
        seconds=1,
        database_mb={str(sessions): sessions / 1000 for sessions in SIZES},
        add_card=[
            Grown(
                sessions=sessions,
                connections=connections,
                round=1,
                load=a_load(cpu_seconds=most_cpu_seconds if sessions == SIZES[-1] else 0.5),
            )
            for sessions in SIZES
            for connections in CONNECTIONS
        ],
    )


def marks(results: Results, growth: Growth | None = None) -> dict[str, str]:
    rows = table_rows(section(report.page(results, growth), "Goals"))
    return {row[0]: row[-1] for row in rows[1:]}


def test_a_mark_follows_the_figures() -> None:
    against_floor = "Add-card a second, 16 connections, against floor"

    assert marks(some_results(**{FLOOR: 2000}))[against_floor] == "**no**"
    assert marks(some_results(**{FLOOR: 1200}))[against_floor] == "yes"
    assert marks(some_results(**{FLOOR: 1000}))[against_floor] == "yes, as wanted"


def test_the_better_peer_is_the_one_that_is_compared_with() -> None:
    assert f"Add-card a second, 16 connections, against {FLASK}" in marks(
        some_results(**{FLASK: 3000})
    )


def test_growth_is_marked_when_it_was_measured() -> None:
    what = "CPU of add-card with 10,000,000 sessions against 1,000"

    assert what not in marks(some_results())
    assert marks(some_results(), some_growth())[what] == "yes"
    assert marks(some_results(), some_growth(most_cpu_seconds=0.7))[what] == "**no**"


def test_answers_that_are_no_success_are_no_throughput() -> None:
    load = Load(answers=100, refused=40, cut_off=0, seconds=2, p50_ms=1, p99_ms=1)

    assert load.per_second == 30


def test_a_server_that_answers_nothing_is_shown() -> None:
    page = report.page(some_results(**{FLASK: 0}), None)

    rows = table_rows(section(page, "Add-card"))
    nothing = "0; 2 of 2 rounds without an answer"
    assert [FLASK, "64", "0", *["no answer"] * 3, nothing] in rows


def test_figures_that_were_kept_are_read_again(tmp_path: Path) -> None:
    save(some_results(), tmp_path / "results.json")
    save(some_growth(), tmp_path / "growth.json")

    assert read_results(tmp_path / "results.json") == some_results()
    assert read_growth(tmp_path / "growth.json") == some_growth()
    assert read_growth(tmp_path / "none.json") is None


def test_the_page_is_what_the_report_makes_of_the_figures() -> None:
    # Nobody has changed it by hand.
    assert report.PAGE.read_text() == report.page(read_results(), read_growth())
