"""What `import lineprofiler.accounting` loads and costs: nothing but our own modules, and never the line profiler."""

from __future__ import annotations

import json

from lptest import run_python


def loaded_by(module: str) -> list[str]:
    done = run_python(
        "import sys\nbefore = set(sys.modules)\n"
        f"import {module}\n"
        "new = sorted(set(sys.modules) - before)\n"
        "import json\nprint(json.dumps(new))\n",
        options=("-I",),
    ).expect()
    names = json.loads(done.stdout)
    assert isinstance(names, list)
    return names


def test_accounting_loads_no_other_module() -> None:
    names = loaded_by("lineprofiler.accounting")
    assert "lineprofiler.accounting" in names
    assert [n for n in names if n.split(".")[0] != "lineprofiler"] == []


def test_accounting_never_loads_the_line_profiler() -> None:
    names = loaded_by("lineprofiler.accounting")
    assert [n for n in names if n.startswith(("lineprofiler.lines", "lineprofiler.config"))] == []


def test_package_alone_loads_neither_tool() -> None:
    names = loaded_by("lineprofiler")
    assert [n for n in names if n.split(".")[0] != "lineprofiler"] == []
    assert [n for n in names if n.startswith(("lineprofiler.accounting", "lineprofiler.lines"))] == []


def test_alias_module_is_the_same_package() -> None:
    done = run_python(
        """
        import with_line_profiler, lineprofiler
        from with_line_profiler import accounting
        import lineprofiler.accounting
        assert accounting is lineprofiler.accounting
        assert with_line_profiler.__version__ == lineprofiler.__version__
        print("same")
        """
    ).expect()
    assert done.stdout.strip() == "same"


def test_import_starts_nothing() -> None:
    """No thread, no child, no signal handler, no environment variable, no open file."""
    done = run_python(
        """
        import os, signal, threading
        def state():
            return {
                "threads": len(os.listdir("/proc/self/task")),
                "python threads": threading.active_count(),
                "files": len(os.listdir("/proc/self/fd")),
                "signals": {n: str(signal.getsignal(n)) for n in signal.valid_signals()},
                "environment": dict(os.environ),
            }
        before = state()
        import lineprofiler.accounting
        after = state()
        assert after == before, {k: (before[k], after[k]) for k in before if before[k] != after[k]}
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            print("no child")
        """
    ).expect()
    assert done.stdout.strip() == "no child"


def test_the_module_is_pickled_by_name() -> None:
    """cloudpickle sends what a function of a script or a notebook uses: the module must not be taken to pieces."""
    import copy
    import pickle

    from lineprofiler import accounting

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(accounting, protocol)) is accounting
    assert copy.deepcopy(accounting) is accounting
