"""The line engine beside tools that watch the same program: each sees what it sees alone, and so do we."""

from __future__ import annotations

import json
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
from linetest import H, marked
from lptest import ROOT, Done, environment, run_process, run_python

# `engine(run)` runs something, measured or not as the argument says, and compares what the engine saw with the truth.
AROUND = """
import sys
sys.path.insert(0, {support!r})
from linetest import H, marked

def f(n):
    total = 0
    for i in range(n):
        total += g(i)
    try:
        raise KeyError
    except KeyError:
        total += sum(
            made(n),
        )
    return total

def g(x):
    y = x + 1
    return y

def made(n):
    for i in range(n):
        yield i

def plain(n):
    return f(n) + f(n)

def engine(run):
    if sys.argv[1] == "alone":
        return run()
    with marked(f, g, made) as p:
        value = run()
    assert H(p, f) == {{1: 2, 2: 12, 3: 10, 4: 2, 5: 2, 6: 2, 7: 2, 8: 2, 10: 2}}, H(p, f)
    assert H(p, g) == {{1: 10, 2: 10}}, H(p, g)
    assert H(p, made) == {{1: 12, 2: 10}}, H(p, made)
    return value
"""


def both_ways(tmp_path: Path, text: str, tool: tuple[str, ...] = (), stdin: str = "") -> tuple[Done, Done]:
    """What a program prints without and with the engine."""
    script = tmp_path / "program.py"
    support = str(ROOT / "tests" / "support")
    script.write_text(textwrap.dedent(AROUND.format(support=support)) + textwrap.dedent(text), encoding="utf-8")
    done = [
        run_process([sys.executable, *tool, str(script), way], cwd=tmp_path, stdin=stdin).expect()
        for way in ("alone", "beside")
    ]
    return done[0], done[1]


def test_settrace(tmp_path: Path) -> None:
    alone, beside = both_ways(
        tmp_path,
        """
        seen = []
        def tracer(frame, event, arg):
            if frame.f_code.co_filename == __file__:
                seen.append((frame.f_code.co_name, event, frame.f_lineno, repr(arg) if event == "return" else None))
            return tracer
        def run():
            sys.settrace(tracer)
            plain(5)
            assert sys.gettrace() is tracer
            sys.settrace(None)
        engine(run)
        print(*seen, sep="\\n")
        """,
    )
    assert len(alone.stdout.splitlines()) > 50
    assert beside.stdout == alone.stdout


def test_settrace_before_the_start_and_in_threads(tmp_path: Path) -> None:
    alone, beside = both_ways(
        tmp_path,
        """
        import threading
        seen = []
        def tracer(frame, event, arg):
            if frame.f_code.co_name in ("f", "g", "plain"):
                seen.append((frame.f_code.co_name, event, frame.f_lineno))
            return tracer
        def run():
            thread = threading.Thread(target=plain, args=(5,))
            thread.start()
            thread.join()
        threading.settrace(tracer)
        sys.settrace(tracer)
        engine(run)
        assert sys.gettrace() is tracer
        sys.settrace(None)
        print(*seen, sep="\\n")
        """,
    )
    assert len(alone.stdout.splitlines()) > 50
    assert beside.stdout == alone.stdout


def test_a_tracer_that_comes_and_goes_inside_a_measured_function() -> None:
    events: list[str] = []

    def tracer(frame: Any, event: str, arg: object) -> Any:
        events.append(frame.f_code.co_name)
        return tracer

    def on() -> None:
        sys.settrace(tracer)

    def off() -> None:
        sys.settrace(None)

    def f() -> int:
        on()
        a = g()
        off()
        return a + g()

    def g() -> int:
        return 1

    before = sys.gettrace()
    try:
        with marked(f, g) as p:
            f()
    finally:
        sys.settrace(before)
    assert events.count("g") == 3, "call, line and return of the one g() between on() and off()"
    assert H(p, g) == {1: 2}
    assert H(p, f) == {1: 1, 2: 1, 3: 1, 4: 1}


