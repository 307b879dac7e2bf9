"""lineprofiler: where a multi-process Python program spends its time.

``lineprofiler.accounting`` records phases that you name. Importing this package loads nothing: what it offers is
looked up when it is used, so that a program with the accounting layer never pays for anything else.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lineprofiler import accounting as accounting
    from lineprofiler.lines.compat import load_stats as load_stats
    from lineprofiler.lines.compat import show_func as show_func
    from lineprofiler.lines.compat import show_text as show_text
    from lineprofiler.lines.explicit import profile as profile
    from lineprofiler.lines.notebook import load_ipython_extension as load_ipython_extension
    from lineprofiler.lines.notebook import unload_ipython_extension as unload_ipython_extension
    from lineprofiler.lines.profiler import LineProfiler as LineProfiler
    from lineprofiler.lines.profiler import start_profiling as start_profiling
    from lineprofiler.lines.profiler import stop_profiling as stop_profiling
    from lineprofiler.lines.stats import FunctionStats as FunctionStats
    from lineprofiler.lines.stats import LineStats as LineStats

    __version__: str

__all__ = ["FunctionStats", "LineProfiler", "LineStats", "accounting", "profile", "start_profiling", "stop_profiling"]

_MODULES = {
    "FunctionStats": "stats",
    "LineProfiler": "profiler",
    "LineStats": "stats",
    "load_ipython_extension": "notebook",
    "load_stats": "compat",
    "profile": "explicit",
    "show_func": "compat",
    "show_text": "compat",
    "start_profiling": "profiler",
    "stop_profiling": "profiler",
    "unload_ipython_extension": "notebook",
}


def __getattr__(name: str) -> "Any":
    if name == "__version__":
        from lineprofiler._lineprofiler import __version__

        return __version__
    if name == "accounting":
        import lineprofiler.accounting

        return lineprofiler.accounting
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"lineprofiler.lines.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'lineprofiler' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), "__version__", *__all__, *_MODULES})
