"""`make bench`: our costs beside the peer's, measured in turn on this machine; writes results.json and the table.

Each figure comes from processes of its own, started ours, peer, ours, peer, …; within a process it is a median over
batches (work.py), over the rounds the median again, and the ratio is taken round by round, so that a slow minute of
the machine takes both sides. Both packages are imported as `lineprofiler`, hence an environment each.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tools"))

import envs  # noqa: E402
import sampled_run  # noqa: E402
from envs import ROOT, Interpreter, SetupError, say  # noqa: E402

RESULTS = HERE / "results.json"
TABLE = HERE / "README.md"
PEER_REQUIREMENTS = HERE / "requirements-peer.txt"
LINES_REQUIREMENTS = HERE / "requirements-lines.txt"
BEGIN, END = "<!-- begin: written by run.py -->", "<!-- end -->"
VERSIONS = ((3, 10), (3, 11), (3, 12), (3, 13))

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
            "beside_64",
            "beside_64_often",
            "beside_64_waiting",
            "while_it_reads",
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


@dataclass(frozen=True)
class Row:
    key: str
    what: str
    unit: str
    must: str
    met: Judge | None = None


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
        "the collector beside 64 processes that record, of a core",
        "x",
        "≤ 0.005",
        at_most("collector_share", 0.005),
    ),
    Row("collector_share_5", "… with a snapshot each 5 s", "x", ""),
    Row("collector_share_waiting", "… that wait", "x", ""),
    Row("collector_memory", "… peak memory", "KB", "≤ 10 MB", at_most("collector_memory", 10 * 1024 * 1024)),
    Row(
        "while_it_reads_ratio",
        "a phase while it is read each 50 ms, to alone",
        "x",
        "≤ 1.03",
        at_most("while_it_reads_ratio", 1.03),
    ),
    Row("deaths_per_s", "workers of one task, one after the other", "", ""),
    Row("death_cost", "… CPU time of the collector each", "µs", ""),
    Row("deaths_behind", "… most that waited to be written", "", "≤ 500", at_most("deaths_behind", 500)),
]


def by_version(key: str, new: float, old: float) -> Judge:
    """A bound on the ratio: from 3.12 on, and before."""
    return lambda f: float(f[key]["peer/ours"]["median"]) >= (new if ours_of(f, "monitoring") else old)


LINE_MUST = "≤ 1/5 of line_profiler; 3.10, 3.11: 1/3"
LINE_ROWS = [
    Row("line", "a line", "ns", LINE_MUST, by_version("line", 5, 3)),
    Row("line_far", "… with a number above 256", "ns", LINE_MUST, by_version("line_far", 5, 3)),
    Row("line_global", "… that begins with a global", "ns", LINE_MUST, by_version("line_global", 5, 3)),
    Row("line_global_far", "… both", "ns", LINE_MUST, by_version("line_global_far", 5, 3)),
    Row("call", "a call of a marked one-line function", "ns", "≤ 1/10; 3.10, 3.11: 1/3", by_version("call", 10, 3)),
    Row(
        "unprofiled",
        "code that is not profiled: calls",
        "x",
        "≤ 1.02; 3.10, 3.11: 1.3",
        lambda f: ours_of(f, "unprofiled") <= (1.02 if ours_of(f, "monitoring") else 1.3),
    ),
    Row("unprofiled_raising", "… that raises all the time", "x", "≤ 1.3", at_most("unprofiled_raising", 1.3)),
    Row("region", "a region's boundary", "ns", "≤ 0.3 µs", at_most("region", 300)),
]

REPORT_ROWS = [
    Row(
        "report_512_seconds", "`report`, 512 workers x 64 phases", "s", "≤ 0.25 s", at_most("report_512_seconds", 0.25)
    ),
    Row("report_512_peak_mb", "… peak memory", "MB", "≤ 40 MB", at_most("report_512_peak_mb", 40)),
    Row(
        "report_4096_seconds",
        "`report`, 4,096 workers x 64 phases",
        "s",
        "linear: ≤ 8 x 512 workers + 25 %",
        lambda f: ours_of(f, "report_4096_seconds") <= 10 * ours_of(f, "report_512_seconds"),
    ),
    Row(
        "report_4096_peak_mb",
        "… peak memory",
        "MB",
        "bounded: ≤ 1.5 x 512 workers",
        lambda f: ours_of(f, "report_4096_peak_mb") <= 1.5 * ours_of(f, "report_512_peak_mb"),
    ),
    Row("sampled_file_mb", "samples of one worker, 12 h at 1 Hz", "MB", "≤ 1.5 MB", at_most("sampled_file_mb", 1.5)),
    Row(
        "report_sampled_seconds",
        "`report`, 64 workers with samples of 12 h",
        "s",
        "≤ 1 s",
        at_most("report_sampled_seconds", 1.0),
    ),
    Row("report_sampled_peak_mb", "… peak memory", "MB", "≤ 60 MB", at_most("report_sampled_peak_mb", 60)),
]

SCALE = {"": 1.0, "ns": 1.0, "µs": 1e3, "ms": 1e6, "x": 1.0, "KB": 1024.0, "s": 1.0, "MB": 1.0}


def show(value: float, unit: str) -> str:
    scaled = value / SCALE[unit]
    if unit == "x":
        return f"{scaled:.3f}x"
    digits = 0 if scaled >= 100 else 1 if scaled >= 10 else 2
    return f"{scaled:,.{digits}f} {unit}"


def table(figures: dict[str, Any], rows: list[Row]) -> list[str]:
    lines = ["| what | ours | peer | peer / ours (min … max) | must be | met |", "|---|---:|---:|---:|---|---|"]
    for row in rows:
        if row.key not in figures or figures[row.key]["ours"] is None:
            continue
        figure = figures[row.key]
        peer = show(figure["peer"]["median"], row.unit) if figure["peer"] else ""
        ratio = figure["peer/ours"]
        shown = f"{ratio['median']:.1f} ({ratio['min']:.1f} … {ratio['max']:.1f})" if ratio else ""
        met = "" if row.met is None else ("yes" if row.met(figures) else "**no**")
        lines.append(
            f"| {row.what} | {show(figure['ours']['median'], row.unit)} | {peer} | {shown} | {row.must} | {met} |"
        )
    return lines


def verdicts(document: dict[str, Any]) -> list[tuple[str, str, bool]]:
    out = []
    for version, figures in document["calls"].items():
        out += [(version, row.what, row.met(figures)) for row in ROWS if row.met is not None and row.key in figures]
    for version, figures in document["lines"].items():
        out += [
            (version, row.what, row.met(figures)) for row in LINE_ROWS if row.met is not None and row.key in figures
        ]
    figures = document["collector"]
    out += [("", row.what, row.met(figures)) for row in COLLECTOR_ROWS if row.met is not None and row.key in figures]
    figures = document["reports"]
    out += [("", row.what, row.met(figures)) for row in REPORT_ROWS if row.met is not None and row.key in figures]
    return out


# --- writing ---


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def machine() -> dict[str, Any]:
    clock = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    compiler = subprocess.run(
        [os.environ.get("CC", "cc"), "--version"], capture_output=True, text=True, check=True
    ).stdout
    return {
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "virtual": "hypervisor" in Path("/proc/cpuinfo").read_text(encoding="utf-8"),
        "kernel": platform.release(),
        "clocksource": clock.read_text(encoding="utf-8").strip() if clock.exists() else "unknown",
        "libc": " ".join(platform.libc_ver()),
        "compiler": compiler.splitlines()[0],
        "load_average_before": os.getloadavg()[0],
    }


def commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "uncommitted"


def write_table(document: dict[str, Any]) -> None:
    facts = document["machine"]
    kind = "virtual machine" if facts["virtual"] else "machine"
    lines = [
        BEGIN,
        f"Measured {document['date']} at {document['commit']}{' (quick)' if document['quick'] else ''}: {kind}, "
        f"{facts['cpu']}, {facts['cpus']} CPUs, kernel {facts['kernel']}, clock source {facts['clocksource']}, "
        f"{facts['libc']}, {facts['compiler']}; load average {facts['load_average_before']:.1f} before and "
        f"{facts['load_average_after']:.1f} after. Peer: {', '.join(document['peer'])}.",
    ]
    for version, figures in document["calls"].items():
        lines += ["", f"### Python {version}", "", *table(figures, ROWS)]
    for version, figures in document["lines"].items():
        lines += ["", f"### Lines, beside line_profiler 5.1.0 (Python {version})", "", *table(figures, LINE_ROWS)]
    lines += [
        "",
        f"### Reports (Python {document['report_python']})",
        "",
        *table(document["reports"], REPORT_ROWS),
        "",
        f"### The collector (Python {document['report_python']})",
        "",
        *table(document["collector"], COLLECTOR_ROWS),
        END,
    ]
    text = TABLE.read_text(encoding="utf-8")
    start, stop = text.index(BEGIN), text.index(END) + len(END)
    TABLE.write_text(text[:start] + "\n".join(lines) + text[stop:], encoding="utf-8")


def environments(interpreter: Interpreter) -> tuple[Path, Path]:
    ours = envs.environment(interpreter, f"bench-ours-{interpreter}", [envs.BUILD_REQUIREMENTS])
    envs.install_wheel(ours, envs.build_wheel(ours, f"bench-{interpreter}"))
    return ours, envs.environment(interpreter, f"bench-peer-{interpreter}", [PEER_REQUIREMENTS])


def lines_environment(interpreter: Interpreter) -> Path:
    venv = envs.environment(interpreter, f"bench-lines-{interpreter}", [envs.BUILD_REQUIREMENTS, LINES_REQUIREMENTS])
    envs.install_wheel(venv, envs.build_wheel(venv, f"bench-{interpreter}"))
    return venv


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, one Python, no large run; writes no table")
    parser.add_argument("--python", default="", metavar="3.11,3.13", help="only these versions")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument(
        "--only", choices=("calls", "lines", "reports", "collector"), help="this section; writes no table"
    )
    parser.add_argument("--no-reports", dest="reports", action="store_false", help="leave out the runs of many workers")
    args = parser.parse_args()
    sections = [args.only] if args.only else ["calls", "lines", "collector", *(["reports"] if args.reports else [])]
    rounds = args.rounds or (2 if args.quick else 7)
    try:
        envs.require_compiler()
        found = [i for i in envs.find_interpreters() if i.minor in VERSIONS]
        main_one = envs.main_interpreter(found)
        wanted = [f"{i.version[0]}.{i.version[1]}" for i in ([main_one] if args.quick else found)]
        wanted = args.python.split(",") if args.python else wanted
        chosen = [i for i in found if f"{i.version[0]}.{i.version[1]}" in wanted]
        if not chosen:
            raise SetupError(f"none of {', '.join(wanted)} is here")
        document: dict[str, Any] = {
            "date": time.strftime("%Y-%m-%d"),
            "commit": commit(),
            "quick": args.quick,
            "machine": machine(),
            "peer": envs.requirement_lines(PEER_REQUIREMENTS),
            "calls": {},
            "lines": {},
            "reports": {},
            "collector": {},
            "report_python": str(chosen[-1]),
        }
        for interpreter in chosen if "calls" in sections else []:
            say(f"Python {interpreter}")
            ours, peer = environments(interpreter)
            with tempfile.TemporaryDirectory(prefix="lineprofiler-bench-") as folder:
                figures = measure_calls(ours, peer, rounds, Path(folder))
            document["calls"][str(interpreter)] = {k: s.summary() for k, s in figures.items()}
            print("\n".join(table(document["calls"][str(interpreter)], ROWS)), flush=True)
        for interpreter in chosen if "lines" in sections else []:
            say(f"Lines, Python {interpreter}")
            with tempfile.TemporaryDirectory(prefix="lineprofiler-bench-") as folder:
                figures = measure_lines(lines_environment(interpreter), max(3, rounds // 2), Path(folder))
            document["lines"][str(interpreter)] = {k: s.summary() for k, s in figures.items()}
            print("\n".join(table(document["lines"][str(interpreter)], LINE_ROWS)), flush=True)
        if "collector" in sections:
            ours, _ = environments(main_one)
            document["report_python"] = str(main_one)
            with tempfile.TemporaryDirectory(prefix="lineprofiler-bench-") as folder:
                figures = measure_collector(ours, max(1, rounds // 2), Path(folder), args.quick)
            document["collector"] = {k: s.summary() for k, s in figures.items()}
            print("\n".join(table(document["collector"], COLLECTOR_ROWS)), flush=True)
        if "reports" in sections:
            ours, peer = environments(main_one)
            document["report_python"] = str(main_one)
            with tempfile.TemporaryDirectory(prefix="lineprofiler-bench-") as folder:
                figures = measure_reports(ours, peer, max(3, rounds // 2), Path(folder), large=not args.quick)
            document["reports"] = {k: s.summary() for k, s in figures.items()}
            print("\n".join(table(document["reports"], REPORT_ROWS)), flush=True)
        document["machine"]["load_average_after"] = os.getloadavg()[0]
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    missed = [f"{version} {what}".strip() for version, what, met in verdicts(document) if not met]
    if not args.quick and not args.only:
        RESULTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        write_table(document)
    say(
        f"\n{len(verdicts(document)) - len(missed)} of {len(verdicts(document))} numbers met"
        + "".join(f"\n  not met: {m}" for m in missed)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
