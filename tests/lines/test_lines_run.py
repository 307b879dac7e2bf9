"""``lineprofiler run``: the program sees what it would see alone, all its processes are profiled; every option."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from linetest import project
from lptest import LIMIT_S, Done, environment, lineprofiler, run_process

from lineprofiler import load_stats

COMMAND = str(Path(sys.executable).with_name("lineprofiler"))

LOOK = """
import json, os, sys
def work(n):
    total = 0
    for i in range(n):
        total += i
    return total
work(10)
main = sys.modules["__main__"]
print(json.dumps({
    "argv": sys.argv, "file": main.__dict__.get("__file__"), "name": __name__, "path": sys.path, "cwd": os.getcwd(),
    "spec": getattr(__spec__, "name", None), "package": __package__, "same": getattr(main, "work", None) is work,
    "loader": type(__loader__).__name__, "doc": __doc__, "keys": sorted(k for k in globals() if k.startswith("__")),
    "sitecustomize": "sitecustomize" in sys.modules and sys.modules["sitecustomize"].__file__.count("hook"),
    "stdin": sys.stdin.read(),
}))
"""


def both(folder: Path, *words: str, stdin: str = "") -> tuple[Done, Done]:
    """The same program by Python itself, and by our command."""
    env = environment(PYTHONDONTWRITEBYTECODE="1")
    plain = run_process([sys.executable, *words], cwd=folder, stdin=stdin, env=env)
    ours = run_process([COMMAND, "run", "-q", *words], cwd=folder, stdin=stdin, env=env)
    return plain, ours


def figures(folder: Path, *words: str, env: dict[str, str] | None = None) -> dict[str, dict[int, int]]:
    """{function: {line: hits}} of a run."""
    lineprofiler("run", "-q", "-o", "out.lprof", *words, cwd=folder, env=env)
    document = json.loads(lineprofiler("lines", "out.lprof", "--format", "json", cwd=folder).expect().stdout)
    return {f["function"]: {n["line"]: n["hits"] for n in f["lines"]} for f in document["functions"]}


@pytest.mark.parametrize(
    "words",
    [
        ("prog.py", "a", "-o", "b c"),
        ("./prog.py",),
        ("-m", "prog", "x"),
        ("-m", "pkg.mod", "-l"),
        ("-m", "pkg"),
        ("pkg",),
    ],
    ids=" ".join,
)
def test_the_program_sees_what_it_would_see_alone(tmp_path: Path, words: tuple[str, ...]) -> None:
    project(tmp_path, prog=LOOK, pkg__mod=LOOK, pkg____main__="")
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "__main__.py").write_text(LOOK)
    plain, ours = both(tmp_path, *words, stdin="some text")
    seen, alone = json.loads(ours.expect().stdout), json.loads(plain.expect().stdout)
    # Where the site has no sitecustomize the module of that name is ours; it is none of the program's own.
    seen.pop("sitecustomize"), alone.pop("sitecustomize")
    assert seen == alone
    assert ours.stderr == plain.stderr == ""


@pytest.mark.parametrize(
    "text",
    [
        "import sys\nsys.exit(3)",
        "import sys\nsys.exit('a text')",
        "def f():\n    raise KeyError('boom')\nf()",
        "raise SystemExit",
        "def f(:\n",
        "import os\nos._exit(7)",
        "import no_such_module",
        "import sys\ndef f():\n    sys.modules['new'] = sys\n    raise KeyError('after a module came')\nf()",
    ],
)
def test_ends_are_those_of_python(tmp_path: Path, text: str) -> None:
    project(tmp_path, prog=text)
    plain, ours = both(tmp_path, "prog.py")
    assert ours == plain


@pytest.mark.parametrize(
    "words", [("none.py",), ("-m", "no_such_module"), ("-m", "os.no_such"), (".git",)], ids=" ".join
)
def test_programs_that_are_not_there(tmp_path: Path, words: tuple[str, ...]) -> None:
    project(tmp_path)
    plain, ours = both(tmp_path, *words)
    assert ours == plain
    assert lineprofiler("run", *words, cwd=tmp_path) == plain


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), "no program is given"),
        (("-l",), "no program is given"),
        (("-m",), "no program is given"),
        (("--tops", "3", "x.py"), "unrecognized arguments: --tops"),
        (("--top", "many", "x.py"), "--top: invalid int value: 'many'"),
        (("--top", "-1", "x.py"), "--top must be 0 lines or more"),
        (("-u", "0", "x.py"), "--unit must be more than 0 seconds"),
        (("-u", "inf", "x.py"), "--unit must be more than 0 seconds, and finite"),
        (("-s", "none.py", "x.py"), "none.py: no such file"),
        (("-o", ".", "x.py"), ".: is a folder"),
        (("--html", ".", "x.py"), ".: is a folder"),
        (("-i", "1", "x.py"), "--output-interval needs a file to write: -o FILE"),
        (("-l", "-i", "0", "x.py"), "--output-interval must be more than 0 seconds"),
        (("-l", "-i", "inf", "x.py"), "--output-interval must be more than 0 seconds, and finite"),
        (("--config", "none.toml", "x.py"), "none.toml: No such file or directory"),
        (("-o", "no/such/x.lprof", "x.py"), "no/such/x.lprof: no such folder"),
    ],
)
def test_wrong_usage(tmp_path: Path, words: tuple[str, ...], error: str) -> None:
    done = lineprofiler("run", *words, cwd=tmp_path).expect(2)
    assert done.stdout == ""
    assert done.stderr.splitlines()[0].startswith("usage: lineprofiler run ")
    assert re.search(f"^lineprofiler run: .*{re.escape(error)}", done.stderr, re.M)


def test_killed_by_a_signal(tmp_path: Path) -> None:
    project(tmp_path, prog="import os, signal\nos.kill(os.getpid(), signal.SIGTERM)")
    assert lineprofiler("run", "prog.py", cwd=tmp_path).returncode == -signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_are_handed_on(tmp_path: Path, number: signal.Signals) -> None:
    project(
        tmp_path,
        prog=f"""
        import os, signal, sys, time
        def stop(*args):
            os.write(1, b"stopped\\n")  # not print: the signal may come while it prints
            sys.exit(4)
        signal.signal({int(number)}, stop)
        os.write(1, b"ready\\n")
        while True:
            time.sleep(0.05)
        """,
    )
    with subprocess.Popen(
        [COMMAND, "run", "prog.py"], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 4
    assert out.startswith("stopped\n")
    assert "sys.exit(4)" in out


def test_who_ignores_that_children_end_is_told_all_the_same(tmp_path: Path) -> None:
    project(
        tmp_path,
        prog="""
        import signal, sys
        print(signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN, signal.pthread_sigmask(signal.SIG_BLOCK, []))
        sys.exit(7)
        """,
    )
    ignoring = (
        "import os, signal, sys\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nos.execv(sys.argv[1], sys.argv[1:])"
    )
    done = run_process([sys.executable, "-c", ignoring, COMMAND, "run", "-q", "prog.py"], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (7, "True set()\n")


def test_the_whole_project_by_default(tmp_path: Path) -> None:
    project(
        tmp_path,
        prog="import helper, json\ndef f():\n    return helper.g()\nfor _ in range(3):\n    f()\n",
        helper="def g():\n    return 1\n",
    )
    found = figures(tmp_path, "prog.py")
    assert set(found) == {"<module>", "f", "g"} | {name for name in found if name.startswith("<module>")}
    assert (found["f"], found["g"]) == ({3: 3}, {2: 3})


@pytest.mark.parametrize("words", [("-m", "unittest"), ("-m", "pytest", "-q")], ids=" ".join)
def test_an_installed_program_runs_the_project_of_the_working_directory(tmp_path: Path, words: tuple[str, ...]) -> None:
    project(
        tmp_path,
        test_case="import unittest, lib\nclass T(unittest.TestCase):\n    def test_it(self):\n        lib.f(3)\n",
        lib="def f(n):\n    for _ in range(n):\n        pass\n",
    )
    found = figures(tmp_path, *words, env=environment(PYTEST_ADDOPTS="-p no:cacheprovider"))
    assert {name for name in found if not name.startswith("<module>")} == {"T", "T.test_it", "f"}
    assert found["f"] == {2: 4, 3: 3}


@pytest.mark.parametrize("words", [("-m", "timeit", "-n", "1", "-r", "1", "1"), (COMMAND, "--version")])
def test_an_installed_program_that_runs_none_of_the_project(tmp_path: Path, words: tuple[str, ...]) -> None:
    project(tmp_path)
    nothing = lineprofiler("run", *words, cwd=tmp_path).expect().stdout
    assert nothing.splitlines()[-1] == f"No line of the project {tmp_path} (-p names other code) was executed."
    nothing = lineprofiler("run", "-p", "json", *words, cwd=tmp_path).expect().stdout
    assert nothing.splitlines()[-1] == "No line of what -p names was executed."


WORKER = """
import multiprocessing, os, sys
def work(n):
    total = 0
    for i in range(n):
        total += i
    return total
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(2) as pool:
        assert pool.map(work, [100] * 6) == [4950] * 6
        pool.close()
        pool.join()
    child = context.Process(target=work, args=(50,))
    child.start()
    child.join()
    work(7)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing_are_added_up(tmp_path: Path, method: str) -> None:
    project(tmp_path, prog=WORKER)
    found = figures(tmp_path, "prog.py", method)
    assert found["work"] == {4: 8, 5: 6 * 101 + 51 + 8, 6: 6 * 100 + 50 + 7, 7: 8}
    assert not [name for name in found if "spawn" in name]


