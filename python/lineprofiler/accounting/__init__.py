"""Accounting of phases that you name, in every process of a program. See docs/accounting.md.

    from lineprofiler import accounting

    accounting.start(run_dir="profile", role="actor")
    with accounting.phase("iteration"):
        accounting.count("moves", 64)
    accounting.stop()

``lineprofiler report profile`` shows it, also while the program runs. Importing this package loads the recorder and
nothing of the standard library that a bare interpreter has not loaded; results, reading and comparing runs come at
their first use.
"""

import sys

from lineprofiler import _lineprofiler
from lineprofiler._lineprofiler import count, current, phase
from lineprofiler.accounting._profiler import (
    Profiler,
    install_profiler,
    installed_profiler,
    signal_ready,
    start,
    stop,
    trace_begin,
    trace_end,
    trace_mark,
    uninstall_profiler,
    wait_on,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lineprofiler.accounting.analysis import analyse
    from lineprofiler.accounting.results import (
        AmountHistogram,
        Backend,
        DurationHistogram,
        IoSnapshot,
        MergedRun,
        OpenPhase,
        PhaseDelta,
        PhaseStats,
        PhaseTree,
        Sample,
        SampleAnalysis,
        WorkerSnapshot,
        WorkerTrace,
        merge_trees,
    )
    from lineprofiler.accounting.run import (
        compare,
        comparison_as_dict,
        merge_run,
        render,
        render_comparison,
        report_as_dict,
        write_report,
    )
    from lineprofiler.accounting.sampler import ResourceSampler

__all__ = [
    "AmountHistogram",
    "Backend",
    "DurationHistogram",
    "IoSnapshot",
    "MergedRun",
    "OpenPhase",
    "PhaseDelta",
    "PhaseStats",
    "PhaseTree",
    "Profiler",
    "ResourceSampler",
    "Sample",
    "SampleAnalysis",
    "WorkerSnapshot",
    "WorkerTrace",
    "analyse",
    "compare",
    "comparison_as_dict",
    "count",
    "current",
    "install_profiler",
    "installed_profiler",
    "merge_run",
    "merge_trees",
    "phase",
    "render",
    "render_comparison",
    "report_as_dict",
    "signal_ready",
    "start",
    "stop",
    "trace_begin",
    "trace_end",
    "trace_mark",
    "uninstall_profiler",
    "wait_on",
    "write_report",
]

# What comes at its first use, by module. No module of this package may have the name of something in __all__:
# importing it would replace that here.
_RUN = ("compare", "comparison_as_dict", "merge_run", "render", "render_comparison", "report_as_dict", "write_report")
_RESULTS = (
    "AmountHistogram",
    "Backend",
    "DurationHistogram",
    "IoSnapshot",
    "MergedRun",
    "OpenPhase",
    "PhaseDelta",
    "PhaseStats",
    "PhaseTree",
    "Sample",
    "SampleAnalysis",
    "WorkerSnapshot",
    "WorkerTrace",
    "merge_trees",
)
_MODULES = ("analysis", "cli", "results", "run", "sampler")
_LATER = {
    "Span": "the timeline",
    "TraceBuffer": "the timeline",
    "lifecycle_segments": "the timeline",
    "overlap_ns": "the timeline",
    "write_trace": "the timeline",
}


def __getattr__(name: str) -> "Any":
    value: Any
    if name in _RESULTS:
        from lineprofiler.accounting import results

        value = getattr(results, name)
    elif name in _RUN:
        from lineprofiler.accounting import run

        value = getattr(run, name)
    elif name == "analyse":
        from lineprofiler.accounting.analysis import analyse as value
    elif name == "ResourceSampler":
        from lineprofiler.accounting.sampler import ResourceSampler as value
    elif name in _MODULES:
        __import__(f"{__name__}.{name}")
        return globals()[name]  # the import has put it here
    elif name in _LATER:
        raise AttributeError(f"{__name__}.{name} is not in this version: it comes with {_LATER[name]}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *__all__, *_MODULES])


# A module with a __getattr__ has slow attributes: this gives `accounting.phase` back its speed.
_lineprofiler._adopt(sys.modules[__name__])
