"""lineprofiler: where a multi-process Python program spends its time.

``lineprofiler.accounting`` records phases that you name. Importing this package loads nothing: what it offers is
looked up when it is used, so that a program with the accounting layer never pays for anything else.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lineprofiler import accounting as accounting

    __version__: str

# The line profiler's names are not here while they would fail: a star import must work.
__all__ = ["accounting"]

_LATER = ("FunctionStats", "LineProfiler", "LineStats", "start_profiling", "stop_profiling")


def __getattr__(name: str) -> "Any":
    if name == "__version__":
        from lineprofiler._lineprofiler import __version__

        return __version__
    if name == "accounting":
        import lineprofiler.accounting

        return lineprofiler.accounting
    if name in _LATER:
        # ImportError, not AttributeError: `from lineprofiler import LineProfiler` would hide the text of that one.
        raise ImportError(f"lineprofiler.{name}: the line profiler is not in this version; lineprofiler.accounting is")
    raise AttributeError(f"module 'lineprofiler' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), "__version__", *__all__])