@pytest.mark.parametrize("target", ["prog.work", "__main__.work", "prog", "pkg.prog.work"])
def test_a_program_has_the_name_by_which_it_would_be_imported(tmp_path: Path, target: str) -> None:
    """Also in what it spawns, where it is named otherwise."""
    project(tmp_path, prog=WORKER, pkg__prog=WORKER)
    (tmp_path / "pkg" / "__init__.py").touch()
    script = "pkg/prog.py" if target.startswith("pkg") else "prog.py"
    found = figures(tmp_path, "-p", target, script, "spawn")
    assert found["work"] == {4: 8, 5: 6 * 101 + 51 + 8, 6: 6 * 100 + 50 + 7, 7: 8}
    assert set(found) - {"<module>"} == {"work"}
    if not target.startswith("pkg"):
        found = figures(tmp_path, "-p", "__main__.work", "-m", "prog", "spawn")
        assert {name: sum(hits.values()) for name, hits in found.items()}["work"] == 8 + 665 + 657 + 8


def test_children_of_other_kinds(tmp_path: Path) -> None:
    project(
        tmp_path,
        prog="""
        import os, subprocess, sys
        def work():
            return 1
        work()
        pid = os.fork()
        if pid == 0:
            work()
            sys.exit()
        os.waitpid(pid, 0)
        subprocess.run([sys.executable, "other.py"], check=True)
        subprocess.run([sys.executable, "-I", "-c", "print(1)"], check=True, stdout=subprocess.DEVNULL)
        """,
        other="def elsewhere():\n    return 2\nelsewhere()\n",
    )
    found = figures(tmp_path, "prog.py")
    assert found["work"] == {4: 2}
    assert found["elsewhere"] == {2: 1}


