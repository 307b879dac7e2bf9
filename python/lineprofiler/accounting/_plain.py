"""Between the result types and the plain data that the extension gives and takes (src/python/convert.h)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lineprofiler.accounting.results import (
    AmountHistogram,
    DurationHistogram,
    MergedRun,
    OpenPhase,
    PhaseStats,
    PhaseTree,
    WorkerSnapshot,
    top_wall_ns,
)

Row = tuple[Any, ...]

_SAMPLED, _ASYNC, _IO, _OVERLAP, _IO_OVERLAP = 1, 2, 4, 8, 16
_I64_MIN, _I64_MAX = -(1 << 63), (1 << 63) - 1


def stats_from_row(row: Row) -> PhaseStats:
    """A phase's numbers."""
    (_path, flags, entries, errors, abandoned, async_entries, io_missing, wall, child, cpu_wall, cpu) = row[:11]
    split_wait, starved, least, most, stride, cells, counters = row[11:]
    stats = PhaseStats(
        calls=entries,
        wall_ns=wall,
        cpu_ns=cpu,
        child_wall_ns=child,
        hist=DurationHistogram._of(cells),
        sample_stride=stride,
        async_entries=async_entries,
        cpu_unknown_ns=max(wall - cpu_wall, 0),
        blocked_ns=max(split_wait - starved, 0),
        starved_ns=starved,
        min_ns=least if entries else 0,
        max_ns=most if entries else 0,
        errors=errors,
        abandoned=abandoned,
        io_missing=io_missing,
        io=bool(flags & _IO),
        io_overlap=bool(flags & _IO_OVERLAP),
        overlap=bool(flags & _OVERLAP),
    )
    for name, (calls, total, smallest, largest, amounts) in counters.items():
        stats.counters[name] = total
        stats.counter_calls[name] = calls
        if calls:
            stats.counter_min[name] = smallest
            stats.counter_max[name] = largest
        stats.counter_hist[name] = AmountHistogram._of(amounts)
    return stats


def stats_to_row(path: tuple[str, ...], stats: PhaseStats) -> Row:
    """The reverse. Numbers below 0 become 0."""
    flags = (
        (_SAMPLED if stats.sample_stride else 0)
        | (_ASYNC if stats.async_entries else 0)
        | (_IO if stats.io else 0)
        | (_OVERLAP if stats.overlap else 0)
        | (_IO_OVERLAP if stats.io_overlap else 0)
    )
    counters = {}
    for name, total in stats.counters.items():
        smallest = stats.counter_min.get(name)
        largest = stats.counter_max.get(name)
        calls = stats.counter_calls.get(name, 0 if smallest is None else 1)
        hist = stats.counter_hist.get(name)
        counters[name] = (
            calls,
            total,
            _clamp(0 if smallest is None else smallest),
            _clamp(0 if largest is None else largest),
            {} if hist is None else hist._cells,
        )
    numbers = (
        stats.calls,
        stats.errors,
        stats.abandoned,
        stats.async_entries,
        stats.io_missing,
        stats.wall_ns,
        stats.child_wall_ns,
        stats.cpu_wall_ns,
        stats.cpu_ns,
        stats.blocked_ns + stats.starved_ns,
        stats.starved_ns,
        stats.min_ns,
        stats.max_ns,
        stats.sample_stride,
    )
    return (tuple(path), flags, *(max(int(number), 0) for number in numbers), stats.hist._cells, counters)


def _clamp(value: int) -> int:
    return min(max(int(value), _I64_MIN), _I64_MAX)


def tree_from_rows(rows: list[Row]) -> PhaseTree:
    """A tree; the root has the time of the top phases as that of its children."""
    tree: PhaseTree = {row[0]: stats_from_row(row) for row in rows}
    if () in tree:
        tree[()].child_wall_ns = top_wall_ns(tree)
    return tree


def tree_to_rows(tree: PhaseTree) -> list[Row]:
    """The reverse, in the tree's own order, so that equal phases of a report stay as they were first visited."""
    return [stats_to_row(path, stats) for path, stats in tree.items()]


