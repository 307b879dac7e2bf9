"""`make bench`: our costs beside other tools', measured in turn on this machine; writes results, tables and charts.

Sections: calls, lines, events, programs, collector, reports, instructions. Each is measured by a module of its own
(sections.py, peers.py, programs.py, instructions.py); this one chooses, says and writes. A whole run writes what it
measured into results.json, into README.md and as charts into build/bench/; a quick one or one section alone does so
with `--write`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tools"))

import charts  # noqa: E402
import envs  # noqa: E402
import instructions  # noqa: E402
import peers  # noqa: E402
import programs  # noqa: E402
import sections  # noqa: E402
import writing  # noqa: E402
from envs import Interpreter, SetupError, say  # noqa: E402
from measuring import Figures  # noqa: E402
from rows import COLLECTOR_ROWS, LINE_ROWS, REPORT_ROWS, ROWS, Row, verdicts  # noqa: E402

VERSIONS = ((3, 10), (3, 11), (3, 12), (3, 13))
SECTIONS = ("instructions", "calls", "lines", "events", "programs", "collector", "reports")


@dataclass(frozen=True)
class Plan:
    """What is to be measured, how often, on which interpreters."""

    chosen: list[Interpreter]
    main_one: Interpreter
    rounds: int
    quick: bool

    @property
    def beside(self) -> list[Interpreter]:
        """For every tool: how lines are told changed with 3.12, so one from before and the newest."""
        return self.chosen if len(self.chosen) < 3 else [self.main_one, self.chosen[-1]]


def summaries(figures: Figures) -> dict[str, Any]:
    return {key: series.summary() for key, series in figures.items()}


def in_folder(measure: Callable[[Path], Any]) -> Any:
    with tempfile.TemporaryDirectory(prefix="lineprofiler-bench-", ignore_cleanup_errors=True) as folder:
        return measure(Path(folder))


def show_rows(figures: dict[str, Any], rows: list[Row]) -> dict[str, Any]:
    print("\n".join(writing.table(figures, rows)), flush=True)
    return figures


def by_version(plan: list[Interpreter], what: str, measure: Callable[[Interpreter], dict[str, Any]]) -> dict[str, Any]:
    found = {}
    for interpreter in plan:
        say(f"{what}, Python {interpreter}")
        found[str(interpreter)] = measure(interpreter)
    return found


def calls(plan: Plan) -> dict[str, Any]:
    def measure(interpreter: Interpreter) -> dict[str, Any]:
        ours, peer = sections.environments(interpreter)
        figures = in_folder(lambda folder: sections.measure_calls(ours, peer, plan.rounds, folder))
        return show_rows(summaries(figures), ROWS)

    return by_version(plan.chosen, "Calls", measure)


def lines(plan: Plan) -> dict[str, Any]:
    def measure(interpreter: Interpreter) -> dict[str, Any]:
        venv = sections.lines_environment(interpreter)
        rounds = 1 if plan.quick else max(3, plan.rounds // 2)
        figures = in_folder(lambda folder: sections.measure_lines(venv, rounds, folder))
        return show_rows(summaries(figures), LINE_ROWS)

    return by_version(plan.chosen, "Lines", measure)


def all_places(interpreter: Interpreter) -> tuple[dict[str, Path], dict[str, str]]:
    ours, peer = sections.environments(interpreter)
    tools, missing = peers.tools_environment(interpreter)
    return {"ours": ours, "peer": peer, "tools": tools}, missing


def events(plan: Plan) -> dict[str, Any]:
    def measure(interpreter: Interpreter) -> dict[str, Any]:
        places, missing = all_places(interpreter)
        found = in_folder(lambda folder: peers.measure_events(places, missing, plan.rounds, plan.quick, folder))
        print("\n".join(writing.events_table(found)), flush=True)
        return {"versions": peers.versions(places["tools"]), "tools": found}

    return by_version(plan.beside, "Events under every tool", measure)


def real_programs(plan: Plan) -> dict[str, Any]:
    def measure(interpreter: Interpreter) -> dict[str, Any]:
        places, missing = all_places(interpreter)
        rounds = 1 if plan.quick else max(3, plan.rounds - 2)
        found = in_folder(
            lambda folder: programs.measure_programs(interpreter, places, missing, rounds, plan.quick, folder)
        )
        print("\n".join(writing.programs_table(found)), flush=True)
        return {"versions": peers.versions(places["tools"]), "programs": found}

    return by_version(plan.beside, "Programs under every tool", measure)


def collector(plan: Plan) -> dict[str, Any]:
    say(f"Collector, Python {plan.main_one}")
    ours, _ = sections.environments(plan.main_one)
    rounds = 1 if plan.quick else max(1, plan.rounds // 2)
    figures = in_folder(lambda folder: sections.measure_collector(ours, rounds, folder, plan.quick))
    return {str(plan.main_one): show_rows(summaries(figures), COLLECTOR_ROWS)}


def reports(plan: Plan) -> dict[str, Any]:
    say(f"Reports, Python {plan.main_one}")
    ours, peer = sections.environments(plan.main_one)
    figures = in_folder(
        lambda folder: sections.measure_reports(ours, peer, max(3, plan.rounds // 2), folder, large=not plan.quick)
    )
    return {str(plan.main_one): show_rows(summaries(figures), REPORT_ROWS)}


def counted(plan: Plan) -> dict[str, Any]:
    say("Instructions of the hot paths")
    outcomes = instructions.measure()
    for outcome in outcomes:
        print("\n".join(instructions.table(outcome)), flush=True)
    said, good = instructions.closing(outcomes)
    return {
        "met": good,
        "said": said,
        "compilers": {o.compiler: {"found": o.found, "kept": o.kept} for o in outcomes},
        "tables": [instructions.table(o) for o in outcomes],
    }


MEASURE: dict[str, Callable[[Plan], dict[str, Any]]] = {
    "instructions": counted,
    "calls": calls,
    "lines": lines,
    "events": events,
    "programs": real_programs,
    "collector": collector,
    "reports": reports,
}


def measure(names: list[str], plan: Plan) -> dict[str, Any]:
    """By section: the figures, and when, where and how they were measured."""
    document = {}
    for name in names:
        before, start = os.getloadavg()[0], time.monotonic()
        found = MEASURE[name](plan)
        document[name] = {
            "date": time.strftime("%Y-%m-%d"),
            "commit": writing.commit(),
            "quick": plan.quick,
            "seconds": round(time.monotonic() - start, 1),
            "load_average": [before, os.getloadavg()[0]],
            "machine": writing.machine(),
            "peer": envs.requirement_lines(sections.PEER_REQUIREMENTS),
            "figures": found,
        }
    return document


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few rounds, one Python, small runs; writes no table")
    parser.add_argument("--python", default="", metavar="3.11,3.13", help="only these versions")
    parser.add_argument("--rounds", type=int, default=0, help="7; 2 with --quick")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=SECTIONS,
        help="this section; may be given again; writes no table",
    )
    parser.add_argument("--write", action="store_true", help="write tables and charts all the same")
    parser.add_argument("--no-reports", dest="reports", action="store_false", help="leave out the runs of many workers")
    parser.add_argument("--tables", action="store_true", help="write them anew from results.json; measures nothing")
    args = parser.parse_args()
    if args.rounds < 0:
        parser.error("--rounds is a number of rounds, 1 or more")
    return args


def plan_of(args: argparse.Namespace) -> Plan:
    envs.require_compiler()
    found = [i for i in envs.find_interpreters() if i.minor in VERSIONS]
    if not found:
        raise SetupError("no Python from 3.10 to 3.13 was found")
    main_one = envs.main_interpreter(found)
    wanted = [f"{i.version[0]}.{i.version[1]}" for i in ([main_one] if args.quick else found)]
    wanted = args.python.split(",") if args.python else wanted
    chosen = [i for i in found if f"{i.version[0]}.{i.version[1]}" in wanted]
    if not chosen:
        raise SetupError(f"none of {', '.join(wanted)} is here")
    main_one = main_one if main_one in chosen else chosen[-1]
    return Plan(chosen, main_one, args.rounds or (2 if args.quick else 7), args.quick)


def close(document: dict[str, Any]) -> int:
    """The closing lines; 1 if a hot path takes more instructions, the one verdict that no busy machine can spoil."""
    judged = verdicts({name: section["figures"] for name, section in document.items()})
    missed = [f"{version} {what}".strip() for version, what, met in judged if not met]
    failed = writing.tools_that_failed(document)
    counts = document.get("instructions")
    for line in [
        *(f"  not met: {each}" for each in missed),
        *(f"  failed: {each}" for each in failed),
        *(f"  {each}" for each in (counts["figures"]["said"] if counts else [])),
    ]:
        say(line)
    say(f"{len(judged) - len(missed)} of {len(judged)} numbers met, {len(failed)} rows of other tools failed")
    return 0 if counts is None or counts["figures"]["met"] else 1


def main() -> int:
    args = arguments()
    names = [s for s in SECTIONS if s in args.only] or [s for s in SECTIONS if s != "reports" or args.reports]
    try:
        document = writing.read_results() if args.tables else measure(names, plan_of(args))
        if args.tables or args.write or not (args.quick or args.only):
            written = writing.write_results(document)
            writing.write_tables(written)
            say("".join(f"written: {path}\n" for path in charts.write_charts(written)).rstrip())
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    return close(document)


if __name__ == "__main__":
    sys.exit(main())