def test_a_sitecustomize_of_the_site_runs_as_well(tmp_path: Path) -> None:
    project(tmp_path, prog="import sitecustomize\nprint(sitecustomize.MARK)", site__sitecustomize="MARK = 'theirs'\n")
    env = environment(PYTHONPATH=str(tmp_path / "site"))
    done = lineprofiler("run", "-q", "prog.py", cwd=tmp_path, env=env).expect()
    assert (done.stdout, done.stderr) == ("theirs\n", "")


DECORATED = """
@profile
def f(n):
    total = 0
    for i in range(n):
        total += i
    return total
def g():
    return f(10)
g()
"""


def test_line_by_line(tmp_path: Path) -> None:
    project(tmp_path, prog=DECORATED)
    assert "NameError" in lineprofiler("run", "prog.py", cwd=tmp_path).expect(1).stderr
    done = lineprofiler("run", "-l", "prog.py", cwd=tmp_path).expect()
    assert done.stdout == "Wrote profile results to 'prog.py.lprof'\n"
    document = json.loads(lineprofiler("lines", "prog.py.lprof", "--format", "json", cwd=tmp_path).expect().stdout)
    assert [f["function"] for f in document["functions"]] == ["f"]
    shown = lineprofiler("run", "-l", "-v", "-u", "1e-3", "-o", "my.lprof", "prog.py", cwd=tmp_path).expect().stdout
    assert shown.startswith("Wrote profile results to 'my.lprof'\nTimer unit: 0.001 s\n")
    assert "Function: f at line 2" in shown
    assert "Timer unit: 1e-06 s" in lineprofiler("run", "-lv", "prog.py", cwd=tmp_path).expect().stdout


