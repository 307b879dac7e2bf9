"""Reading a run directory, and the faces of what was read. Everything is computed in C; here it gets its types."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from lineprofiler import _lineprofiler
from lineprofiler.accounting import _plain
from lineprofiler.accounting.results import MergedRun, PendingSamples, PhaseDelta

__all__ = [
    "compare",
    "comparison_as_dict",
    "merge_run",
    "render",
    "render_comparison",
    "report_as_dict",
    "write_report",
]

_Path = str | os.PathLike[str]


def merge_run(run_dir: _Path, with_samples: bool = True, with_trace: bool = False) -> MergedRun:
    """The newest attempt in a run directory: snapshots, and what this host's living and dead processes hold in memory.

    Dead processes of this host that left no final snapshot get one first. A missing directory and one without workers
    give an empty run with `empty_reason`; files that cannot be read are in `unreadable`. `with_samples`: the workers'
    `samples` are there; they are read when they are first looked at. `with_trace` has no effect yet: this version
    records no timeline. Raises OSError if the directory cannot be listed.
    """
    path = os.fspath(run_dir)
    run = _plain.run_from_plain(_lineprofiler.load_run(path, True), path)
    if with_samples and (run.workers or run.superseded):
        from lineprofiler.accounting._samples import RunSamples

        files = RunSamples(path)
        for worker in (*run.workers, *run.superseded):
            uuid = worker.details.get("uuid", "")
            if files.has(uuid):
                read = partial(files.read, uuid, worker.run_id, worker.host)
                worker.samples = PendingSamples(read)  # type: ignore[assignment]
    return run


def render(run: MergedRun) -> str:
    """The text report, as ``lineprofiler report`` prints it at 80 columns without colour."""
    return _lineprofiler.render_text(_plain.run_to_plain(run), 80, False, True, False, True)


def report_as_dict(run: MergedRun) -> dict[str, Any]:
    """The document of ``lineprofiler report --format json``; None where something could not be measured."""
    import json

    document: dict[str, Any] = json.loads(_lineprofiler.report_json(_plain.run_to_plain(run), True))
    return document


def write_report(run_dir: _Path, path: _Path, format: str = "text") -> None:
    """Writes the report of a run directory to a file; makes its folders.

    `format` is ``'text'`` or ``'json'``. Raises ValueError for others, NotImplementedError for ``'html'``, which comes
    with a later version, and OSError.
    """
    if format == "html":
        raise NotImplementedError("write_report: format 'html' comes with a later version; use 'text' or 'json'")
    if format not in ("text", "json"):
        raise ValueError(f"format is one of 'text', 'json', 'html', got {format!r}")
    report = _lineprofiler.report_file(os.fspath(run_dir), format == "json")
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(report, encoding="utf-8", errors="backslashreplace")


def compare(run_a: MergedRun, run_b: MergedRun) -> list[PhaseDelta]:
    """Phase by phase, over all roles: those finished in one run only first, then the largest regression first."""
    return [PhaseDelta(*row) for row in _lineprofiler.compare_trees(_compared(run_a), _compared(run_b))]


def _compared(run: MergedRun) -> tuple[list[_plain.Row], list[tuple[str, ...]]]:
    return _plain.tree_to_rows(run.tree), [phase.path for worker in run.workers for phase in worker.open_phases]


def render_comparison(run_a: MergedRun, run_b: MergedRun, label_a: str, label_b: str) -> str:
    """The text of ``lineprofiler compare`` at 80 columns without colour."""
    return _lineprofiler.render_comparison(_compared(run_a), _compared(run_b), label_a, label_b, 80, False, True)


def comparison_as_dict(run_a: MergedRun, run_b: MergedRun) -> dict[str, Any]:
    """The document of ``lineprofiler compare --format json``."""
    import json

    a, b = _compared(run_a), _compared(run_b)
    document: dict[str, Any] = json.loads(_lineprofiler.comparison_json(a, b, run_a.directory, run_b.directory))
    return document
