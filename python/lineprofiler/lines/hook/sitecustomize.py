"""Starts the line profiler in a process of ``lineprofiler run``, before its program; then the site's own sitecustomize.

The folder of this file is in front of PYTHONPATH in such a run. Nothing here may fail or print: another interpreter may
start under the same environment.
"""

import os
import sys


def _chained() -> None:
    """The sitecustomize that would have been imported without this one."""
    ours = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p) != ours]
    this = sys.modules.pop("sitecustomize", None)
    sys.path_importer_cache.pop(ours, None)
    try:
        __import__("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if this is not None:
            sys.modules.setdefault("sitecustomize", this)


def _started() -> None:
    settings = os.environ.get("LINEPROFILER_LINES")
    if not settings:
        return
    try:
        from lineprofiler.lines import child
    except ImportError:  # another interpreter, which does not have the package
        return
    child.begin(settings)


try:
    _chained()
finally:
    _started()