def test_the_file_of_a_folder_has_its_name(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__main__.py").write_text("@profile\ndef f():\n    return 1\nf()\n")
    run_process([COMMAND, "run", "-q", "-l", "pack/"], cwd=tmp_path).expect()
    run_process([COMMAND, "run", "-q", "-l", "."], cwd=tmp_path / "pack").expect()
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.lprof")) == ["pack.lprof", "pack/pack.lprof"]


def test_letters_of_options_may_stand_together(tmp_path: Path) -> None:
    project(tmp_path, prog=DECORATED)
    for words in (("-lvo", "my.lprof"), ("-lvomy.lprof",), ("-lvqu", "1e-3"), ("-lvru1e-3",)):
        done = lineprofiler("run", *words, "prog.py", cwd=tmp_path).expect()
        assert (tmp_path / "my.lprof").exists() == ("my.lprof" in " ".join(words)), words
        assert ("Timer unit: 0.001 s" in done.stdout) == (words == ("-lvru1e-3",))
        (tmp_path / "my.lprof").unlink(missing_ok=True)


def test_options_of_kernprof_for_its_table(tmp_path: Path) -> None:
    project(tmp_path, prog=DECORATED)
    plain = lineprofiler("run", "-lv", "prog.py", cwd=tmp_path).expect().stdout
    assert " seconds - " not in plain
    assert "\x1b[" not in plain
    done = lineprofiler("run", "-lvr", "--summarize", "prog.py", cwd=tmp_path).expect().stdout
    assert f" seconds - {tmp_path}/prog.py:2 - f\n" in done
    assert "\x1b[" in done


def test_a_script_of_the_path(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    project(tmp_path / "bin", tool="import sys\ndef f():\n    return 1\nf()\nprint(sys.argv)\n")
    (tmp_path / "bin" / "tool.py").rename(tmp_path / "bin" / "tool")
    (tmp_path / "bin" / "tool").chmod(0o755)
    env = environment(PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    done = lineprofiler("run", "-o", "out.lprof", "tool", "x", cwd=tmp_path, env=env).expect()
    assert done.stdout.startswith(f"['{tmp_path / 'bin' / 'tool'}', 'x']\n")
    (tmp_path / "tool").mkdir()  # what is here goes first, as it is
    assert "__main__" in lineprofiler("run", "tool", "x", cwd=tmp_path, env=env).expect(1).stderr


def test_the_file_is_written_while_the_program_runs(tmp_path: Path) -> None:
    project(
        tmp_path,
        prog="""
        import os, time
        from lineprofiler import load_stats
        def f():
            return 1
        def is_written():
            return os.path.exists("out.lprof") and "f" in [key[2] for key in load_stats("out.lprof").timings]
        for n in range(5):
            f()
        end = time.monotonic() + 100
        while not is_written() and time.monotonic() < end:
            time.sleep(0.01)
        os.rename("out.lprof", "first.lprof")
        f()
        """,
    )
    lineprofiler("run", "-q", "-i", "0.2", "-o", "out.lprof", "prog.py", cwd=tmp_path).expect()
    for name, calls in (("first.lprof", 5), ("out.lprof", 6)):
        timings = load_stats(tmp_path / name).timings
        [rows] = [rows for key, rows in timings.items() if key[2] == "f"]
        assert rows[0][:2] == (5, calls)


def test_an_interval_that_never_comes(tmp_path: Path) -> None:
    project(tmp_path, prog=DECORATED)
    done = lineprofiler("run", "-l", "-i", "1e18", "prog.py", cwd=tmp_path).expect()
    assert done.stdout.endswith("Wrote profile results to 'prog.py.lprof'\n")


def test_the_settings_of_kernprof(tmp_path: Path) -> None:
    project(tmp_path, prog=DECORATED)
    text = "[tool.line_profiler.kernprof]\nline-by-line = true\nverbose = 1\nunit = 1e-3\noutfile = 'mine.lprof'\n"
    (tmp_path / "pyproject.toml").write_text(text)
    done = lineprofiler("run", "prog.py", cwd=tmp_path).expect()
    assert done.stdout.startswith("Wrote profile results to 'mine.lprof'\nTimer unit: 0.001 s\n")
    assert "Timer unit: 1 s" in lineprofiler("run", "-u", "1", "prog.py", cwd=tmp_path).expect().stdout
    assert "NameError" in lineprofiler("run", "--no-config", "prog.py", cwd=tmp_path).expect(1).stderr
    (tmp_path / "other.toml").write_text("[tool.line_profiler.kernprof]\nbuiltin = true\nunit = 'ms'\n")
    done = lineprofiler("run", "--config", "other.toml", "prog.py", cwd=tmp_path).expect()
    assert "Hottest lines" in done.stdout
    assert done.stderr == (
        "lineprofiler run: other.toml: [tool.line_profiler.kernprof] unit cannot be 'ms'; it is not used\n"
    )


def test_builtin_without_line_by_line(tmp_path: Path) -> None:
    project(tmp_path, prog=DECORATED)
    assert {"f", "g"} <= set(figures(tmp_path, "-b", "prog.py"))


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("lib", {"in_lib", "T.method"}),
        ("lib.in_lib", {"in_lib"}),
        ("lib.T", {"T.method"}),
        ("lib.py", {"in_lib", "T.method"}),
        ("pkg", {"deep", "Kind.method", "top"}),
        ("pkg/", {"deep", "Kind.method", "top"}),
        ("lib.in_lib,pkg.mod", {"in_lib", "deep", "Kind.method"}),
        ("prog.py", {"<module>"}),
        ("pkg.deep", {"deep"}),  # which it has from a module below
        ("pkg.Kind", {"Kind.method"}),
        ("pkg.__init__", {"top"}),
        ("pkg.none", set()),
        ("sys", set()),
    ],
)
def test_chosen_modules_functions_and_paths(tmp_path: Path, target: str, found: set[str]) -> None:
    project(
        tmp_path,
        prog="import lib, pkg.mod\nlib.in_lib(), lib.T().method(), pkg.deep(), pkg.Kind().method(), pkg.top()\n",
        lib="def in_lib():\n    return 1\nclass T:\n    def method(self):\n        return 2\n",
        pkg__mod="def deep():\n    return 3\nclass Kind:\n    def method(self):\n        return 4\n",
    )
    (tmp_path / "pkg" / "__init__.py").write_text("from pkg.mod import deep, Kind\ndef top():\n    return 5\n")
    names = set(figures(tmp_path, "-p", target, "prog.py"))
    assert {n for n in names if not n.startswith("<module>") and n not in ("T", "Kind")} == found - {"<module>"}
    assert ("<module>" in names) >= ("<module>" in found)


def test_an_empty_module_has_no_line_of_number_0(tmp_path: Path) -> None:
    project(tmp_path, prog="import pkg.mod\n", killed="import pkg.mod, os\nos._exit(0)\n", pkg__mod="x = 1\n")
    (tmp_path / "pkg" / "__init__.py").write_text("")
    for name in ("prog.py", "killed.py"):
        lineprofiler("run", "-q", "-o", "out.lprof", name, cwd=tmp_path).expect()
        timings = load_stats(tmp_path / "out.lprof").timings
        files = {Path(key[0]).name: [row[0] for row in rows] for key, rows in timings.items()}
        # 3.11 and 3.12 say that line 0 of it runs, 3.10 and 3.13 that line 1 does.
        assert files.pop("__init__.py", []) in ([], [1])
        assert files == {name: [1] if name == "prog.py" else [1, 2], "mod.py": [1]}


def test_targets_are_taken_back_and_found_by_imports(tmp_path: Path) -> None:
    project(
        tmp_path,
        prog="import lib\nfrom pkg.mod import deep\nlib.in_lib(), deep()\n",
        lib="def in_lib():\n    return 1\n",
        pkg__mod="def deep():\n    return other()\ndef other():\n    return 2\n",
        more="def never():\n    return 1\n",
    )
    assert set(figures(tmp_path, "-p", "lib", "-p", "", "-p", "pkg.mod.deep", "prog.py")) == {"deep"}
    assert set(figures(tmp_path, "-p", "prog.py", "--prof-imports", "prog.py")) == {"<module>", "in_lib", "deep"}
    assert set(figures(tmp_path, "-p", "lib", "--prof-imports", "prog.py")) == {"<module>", "in_lib"}  # of no script
    done = lineprofiler("run", "-q", "-p", "no_such.thing,lib", "prog.py", cwd=tmp_path).expect()
    assert done.stderr == "lineprofiler run: -p no_such.thing: no such module or path\n"


def test_setup_runs_first_and_unprofiled(tmp_path: Path) -> None:
    project(
        tmp_path,
        prog="import os\nprint(os.environ['FROM_SETUP'])\n",
        setup="import os\ndef prepare():\n    os.environ['FROM_SETUP'] = 'set'\nprepare()\n",
    )
    assert lineprofiler("run", "-q", "-s", "setup.py", "prog.py", cwd=tmp_path).expect().stdout == "set\n"
    assert "prepare" not in figures(tmp_path, "-s", "setup.py", "prog.py")


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("raise RuntimeError('broken')", 1, "RuntimeError: broken"),
        ("def def\n", 1, "SyntaxError"),
        ("import sys\nsys.exit(7)\n", 7, ""),
        ("import sys\nsys.exit('enough')\n", 1, "enough"),
    ],
)
def test_a_setup_that_fails_ends_the_run(tmp_path: Path, text: str, status: int, said: str) -> None:
    project(tmp_path, prog="print('ran')", setup=text)
    done = lineprofiler("run", "-s", "setup.py", "prog.py", cwd=tmp_path).expect(status)
    assert done.stdout == ""
    assert said in done.stderr
    assert "sitecustomize" not in done.stderr
    assert "lineprofiler" not in done.stderr
    lineprofiler("run", "-q", "-s", "setup.py", "-c", "print('ran')", cwd=tmp_path).expect(status)


