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
<<<<<<< HEAD

Values = dict[str, float]


# --- measuring ---


def run_work(venv: Path, *args: object, cwd: Path, script: str = "work.py") -> Values:
    """One workload in one process; the run directories that it makes land in `cwd`."""
    done = subprocess.run(
        [str(envs.python_of(venv)), str(HERE / script), *map(str, args)],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=envs.clean_environment(TMPDIR=str(cwd)),
    )
    if done.returncode != 0:
        raise SetupError(f"{args} in {venv.name} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    values = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(values, dict)
    return values


def floors(folder: Path) -> Values:
    program = folder / "floor"
    if not program.exists():
        compiler = os.environ.get("CC", "cc")
        envs.run([compiler, "-O2", "-o", program, HERE / "floor.c"], "compiling floor.c")
    out = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    return {name: float(value) for name, value in (line.split() for line in out.splitlines())}


def report_cost(venv: Path, run_dir: Path, *options: str) -> Values:
    """Seconds and peak memory of `lineprofiler report`, interpreter and all, from the kernel's own account."""
    start = time.perf_counter()
    child = subprocess.Popen(
        [str(venv / "bin" / "lineprofiler"), "report", str(run_dir), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=envs.clean_environment(),
    )
    assert child.stdout is not None
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - start
    if child.returncode != 0 or len(text) < 200:
        raise SetupError(f"report of {run_dir.name} in {venv.name} ended with {child.returncode}, {len(text)} bytes")
    return {"seconds": seconds, "peak_mb": usage.ru_maxrss / 1024}


@dataclass
class Series:
    """Rounds of one figure: ours, and the peer's of the same round where it was measured."""

    ours: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        def spread(values: list[float]) -> dict[str, float] | None:
            if not values:
                return None
            return {"median": statistics.median(values), "min": min(values), "max": max(values)}

        ratios = [p / o for o, p in zip(self.ours, self.peer, strict=False) if o > 0]
        return {
            "ours": spread(self.ours),
            "peer": spread(self.peer),
            "peer/ours": spread(ratios),
            "rounds": len(self.ours),
        }


Figures = dict[str, Series]


def add(figures: Figures, side: str, values: Values) -> None:
    for name, value in values.items():
        series = figures.setdefault(name, Series())
        (series.ours if side == "ours" else series.peer).append(value)


def measure_calls(ours: Path, peer: Path, rounds: int, folder: Path) -> Figures:
    figures: Figures = {}
    for number in range(rounds):
        for workload in ("phases", "phases_without_cpu", "nothing_installed", "first_visit", "mcts"):
            # The order changes every round: neither side always has the warmer machine.
            sides = [("ours", ours), ("peer", peer)]
            for side, venv in sides if number % 2 == 0 else sides[::-1]:
                add(figures, side, run_work(venv, workload, cwd=folder))
        for _ in range(3):
            for side, venv in (("ours", ours), ("peer", peer)):
                add(figures, side, run_work(venv, "import_time", cwd=folder))
        add(figures, "ours", floors(folder))
    for workload in ("segment_threads", "segment_paths"):
        add(figures, "ours", run_work(ours, workload, cwd=folder))
    return figures


def measure_reports(ours: Path, peer: Path, rounds: int, folder: Path, large: bool) -> Figures:
    figures: Figures = {}
    runs: list[tuple[str, str, Path, int]] = [("ours", "512", ours, 512), ("peer", "512", peer, 512)]
    if large:
        runs.append(("ours", "4096", ours, 4096))
    for side, name, venv, workers in runs:
        say(f"    making a run of {workers} workers ({side})")
        run_work(venv, "make_run", folder / f"{side}-{name}", workers, 64, cwd=folder)
    for _ in range(rounds):
        for side, name, venv, _workers in runs:
            cost = report_cost(venv, folder / f"{side}-{name}", "--no-samples")
            add(figures, side, {f"report_{name}_{key}": value for key, value in cost.items()})
    if large:
        say("    making a run of 64 workers with samples of 12 hours")
        megabytes = sampled_run.write(folder / "sampled", workers=64, hours=12)
        for _ in range(rounds):
            cost = report_cost(ours, folder / "sampled")
            add(figures, "ours", {f"report_sampled_{key}": value for key, value in cost.items()})
            add(figures, "ours", {"sampled_file_mb": megabytes})
    return figures


def measure_lines(venv: Path, rounds: int, folder: Path) -> Figures:
    """The line engine and line_profiler, in turns within one process; "peer" is line_profiler."""
    figures: Figures = {}
    for _ in range(rounds):
        values: dict[str, Any] = run_work(venv, 3, "json", cwd=folder, script="lines.py")
        for key, pair in values.items():
            for side, value in zip(("ours", "peer"), pair, strict=False):
                add(figures, side, {key: value})
    return figures


def measure_collector(ours: Path, rounds: int, folder: Path, quick: bool) -> Figures:
    figures: Figures = {}
    for number in range(rounds):
        for workload in (
            "fork_first_phase",
            "start_large",
            "start_subreaper",
            "stop_together",
            "cost_beside_64",
            "while_it_reads",
            "torch_reading",
            "deaths",
        ):
            place = folder / f"{workload}-{number}"
            place.mkdir()
            words = [workload, *(["quick"] if quick else [])]
            add(figures, "ours", run_work(ours, *words, cwd=place, script="collector.py"))
    return figures


# --- judging ---

Judge = Callable[[dict[str, Any]], bool]


def ours_of(figures: dict[str, Any], key: str) -> float:
    return float(figures[key]["ours"]["median"])


def at_least(key: str, factor: float) -> Judge:
    """The peer costs at least `factor` times as much."""
    return lambda f: float(f[key]["peer/ours"]["median"]) >= factor


def at_most(key: str, limit: float) -> Judge:
    return lambda f: ours_of(f, key) <= limit


def both(*judges: Judge) -> Judge:
    return lambda f: all(judge(f) for judge in judges)
=======
SECTIONS = ("instructions", "calls", "lines", "events", "programs", "collector", "reports")
>>>>>>> next


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


<<<<<<< HEAD
ROWS = [
    Row(
        "phase",
        "`with profiler.phase(…)`, wall and wait",
        "ns",
        "≤ 1/20 of the peer (1/30 wanted)",
        at_least("phase", 20),
    ),
    Row("module_phase", "`with accounting.phase(…)`, installed", "ns", ""),
    Row("phase_no_cpu", "the same, `measure_cpu=False`", "ns", ""),
    Row("count", "`profiler.count(…)`", "ns", "≤ 1/12 of the peer", at_least("count", 12)),
    Row("module_count", "`accounting.count(…)`, installed", "ns", ""),
    Row(
        "off_phase",
        "`accounting.phase(…)`, nothing installed",
        "ns",
        "≤ 1/2 of the peer, < empty `with`",
        both(at_least("off_phase", 2), lambda f: ours_of(f, "off_phase") < ours_of(f, "off_empty_with")),
    ),
    Row(
        "off_count",
        "`accounting.count(…)`, nothing installed",
        "ns",
        "≤ 1/2 of the peer, < empty `with`",
        both(at_least("off_count", 2), lambda f: ours_of(f, "off_count") < ours_of(f, "off_empty_with")),
    ),
    Row("off_empty_with", "an empty `with` of a Python class", "ns", ""),
    Row(
        "io",
        "`phase(io=True)` (peer with psutil)",
        "ns",
        "below the peer, ≤ two `pread`s + 300 ns",
        both(at_least("io", 1), lambda f: ours_of(f, "io") <= ours_of(f, "two_preads_of_proc_self_io") + 300),
    ),
    Row("two_preads_of_proc_self_io", "floor: two `pread`s of /proc/self/io", "ns", ""),
    Row("two_reads_of_thread_cpu_clock", "floor: two reads of the thread's CPU clock", "ns", ""),
    Row("two_reads_of_monotonic_clock", "floor: two reads of CLOCK_MONOTONIC", "ns", ""),
    Row("two_reads_of_cycle_counter", "floor: two reads of the cycle counter", "ns", ""),
    Row("sampled", "`phase(sample=0.01)`", "ns", "≤ 1/8 of the peer", at_least("sampled", 8)),
    Row("first_visit", "first visit of a path", "ns", "≤ 5 µs", at_most("first_visit", 5000)),
    Row("mcts_bare", "MCTS search, 2,000 iterations, bare", "ms", ""),
    Row("mcts_four_ratio", "… four phases an iteration, to bare", "x", "≤ 1.05", at_most("mcts_four_ratio", 1.05)),
    Row("mcts_nested_ratio", "… nested, with counters, to bare", "x", "≤ 1.15", at_most("mcts_nested_ratio", 1.15)),
    Row("mcts_four_off_ratio", "floor: the four phases with nothing installed, to bare", "x", ""),
    Row("mcts_nested_off_ratio", "floor: nested with nothing installed, to bare", "x", ""),
    Row("import", "`import lineprofiler.accounting`", "ms", "≤ 1/3 of the peer", at_least("import", 3)),
    Row("segment_threads", "segment: 32 phases in 4 threads", "KB", "≤ 512 KB", at_most("segment_threads", 512 * 1024)),
    Row("segment_paths", "segment: 4,096 paths", "KB", "≤ 16 MB", at_most("segment_paths", 16 * 1024 * 1024)),
]

COLLECTOR_ROWS = [
    Row("fork_bare", "`os.fork()`, nothing recorded", "µs", ""),
    Row(
        "fork_first_phase",
        "… and the child's first phase: dearer by",
        "µs",
        "≤ 60 µs",
        at_most("fork_first_phase", 60e3),
    ),
    Row("collector_start", "start of the collector at 4 GB", "ms", "≤ 2 ms", at_most("collector_start", 2e6)),
    Row(
        "collector_start_subreaper",
        "… by a subreaper at 100 MB",
        "ms",
        "≤ 5 ms",
        at_most("collector_start_subreaper", 5e6),
    ),
    Row(
        "killed_worker_on_disk",
        "a killed worker is on the disk",
        "ms",
        "≤ 0.5 s",
        at_most("killed_worker_on_disk", 5e8),
    ),
    Row("stop_together", "64 workers x 32 phases close at once", "ms", "≤ 1 s", at_most("stop_together", 1e9)),
    Row(
        "collector_share",
        "the collector beside 64 processes, of a core",
        "x",
        "≤ 0.005",
        at_most("collector_share", 0.005),
    ),
    Row("collector_memory", "… peak memory", "KB", "≤ 10 MB", at_most("collector_memory", 10 * 1024 * 1024)),
    Row(
        "while_it_reads_ratio",
        "a phase while it is read each 50 ms, to alone",
        "x",
        "≤ 1.03",
        at_most("while_it_reads_ratio", 1.03),
    ),
    Row(
        "torch_reading",
        "a phase that asks torch for its memory, once a second",
        "µs",
        "≤ 20 µs",
        at_most("torch_reading", 20_000),
    ),
    Row("torch_answer", "… of which the stand-in for torch takes", "µs", ""),
    Row("deaths_per_s", "workers of one task, one after the other", "", ""),
    Row("death_cost", "… CPU time of the collector each", "µs", ""),
    Row("deaths_behind", "… most that waited to be written", "", "≤ 500", at_most("deaths_behind", 500)),
]
=======
def summaries(figures: Figures) -> dict[str, Any]:
    return {key: series.summary() for key, series in figures.items()}
>>>>>>> next


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
