"""Another name of ``lineprofiler``, for programs that import it by its distribution's former name."""

import lineprofiler as _lineprofiler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lineprofiler import FunctionStats as FunctionStats
    from lineprofiler import LineProfiler as LineProfiler
    from lineprofiler import LineStats as LineStats
    from lineprofiler import accounting as accounting
    from lineprofiler import profile as profile
    from lineprofiler import start_profiling as start_profiling
    from lineprofiler import stop_profiling as stop_profiling

    __version__: str

__all__ = ["FunctionStats", "LineProfiler", "LineStats", "accounting", "profile", "start_profiling", "stop_profiling"]


def __getattr__(name: str) -> "Any":
    if name.startswith("__") and name != "__version__":
        raise AttributeError(f"module 'with_line_profiler' has no attribute {name!r}")
    return getattr(_lineprofiler, name)