def test_a_program_that_executes_another(tmp_path: Path) -> None:
    """What it has done up to then is in the report, though the other one has its number and ends by itself."""
    project(
        tmp_path,
        prog="""
        import os, sys
        def first(n):
            for i in range(n):
                pass
        def second(n):
            for i in range(n):
                pass
        if len(sys.argv) == 1:
            first(100)
            os.execv(sys.executable, [sys.executable, __file__, "again"])
        second(50)
        """,
    )
    found = figures(tmp_path, "prog.py")
    assert found["first"] == {4: 101, 5: 100}
    assert found["second"] == {7: 51, 8: 50}
    assert found["<module>"][11] == 1  # the call of the other one


def test_texts_without_end(tmp_path: Path) -> None:
    """A program that evaluates another text each time round: a hundred are told apart, the others are one."""
    project(tmp_path, prog="print(sum(eval(f'{i} + 1') for i in range(3000)))")
    found = figures(tmp_path, "prog.py")
    texts = {name: lines for name, lines in found.items() if name.startswith("<module>#")}
    assert len(texts) == 100
    assert texts["<module>#101"] == {1: 2900}


def test_arguments_of_the_program_are_its_own(tmp_path: Path) -> None:
    project(
        tmp_path,
        prog="""
        from lineprofiler import profile
        @profile
        def f():
            return 1
        exec(compile("def g():\\n    return 2\\ng()", "<string>", "exec"))
        print(f())
        """,
    )
    for words in (("-c",), ("-c", "def other(): pass")):
        done = lineprofiler("run", "--functions", "prog.py", *words, cwd=tmp_path).expect()
        assert "other" not in done.stdout
        assert "Not measured" not in done.stdout
        alone = run_process([sys.executable, "prog.py", "--line-profile", *words], cwd=tmp_path, env=environment())
        assert alone.expect().stdout.startswith("1\n")


