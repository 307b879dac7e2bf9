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
    by_hand: bool

    def of(self, section: str) -> list[Interpreter]:
        """All, if they were chosen by hand. Else, for every tool, one from before 3.12 changed how lines are told and
        the newest; for programs, which take longest, the newest; for what hardly depends on Python the main one."""
        if self.by_hand or section in ("calls", "lines"):
            return self.chosen
        if section == "events":
            return list(dict.fromkeys([self.main_one, self.chosen[-1]]))
        return [self.chosen[-1]] if section == "programs" else [self.main_one]


def summaries(figures: Figures) -> dict[str, Any]:
    return {key: series.summary() for key, series in figures.items()}


def in_folder(measure: Callable[[Path], Any]) -> Any:
    with tempfile.TemporaryDirectory(prefix="lineprofiler-bench-", ignore_cleanup_errors=True) as folder:
        return measure(Path(folder))


def show_rows(figures: dict[str, Any], rows: list[Row]) -> dict[str, Any]:
    print("\n".join(writing.table(figures, rows)), flush=True)
    return figures


def calls(interpreter: Interpreter, plan: Plan) -> dict[str, Any]:
    ours, peer = sections.environments(interpreter)
    figures = in_folder(lambda folder: sections.measure_calls(ours, peer, plan.rounds, folder))
    return show_rows(summaries(figures), ROWS)


def lines(interpreter: Interpreter, plan: Plan) -> dict[str, Any]:
    venv = sections.lines_environment(interpreter)
    rounds = 1 if plan.quick else max(3, plan.rounds // 2)
    figures = in_folder(lambda folder: sections.measure_lines(venv, rounds, folder))
    return show_rows(summaries(figures), LINE_ROWS)


def all_places(interpreter: Interpreter) -> tuple[dict[str, Path], dict[str, str]]:
    ours, peer = sections.environments(interpreter)
    tools, missing = peers.tools_environment(interpreter)
    return {"ours": ours, "peer": peer, "tools": tools}, missing


def events(interpreter: Interpreter, plan: Plan) -> dict[str, Any]:
    places, missing = all_places(interpreter)
    found = in_folder(lambda folder: peers.measure_events(places, missing, plan.rounds, plan.quick, folder))
    print("\n".join(writing.events_table(found)), flush=True)
    return {"versions": peers.versions(places["tools"]), "tools": found}


def real_programs(interpreter: Interpreter, plan: Plan) -> dict[str, Any]:
    places, missing = all_places(interpreter)
    rounds = 1 if plan.quick else max(3, plan.rounds - 2)
    found = in_folder(
        lambda folder: programs.measure_programs(interpreter, places, missing, rounds, plan.quick, folder)
    )
    print("\n".join(writing.programs_table(found)), flush=True)
    requirements = envs.requirement_lines(programs.REQUIREMENTS)
    return {"versions": peers.versions(places["tools"]), "requirements": requirements, "programs": found}


def collector(interpreter: Interpreter, plan: Plan) -> dict[str, Any]:
    ours, _ = sections.environments(interpreter)
    rounds = 1 if plan.quick else max(1, plan.rounds // 2)
    figures = in_folder(lambda folder: sections.measure_collector(ours, rounds, folder, plan.quick))
    return show_rows(summaries(figures), COLLECTOR_ROWS)


def reports(interpreter: Interpreter, plan: Plan) -> dict[str, Any]:
    ours, peer = sections.environments(interpreter)
    rounds = 2 if plan.quick else max(3, plan.rounds // 2)
    figures = in_folder(lambda folder: sections.measure_reports(ours, peer, rounds, folder, large=not plan.quick))
    return show_rows(summaries(figures), REPORT_ROWS)


MEASURE: dict[str, Callable[[Interpreter, Plan], dict[str, Any]]] = {
    "calls": calls,
    "lines": lines,
    "events": events,
    "programs": real_programs,
    "collector": collector,
    "reports": reports,
}


def entry(plan: Plan, measure: Callable[[], dict[str, Any]], already: float = 0.0) -> dict[str, Any]:
    """Figures, and when, where and how they were measured; `already`: seconds that were spent on them before."""
    before, start = os.getloadavg()[0], time.monotonic() - already
    figures = measure()
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": writing.commit(),
        "quick": plan.quick,
        "seconds": round(time.monotonic() - start, 1),
        "load_average": [before, os.getloadavg()[0]],
        "machine": writing.machine(),
        "peer": envs.requirement_lines(sections.PEER_REQUIREMENTS),
        "figures": figures,
    }


def measure(names: list[str], plan: Plan) -> dict[str, Any]:
    """By section, by version of Python or compiler: an entry."""
    document: dict[str, dict[str, Any]] = {name: {} for name in names}
    if "instructions" in names:
        say("instructions")
        start = time.monotonic()
        outcomes = instructions.measure()
        each = (time.monotonic() - start) / len(outcomes)
        for outcome in outcomes:
            print("\n".join(instructions.table(outcome)), flush=True)
            document["instructions"][outcome.compiler] = entry(plan, outcome.as_dict, each)
    for name in names:
        for interpreter in plan.of(name) if name in MEASURE else []:
            say(f"{name}, Python {interpreter}")
            document[name][str(interpreter)] = entry(plan, lambda n=name, i=interpreter: MEASURE[n](i, plan))
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
    return Plan(chosen, main_one, args.rounds or (2 if args.quick else 7), args.quick, bool(args.python))


def close(document: dict[str, Any]) -> int:
    """The closing lines; 1 if a hot path takes more instructions, the one verdict that no busy machine can spoil."""
    judged = verdicts(document)
    missed = [f"{version} {what}" for version, what, met in judged if not met]
    failed = writing.tools_that_failed(document)
    outcomes = [instructions.Outcome.from_dict(e["figures"]) for e in document.get("instructions", {}).values()]
    said, good = instructions.closing(outcomes) if outcomes else ([], True)
    seconds = sum(entry["seconds"] for entries in document.values() for entry in entries.values())
    for line in [
        *(f"  not met: {each}" for each in missed),
        *(f"  failed: {each}" for each in failed),
        *(f"  {each}" for each in said),
    ]:
        say(line)
    say(
        f"{len(judged) - len(missed)} of {len(judged)} numbers met, {len(failed)} rows of tools failed, "
        f"measured in {seconds:.0f} s"
    )
    return 0 if good else 1


def main() -> int:
    args = arguments()
    names = [s for s in SECTIONS if s in args.only] or [s for s in SECTIONS if s != "reports" or args.reports]
    try:
        document = writing.read_results() if args.tables else measure(names, plan_of(args))
        if args.tables or args.write or not (args.quick or args.only):
            written = writing.write_results(document)
            writing.write_tables(written)
            for path in [writing.RESULTS, writing.TABLE, *charts.write_charts(written)]:
                say(f"written: {path.relative_to(envs.ROOT)}")
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    return close(document)


if __name__ == "__main__":
    sys.exit(main())
