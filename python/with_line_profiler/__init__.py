"""Another name of ``lineprofiler``, for programs that import it by its distribution's former name."""

import lineprofiler as _lineprofiler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lineprofiler import accounting as accounting

    __version__: str

__all__ = ["accounting"]


def __getattr__(name: str) -> "Any":
    if name.startswith("__") and name != "__version__":
        raise AttributeError(f"module 'with_line_profiler' has no attribute {name!r}")
    return getattr(_lineprofiler, name)