def test_what_is_printed(tmp_path: Path) -> None:
    project(tmp_path, prog=LOOK)
    short = lineprofiler("run", "--top", "2", "prog.py", cwd=tmp_path).expect().stdout
    listed = short[short.index("Hottest") :].splitlines()
    assert len([line for line in listed if "prog.py:" in line]) == 2
    assert "def work" not in short
    whole = lineprofiler("run", "--functions", "--all", "-u", "1", "prog.py", cwd=tmp_path).expect().stdout
    assert "def work(n):" in whole
    assert "11" in whole
    quiet = lineprofiler("run", "-q", "-c", "print('only this')", cwd=tmp_path).expect()
    assert (quiet.stdout, quiet.stderr) == ("only this\n", "")
    lineprofiler("run", "-q", "--html", "page.html", "prog.py", cwd=tmp_path).expect()
    assert "lineprofiler-data" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_dash_c_shows_its_text(tmp_path: Path) -> None:
    done = lineprofiler("run", "--functions", "-c", "def f():\n    return 41 + 1\nf()\n", cwd=tmp_path).expect()
    assert "return 41 + 1" in done.stdout


def test_the_global_decorator_belongs_to_the_run(tmp_path: Path) -> None:
    project(tmp_path, prog="from lineprofiler import profile\n" + textwrap.dedent(DECORATED))
    done = lineprofiler("run", "-l", "-v", "prog.py", cwd=tmp_path).expect()
    assert "Function: f at line 3" in done.stdout
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["prog.py", "prog.py.lprof"]


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    project(tmp_path, prog=WORKER)
    private = tmp_path / "private"
    private.mkdir()
    lineprofiler("run", "-q", "prog.py", "fork", cwd=tmp_path, env=environment(TMPDIR=str(private))).expect()
    assert os.listdir(private) == []