def test_a_tracer_that_raises_is_taken_out_and_the_lines_go_on() -> None:
    def tracer(frame: Any, event: str, arg: object) -> Any:
        if frame.f_code.co_name == "bad":
            raise ZeroDivisionError
        return tracer

    def bad() -> None:
        pass

    def f() -> int:
        try:
            bad()
        except ZeroDivisionError:
            return g()
        return 0

    def g() -> int:
        return 1

    before = sys.gettrace()
    try:
        with marked(f, g) as p:
            sys.settrace(tracer)
            assert f() == 1
            assert sys.gettrace() is None, "as Python does with a tracer that fails"
            assert f() == 0
    finally:
        sys.settrace(before)
    assert H(p, g) == {1: 1}
    assert H(p, f) == {1: 2, 2: 2, 3: 1, 4: 1, 5: 1}


def test_setprofile_and_cprofile(tmp_path: Path) -> None:
    alone, beside = both_ways(
        tmp_path,
        """
        import cProfile, pstats
        seen = []
        def profiler(frame, event, arg):
            seen.append((frame.f_code.co_name, event, getattr(arg, "__name__", None)))
        def run():
            profile = cProfile.Profile()
            profile.enable()
            plain(5)
            profile.disable()
            return profile
        profile = engine(run)
        stats = pstats.Stats(profile).stats
        print(sorted((key[2], value[0], value[1]) for key, value in stats.items()))
        def run():
            sys.setprofile(profiler)
            plain(5)
            sys.setprofile(None)
        engine(run)
        print(*seen, sep="\\n")
        """,
    )
    assert len(alone.stdout.splitlines()) > 20
    assert beside.stdout == alone.stdout


@pytest.mark.parametrize("kind", ["trace", "profile"])
def test_a_tool_that_a_function_puts_in_that_is_not_marked(kind: str) -> None:
    """Before 3.12 such a call leaves what is measured by a short way, which has to see that it comes back otherwise."""
    seen: list[tuple[str, str]] = []

    def tool(frame: Any, event: str, arg: object) -> Any:
        seen.append((frame.f_code.co_name, event))
        return tool

    def put(what: Any) -> None:
        getattr(sys, f"set{kind}")(what)

    def inner(what: Any) -> None:
        put(what)

    def f() -> int:
        total = g()
        inner(tool)
        total += g()
        inner(None)
        total += g()
        return total

    def g() -> int:
        return 1

    before = getattr(sys, f"get{kind}")()
    try:
        f()
        alone = seen[:]
        seen.clear()
        with marked(f, g) as p:
            f()
            f()
    finally:
        put(before)
    assert H(p, f) == {1: 2, 2: 2, 3: 2, 4: 2, 5: 2, 6: 2}
    assert H(p, g) == {1: 6}
    assert ("g", "return") in alone
    assert seen == 2 * alone


def test_pdb(tmp_path: Path) -> None:
    alone, beside = both_ways(
        tmp_path,
        """
        engine(lambda: plain(5))
        print("end")
        """,
        tool=("-m", "pdb"),
        stdin="break g\ncontinue\nwhere\np x\nnext\nreturn\nclear 1\ncontinue\nquit\n",
    )
    where = [
        [line for line in done.stdout.splitlines() if "program.py(" in line or line.startswith(("(Pdb) 0", "->"))]
        for done in (alone, beside)
    ]
    # The engine's own `with` stands around run() in one of them.
    inner = [[line for line in lines if "engine(" not in line and "run()" not in line] for lines in where]
    assert any("g()" in line for line in inner[0]), alone.stdout
    assert inner[1] == inner[0]
    assert "end" in beside.stdout