def worker_from_plain(data: dict[str, Any]) -> WorkerSnapshot:
    """A worker. `data` is taken over."""
    placement: dict[str, Any] = {"host": data.pop("host")}
    for key in ("rank", "local_rank", "world_size"):
        value = data.pop(key)
        if value is not None:
            placement[key] = value
    job_id = data.pop("job_id")
    if job_id:
        placement["job_id"] = job_id
    return WorkerSnapshot(
        pid=data.pop("pid"),
        role=data.pop("role"),
        path=Path(data.pop("path")),
        started_at=_seconds(data["started_ns"]),
        written_at=_seconds(data["written_ns"]),
        tree=tree_from_rows(data.pop("tree")),
        samples=[],
        run_id=data.pop("run_id"),
        placement=placement,
        hardware=data.pop("hardware"),
        write_failures=data["health"]["write_failures"],
        unclean=data.pop("unclean"),
        living=data.pop("living"),
        open_phases=[
            OpenPhase(path, _seconds(since_ns), open_ns, thread, tid)
            for path, since_ns, open_ns, thread, tid in data.pop("open")
        ],
        exit_code=data.pop("exit_code"),
        details=data,
    )


def worker_to_plain(worker: WorkerSnapshot) -> dict[str, Any]:
    """The reverse: the fields, completed from `details`."""
    data = dict(worker.details)
    data["health"] = {**data.get("health", {}), "write_failures": max(int(worker.write_failures), 0)}
    data.update(
        pid=worker.pid,
        role=worker.role,
        path=str(worker.path),
        started_ns=_ns(worker.started_at, data.get("started_ns")),
        written_ns=_ns(worker.written_at, data.get("written_ns")),
        run_id=worker.run_id,
        host=worker.host,
        job_id=str(worker.placement.get("job_id", "")),
        hardware={key: value for key, value in worker.hardware.items() if value is not None},
        unclean=worker.unclean,
        living=worker.living,
        exit_code=worker.exit_code,
        open=[
            (tuple(each.path), _ns(each.since, None), each.open_ns, each.thread, each.thread_id)
            for each in worker.open_phases
        ],
        tree=tree_to_rows(worker.tree),
    )
    for key in ("rank", "local_rank", "world_size"):
        data[key] = worker.placement.get(key)
    return data


def _seconds(ns: int) -> float:
    """Rounded once, as is what the JSON document has; by a float it would be rounded twice."""
    return ns / 1_000_000_000


def _ns(seconds: float, exact: int | None) -> int:
    """Unix ns of Unix s; the exact value where the float still stands for it."""
    if exact is not None and _seconds(exact) == seconds:
        return exact
    whole = int(seconds)  # apart: the product would be rounded to 256 ns
    return max(whole * 1_000_000_000 + round((seconds - whole) * 1e9), 0)


def run_from_plain(data: dict[str, Any], directory: str) -> MergedRun:
    """A run. `data` is taken over."""
    workers = [worker_from_plain(worker) for worker in data["workers"]]
    return MergedRun(
        tree=tree_from_rows(data["tree"]),
        workers=workers,
        unreadable=[Path(path) for path, _reason in data["unreadable"]],
        metadata=_metadata(data) if workers else {},
        superseded=[worker_from_plain(worker) for worker in data["superseded"]],
        empty_reason=data["empty_reason"],
        problems=[reason for _path, reason in data["unreadable"]],
        directory=directory,
    )


def _metadata(data: dict[str, Any]) -> dict[str, Any]:
    started_at = _seconds(data["started_ns"])
    source: dict[str, Any] = {}
    if data["source_extra"]:
        import json

        source = {key: json.loads(value) for key, value in data["source_extra"]}
    elif data["source_commit"]:
        source = {
            "commit": data["source_commit"],
            "dirty_files": data["source_dirty"],
            "untracked_files": data["source_untracked"],
            "diff_sha": data["source_diff"],
        }
    return {
        "version": 1,
        "run_id": data["run_id"],
        "started_at": started_at,
        # Each process has clocks of its own here; the key stays for readers of the other layout.
        "epoch_anchor": {"time": started_at, "perf_counter_ns": None},
        "argv": data["argv"],
        "host": data["host"],
        "python": data["python"],
        "source": source,
        "platform": data["platform"],
        "runtime_s": _seconds(data["runtime_ns"]),
    }


def run_to_plain(run: MergedRun) -> dict[str, Any]:
    """What the renderers take. They derive everything from the workers, so a changed `run.tree` has no effect."""
    problems = [*run.problems, *([""] * len(run.unreadable))]
    return {
        "workers": [worker_to_plain(worker) for worker in run.workers],
        "superseded": [worker_to_plain(worker) for worker in run.superseded],
        "unreadable": [(str(path), problem) for path, problem in zip(run.unreadable, problems, strict=False)],
        "empty_reason": run.empty_reason,
        "directory": run.directory,
    }