def test_a_profiler_inside_the_program(tmp_path: Path) -> None:
    project(
        tmp_path,
        prog="""
        from lineprofiler import LineProfiler
        def f():
            return 1
        with LineProfiler(f) as profiler:
            f()
        print([line.hits for s in profiler.get_stats().values() for line in s.line_stats.values()])
        """,
    )
    assert lineprofiler("run", "-q", "prog.py", cwd=tmp_path).expect().stdout == "[1]\n"
    found: dict[str, Any] = figures(tmp_path, "prog.py")
    assert found["f"] == {4: 1}


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


def test_processes_that_are_killed_are_in_the_report(tmp_path: Path) -> None:
    project(
        tmp_path,
        prog="""
        import multiprocessing, os, signal
        def work(n):
            for i in range(n):
                pass
        work(3)
        for end in (lambda: os._exit(0), lambda: os.kill(os.getpid(), signal.SIGKILL)):
            if os.fork() == 0:
                work(10)
                end()
            os.wait()
        with multiprocessing.get_context("fork").Pool(2) as pool:
            pool.map(work, [100, 100], chunksize=1)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    done = lineprofiler("run", "-o", "out.lprof", "--functions", "prog.py", cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL
    assert "Not measured: the end of " in done.stdout
    document = json.loads(lineprofiler("lines", "out.lprof", "--format", "json", cwd=tmp_path).expect().stdout)
    [work] = [f for f in document["functions"] if f["function"] == "work"]
    assert {n["line"]: n["hits"] for n in work["lines"]} == {4: 4 + 2 * 11 + 2 * 101, 5: 3 + 2 * 10 + 2 * 100}
    assert work["lines"][0]["source"] == "    for i in range(n):"


LIVE = ("lines", "live", "--format", "json")


def test_a_living_run_can_be_looked_at(tmp_path: Path) -> None:
    project(
        tmp_path,
        prog="""
        import time
        def wait():
            time.sleep(60)
        def work():
            for i in range(1000):
                pass
            wait()
        work()
        """,
    )
    with subprocess.Popen([COMMAND, "run", "-q", "--live", "live", "prog.py"], cwd=tmp_path, env=environment()) as run:

        def waits() -> bool:
            if not list(tmp_path.glob("live/*.lines")):
                return False
            functions = json.loads(lineprofiler(*LIVE, cwd=tmp_path).expect().stdout)["functions"]
            return any(f["function"] == "wait" and f["lines"] for f in functions)

        wait_for(waits)
        document = json.loads(lineprofiler(*LIVE, cwd=tmp_path).expect().stdout)
        found = {f["function"]: {n["line"]: n["hits"] for n in f["lines"]} for f in document["functions"]}
        assert found["work"] == {6: 1001, 7: 1000, 8: 1}
        assert found["wait"] == {4: 1}
        assert document["notes"] == ["what comes yet: 1 process still running"]
        [place] = document["places"]
        assert re.search(r"is in <module> prog\.py:9 > work prog\.py:8 > wait prog\.py:4 for ", place)
        lineprofiler("lines", "live", "--html", "live.html", cwd=tmp_path).expect()
        assert "is in \\u003cmodule\\u003e prog.py:9" in (tmp_path / "live.html").read_text(encoding="utf-8")
        run.send_signal(signal.SIGTERM)
        run.wait(LIMIT_S)
    again = json.loads(lineprofiler(*LIVE, cwd=tmp_path).expect().stdout)
    assert again["notes"] == ["the end of 1 process, killed or left by os._exit or exec"]
    assert "was in <module>" in again["places"][0]


@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_a_folder_for_figures_keeps_what_is_in_it(tmp_path: Path, mode: int) -> None:
    project(tmp_path, prog="print(1)\n")
    ours = ("12-0123abcd.lines", "12-0123abcd-99.lprof", "12-99.lprof")
    for name in ("mine.lprof", "1.lines", *ours):
        (tmp_path / name).write_text("x")
    tmp_path.chmod(mode)
    done = run_process([COMMAND, "run", "-q", "--live", ".", "prog.py"], cwd=tmp_path)
    left = set(os.listdir(tmp_path))
    assert {"mine.lprof", "1.lines"} < left
    if mode == 0o700:
        assert done.expect().stdout == "1\n"
        assert left.isdisjoint(ours)
    else:
        assert (done.returncode, done.stdout) == (2, "")
        assert ".: others may enter this folder, and there is more in it than figures of lines" in done.stderr
        assert (tmp_path.stat().st_mode & 0o777) == mode


def test_a_folder_for_figures_may_be_a_link(tmp_path: Path) -> None:
    project(tmp_path, prog="def f():\n    return 1\nf()\n")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    done = run_process([COMMAND, "run", "--live", "link", "prog.py"], cwd=tmp_path).expect()
    assert "Not measured" not in done.stdout
    assert done.stderr == ""
    assert len(list(tmp_path.glob("real/*.lines"))) == 1


def test_a_profiler_that_shares(tmp_path: Path) -> None:
    project(
        tmp_path,
        prog="""
        import os
        from lineprofiler import LineProfiler
        def f():
            return 1
        profiler = LineProfiler(f)
        profiler.share("figures")
        with profiler:
            f()
            if os.fork() == 0:
                f()
                os._exit(0)
            os.wait()
        try:
            profiler.share("elsewhere")
        except RuntimeError as error:
            print("refused")
        """,
    )
    (tmp_path / "figures").mkdir(mode=0o700)
    assert run_process([sys.executable, "prog.py"], cwd=tmp_path).expect().stdout == "refused\n"
    document = json.loads(lineprofiler("lines", "figures", "--format", "json", cwd=tmp_path).expect().stdout)
    [function] = document["functions"]
    assert (function["calls"], document["processes"]) == (2, 2)


def test_a_folder_of_damaged_files(tmp_path: Path) -> None:
    folder = tmp_path / "live"
    folder.mkdir()
    (folder / "a.lines").write_bytes(b"garbage")
    (folder / "1-2.lprof").write_bytes(b"garbage")
    done = lineprofiler("lines", "live", cwd=tmp_path).expect()
    assert "Not measured: 1-2.lprof: it is no .lprof file" in done.stdout
    assert "a.lines" in done.stdout