@pytest.mark.parametrize("core", ["ctrace", "pytrace", "sysmon"])
def test_coverage(tmp_path: Path, core: str) -> None:
    pytest.importorskip("coverage")
    if core == "sysmon" and sys.version_info < (3, 12):
        pytest.skip("sys.monitoring is new in 3.12")
    found = []
    script = tmp_path / "program.py"
    text = AROUND.format(support=str(ROOT / "tests" / "support")) + "engine(lambda: plain(5))\n"
    script.write_text(textwrap.dedent(text), encoding="utf-8")
    (tmp_path / "rc").write_text(f"[run]\ncore = {core}\nbranch = {core != 'sysmon'}\ninclude = {script}\n")
    for way in ("alone", "beside"):
        base = [sys.executable, "-m", "coverage"]
        done = run_process([*base, "run", "--rcfile=rc", str(script), way], cwd=tmp_path).expect()
        assert "rror" not in done.stderr
        assert "trace function changed" not in done.stderr.lower()
        run_process([*base, "json", "--rcfile=rc", "-o", f"{way}.json"], cwd=tmp_path).expect()
        (file,) = json.loads((tmp_path / f"{way}.json").read_text())["files"].values()
        functions = file["functions"]
        found.append({name: functions[name]["executed_lines"] for name in ("f", "g", "made", "plain")})
    assert found[0]["f"], "coverage saw something"
    assert found[1] == found[0]


def test_line_profiler(tmp_path: Path) -> None:
    """Another line profiler on the same functions."""
    pytest.importorskip("line_profiler")
    alone, beside = both_ways(
        tmp_path,
        """
        from line_profiler import LineProfiler
        other = LineProfiler(f, g)
        def run():
            other.enable()
            plain(5)
            other.disable()
        engine(run)
        for key, rows in sorted(other.get_stats().timings.items()):
            print(key[2], [(line, hits) for line, hits, _ in rows])
        """,
    )
    assert alone.stdout.count("\n") == 2
    assert beside.stdout == alone.stdout


def test_what_an_event_costs_is_measured_unseen() -> None:
    """The first start runs a program of its own: nobody's tracer sees it."""
    done = run_python(
        """
        import sys
        from lineprofiler._lineprofiler import LineEngine
        seen = set()
        def tracer(frame, event, arg):
            seen.add(frame.f_code.co_filename)
            return tracer
        def profiler(frame, event, arg):
            seen.add(frame.f_code.co_filename)
        sys.settrace(tracer)
        sys.setprofile(profiler)
        engine = LineEngine(select=lambda code: False)
        engine.start()
        engine.stop()
        sys.settrace(None)
        sys.setprofile(None)
        print([name for name in seen if "lineprofiler" in name])
        """
    ).expect()
    assert done.stdout.strip() == "[]"


def test_deep_recursion_is_as_deep_as_without() -> None:
    """From 3.11 on a call from Python to Python takes no C stack, and must not take any because we are on."""
    depth = 100_000 if sys.version_info >= (3, 11) else 5_000
    done = run_python(
        f"""
        import sys, threading
        from linetest import H, marked
        sys.setrecursionlimit({depth} + 1000)
        def plain(n):
            return plain(n - 1) + 1 if n else leaf()
        def deep(n):
            if n:
                return deep(n - 1) + 1
            return leaf()
        def leaf():
            return 0
        def other():
            for _ in range(200):
                leaf()
        with marked(deep, leaf) as p:
            thread = threading.Thread(target=other)
            thread.start()
            assert plain({depth}) == {depth}
            assert deep({depth}) == {depth}
            thread.join()
            assert deep(10) == 10
        assert H(p, deep) == {{1: {depth} + 12, 2: {depth} + 10, 3: 2}}, H(p, deep)
        assert H(p, leaf)[1] == 203, H(p, leaf)
        """,
        env=environment(PYTHONPATH=str(ROOT / "tests" / "support")),
    )
    done.expect()


@pytest.mark.parametrize("where", ["beside it", "by it", "in a child"])
def test_a_thread_that_begins_while_another_is_deep(where: str) -> None:
    """Up to 3.11 the hook is aside then, for all threads: one that begins has to be found by others' events."""
    done = run_python(
        f"""
        import os, sys, threading
        from linetest import H, marked
        sys.setrecursionlimit(10_000)
        threading.stack_size(512 << 10)
        where = {where!r}
        is_deep, may_return = threading.Event(), threading.Event()
        def leaf():
            return 0
        def runs():
            for _ in range(20):
                leaf()
        def begin():
            thread = threading.Thread(target=runs)
            thread.start()
            thread.join()
        def deep(n):
            if n:
                return deep(n - 1)
            if where == "by it":
                return begin()
            is_deep.set()
            may_return.wait()
        with marked(leaf) as p:
            thread = threading.Thread(target=deep, args=({3000 if sys.version_info >= (3, 11) else 700},))
            thread.start()
            if where != "by it":
                is_deep.wait()
                child = os.fork() if where == "in a child" else 0
                if not child:
                    begin()
                if where == "in a child" and not child:
                    runs()
                    assert H(p, leaf) == {{1: 40}}, H(p, leaf)
                    os._exit(0)
                if child:
                    assert os.waitpid(child, 0)[1] == 0
                may_return.set()
            thread.join()
            if where == "in a child":
                runs()
        assert H(p, leaf) == {{1: 20}}, H(p, leaf)
        """,
        env=environment(PYTHONPATH=str(ROOT / "tests" / "support")),
    )
    done.expect()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="sys.monitoring needs no hook")
def test_a_start_that_fails_leaves_the_next_one_whole() -> None:
    """Another tool's hook lies over ours, and there is no recursion left to ask whether it calls ours."""
    done = run_python(
        """
        import ctypes, sys
        from lineprofiler._lineprofiler import LineEngine
        from lineprograms import hits

        def f():
            return 1

        def at(depth):
            if depth:
                at(depth - 1)
            else:
                engine.start()

        engine = LineEngine()
        engine.mark(f.__code__)
        engine.start()
        api = ctypes.pythonapi
        api.PyInterpreterState_Get.restype = ctypes.c_void_p
        over = ctypes.cast(api._PyEval_EvalFrameDefault, ctypes.c_void_p)
        api._PyInterpreterState_SetEvalFrameFunc(ctypes.c_void_p(api.PyInterpreterState_Get()), over)
        engine.stop()
        for depth in range(sys.getrecursionlimit(), 0, -1):
            try:
                at(depth)
                break
            except RecursionError:
                pass
        assert engine.trouble == ["no memory to start"], engine.trouble
        assert not engine.active
        engine.stop()
        for _ in range(2):
            engine.start()
            f()
            engine.stop()
        assert hits(engine, f) == {f.__code__.co_firstlineno + 1: 2}, hits(engine, f)
        """,
        env=environment(PYTHONPATH=str(ROOT / "tests" / "support")),
    )
    done.expect()


def test_threads_with_tracers_of_their_own_while_it_starts_and_stops() -> None:
    def f() -> int:
        return 1

    def tracer(frame: Any, event: str, arg: object) -> Any:
        return tracer

    kept: list[bool] = []
    go, started = threading.Event(), threading.Event()

    def traced() -> None:
        sys.settrace(tracer)
        started.set()
        go.wait()
        f()
        kept.append(sys.gettrace() is tracer)
        sys.settrace(None)  # 3.12 goes on counting a thread that ends with a tracer

    thread = threading.Thread(target=traced)
    thread.start()
    started.wait()
    for _ in range(3):
        with marked(f):
            pass
    with marked(f) as p:
        go.set()
        thread.join()
    assert kept == [True]
    assert H(p, f) == {1: 1}


def test_threads_that_c_code_begins_while_it_starts_and_stops() -> None:
    """Their states come into the interpreter's list without the GIL, and 3.11 finishes them there."""
    done = run_python(
        """
        import ctypes, os, threading
        from linetest import H, marked
        libc = ctypes.CDLL(None)
        run = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda unused: began.append(1))
        began, done, thread = [], threading.Event(), ctypes.c_ulong()
        def begin():
            while not done.is_set():
                assert libc.pthread_create(ctypes.byref(thread), None, run, None) == 0
                libc.pthread_join(thread, None)
        def f():
            pass
        beginner = threading.Thread(target=begin)
        beginner.start()
        times = 0
        while len(began) < 3000:
            with marked(f) as p:
                f()
            times += 1
            assert H(p, f) == {1: 1}, H(p, f)
        done.set()
        beginner.join()
        assert times > 100
        """,
        env=environment(PYTHONPATH=str(ROOT / "tests" / "support")),
    )
    done.expect()
