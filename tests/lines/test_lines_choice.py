"""Which functions a profiler of a project finds, wherever and however they are defined, and their text."""

from __future__ import annotations

import json
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import pytest
from linetest import project
from lptest import Done, environment, lineprofiler, run_process, run_python

from lineprofiler.config import ProfilerConfig, find_project_root, get_config

SHOW = """
import json as _json
def show(profiler):
    found = {}
    for key, f in profiler.get_stats("line").items():
        lines = {n: [line.hits, f.source_lines.get(n, "")] for n, line in sorted(f.line_stats.items())}
        found[key.function_name] = [key.filename, lines]
    print(_json.dumps(found))
"""


def play(folder: Path, text: str, *options: str, **files: str) -> dict[str, Any]:
    """Runs the text as main.py in a project; what it shows: {function: [file, {line: [hits, source]}]}"""
    done = run(folder, text, *options, **files).expect()
    shown: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return shown


def run(folder: Path, text: str, *options: str, **files: str) -> Done:
    (folder / ".git").mkdir(exist_ok=True)
    (folder / "shown.py").write_text(SHOW)
    for name, content in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(content))
    (folder / "main.py").write_text(
        "from shown import show\nfrom lineprofiler import LineProfiler\n" + textwrap.dedent(text)
    )
    return run_process([sys.executable, *options, "main.py"], cwd=folder, env=environment(PYTHONDONTWRITEBYTECODE="1"))


def test_the_body_and_what_it_calls(tmp_path: Path) -> None:
    shown = play(
        tmp_path,
        """
        import json
        def work(n):
            return json.dumps([n])
        with LineProfiler() as profiler:
            work(1)
            work(2)
        show(profiler)
        """,
    )
    # Neither json nor the profiler itself; `with` is left by a visit that is no hit.
    assert set(shown) == {"<module>", "work"}
    assert shown["work"] == [str(tmp_path / "main.py"), {"6": [2, "    return json.dumps([n])"]}]
    assert {n: row[0] for n, row in shown["<module>"][1].items() if row[0]} == {"8": 1, "9": 1}


def test_a_project_behind_a_link_has_short_names(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    project(tmp_path / "real", prog="def f():\n    return 1\nf()\n")
    (tmp_path / "link").symlink_to("real")
    for folder in ("real", "link"):
        shown = lineprofiler("run", "--functions", f"{tmp_path}/{folder}/prog.py", cwd=tmp_path).expect().stdout
        assert "\nf  prog.py:1\n" in shown
        program = "import prog\nfrom lineprofiler import LineProfiler\nwith LineProfiler('.') as p:\n    prog.f()\n"
        env = environment(PYTHONPATH=str(tmp_path / folder))
        done = run_python(program + "p.print_global_top_stats()", cwd=tmp_path / "real", env=env)
        assert "\nprog.py::f " in done.expect().stdout


def test_modules_imported_before_and_after(tmp_path: Path) -> None:
    shown = play(
        tmp_path,
        """
        import early
        with LineProfiler() as profiler:
            early.f()
            import pkg.late
            pkg.late.Thing().method()
        show(profiler)
        """,
        early="def f():\n    return 1\n",
        pkg__late="class Thing:\n    def method(self):\n        return 2\n",
    )
    assert shown["f"][1] == {"2": [1, "    return 1"]}
    assert shown["Thing.method"][0] == str(tmp_path / "pkg" / "late.py")


def test_code_without_a_file(tmp_path: Path) -> None:
    shown = play(
        tmp_path,
        """
        import linecache
        from dataclasses import dataclass
        from collections import namedtuple
        @dataclass
        class Point:
            x: int
        with LineProfiler() as profiler:
            exec("def made():\\n    return 1\\nmade()")
            space = {}
            exec(compile("def apart():\\n    return 2\\n", "<apart>", "exec"), space)
            space["apart"]()
            linecache.cache["/nowhere/cell.py"] = (20, None, ["def cell():\\n", "    return 3\\n"], "/nowhere/cell.py")
            exec(compile("def cell():\\n    return 3\\n", "/nowhere/cell.py", "exec"), globals())
            cell()
            Point(1) == Point(2), namedtuple("N", "a")(1)
            @dataclass
            class Later:
                y: int
            linecache.clearcache()
        show(profiler)
        """,
    )
    assert shown["made"] == ["<string>", {"2": [1, ""]}]
    assert shown["apart"] == ["<apart>", {"2": [1, ""]}]
    assert shown["cell"] == ["/nowhere/cell.py", {"2": [1, "    return 3"]}]
    # `made` was made by the module of a string; what dataclasses and namedtuple make is not there.
    # The annotations of a class are a function of its file from 3.14 on, which dataclass calls.
    annotations = {"Later.__annotate__"} if sys.version_info >= (3, 14) else set()
    assert set(shown) == {"<module>", "made", "apart", "cell", "Later"} | annotations


def test_modules_that_are_loaded_when_they_are_used(tmp_path: Path) -> None:
    (tmp_path / "later.py").write_text("print('loaded')\n")
    (tmp_path / "main.py").write_text("""
import importlib.util, sys
def lazy(name):
    spec = importlib.util.find_spec(name)
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
later = lazy("later")
exec("def f(): return 1\\nf()")
print("not yet")
later.__file__
""")
    for words in ((), ("-p", "json")):
        command = [sys.executable, "-m", "lineprofiler", "run", "-q", *words, "main.py"]
        assert run_process(command, cwd=tmp_path).expect().stdout == "not yet\nloaded\n"


def test_zips_show_their_source(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "lib.zip", "w") as archive:
        archive.writestr("zipped.py", "def inside():\n    return 'ä'\n")
    shown = play(
        tmp_path,
        """
        import sys
        sys.path.insert(0, "lib.zip")
        import zipped
        with LineProfiler() as profiler:
            zipped.inside()
        show(profiler)
        """,
    )
    assert shown["inside"] == [str(tmp_path / "lib.zip" / "zipped.py"), {"2": [1, "    return 'ä'"]}]


def test_relative_paths_and_chdir(tmp_path: Path) -> None:
    (tmp_path / "rel.py").write_text("def f():\n    return 1\n")
    shown = play(
        tmp_path,
        """
        import os
        space = {"__name__": "rel", "__file__": os.path.abspath("rel.py")}
        exec(compile(open("rel.py").read(), "rel.py", "exec"), space)
        profiler = LineProfiler()
        os.chdir("/")
        with profiler:
            space["f"]()
        show(profiler)
        """,
    )
    assert shown["f"] == [str(tmp_path / "rel.py"), {"2": [1, "    return 1"]}]


def test_encodings_edits_and_deleted_files(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\ndef latin():\n    return '\xe4'\n")
    shown = play(
        tmp_path,
        """
        import latin, edited, gone, os
        with LineProfiler() as profiler:
            latin.latin(), edited.g(), gone.h()
        open("edited.py", "w").write("# another\\n")
        os.unlink("gone.py")
        show(profiler)
        """,
        edited="def g():\n    return 1\n",
        gone="def h():\n    return 2\n",
    )
    assert shown["latin"][1] == {"3": [1, "    return 'ä'"]}
    assert shown["g"][1] == {"2": [1, "    return 1"]}
    assert shown["h"][1] == {"2": [1, "    return 2"]}


def test_a_changed_source_is_said(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        import edited
        with LineProfiler() as profiler:
            edited.g()
        open("edited.py", "w").write("# another\\n")
        profiler.print_stats()
        """,
        edited="def g():\n    return 1\n",
    ).expect()
    assert "(source changed since the run)" in done.stdout
    assert "    return 1" in done.stdout


def test_undecodable_source(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        import bad
        with LineProfiler() as profiler:
            bad.f()
        open("bad.py", "wb").write(b"def f():\\n    return '\\xff'\\n")
        from lineprofiler.lines.source import from_bytes
        source = from_bytes(open("bad.py", "rb").read())
        print(source.note, source.line(2))
        """,
        bad="def f():\n    return 1\n",
    ).expect()
    assert done.stdout == "source cannot be decoded     return '\\xff'\n"


def test_installed_packages_inside_the_project_are_not_its_own(tmp_path: Path) -> None:
    shown = play(
        tmp_path,
        """
        import sys
        sys.path.insert(0, "env/lib/python3/site-packages")
        import other
        with LineProfiler() as profiler:
            other.f()
        show(profiler)
        """,
        **{"env__lib__python3__site-packages__other": "def f():\n    return 1\n"},
    )
    assert set(shown) == {"<module>"}


def test_folder_of_another_project(tmp_path: Path) -> None:
    shown = play(
        tmp_path,
        """
        from pkg import inside
        import outside
        with LineProfiler(project_folder="pkg") as profiler:
            inside.f()
            outside.g()
        show(profiler)
        """,
        pkg__inside="def f():\n    return 1\n",
        outside="def g():\n    return 1\n",
    )
    assert set(shown) == {"f"}


def test_settings_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        textwrap.dedent(
            """
            [project]
            name = "x"  # a comment
            [tool.lineprofiler]
            include = ["src/*", 'main.py']  # two
            exclude = [
                "src/skipped/", # a folder
            ]
            functions = ["wanted*", "*.method"]
            [tool.other]
            functions = 3
            """
        )
    )
    shown = play(
        tmp_path,
        """
        from src import a
        from src.skipped import b
        import c
        with LineProfiler() as profiler:
            a.wanted_f(), a.unwanted(), a.T().method(), b.wanted_g(), c.wanted_h()
        show(profiler)
        """,
        src__a="def wanted_f(): return 1\ndef unwanted(): return 1\nclass T:\n    def method(self): return 1\n",
        src__skipped__b="def wanted_g(): return 1\n",
        c="def wanted_h(): return 1\n",
    )
    assert set(shown) == {"wanted_f", "T.method"}
    config = get_config(tmp_path)
    assert config == ProfilerConfig(False, ("src/*", "main.py"), ("src/skipped/",), ("wanted*", "*.method"))


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("[tool.lineprofiler]\nincludes = ['a']\n", "has no key 'includes'"),
        ("[tool.lineprofiler]\ninclude = 'a'\n", "include is no list of strings"),
        ("[tool.lineprofiler]\ninclude = [1]\n", "list of strings"),
        ("[tool.lineprofiler]\ninclude = ['a'\n", "pyproject.toml"),
    ],
)
def test_wrong_settings_warn_and_are_left_out(tmp_path: Path, text: str, warning: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.warns(RuntimeWarning, match=warning) as caught:
        assert get_config(tmp_path) == ProfilerConfig(False)
    assert len(caught) == 1
    assert get_config(tmp_path) == ProfilerConfig(False)


def test_patterns_of_paths_and_names() -> None:
    config = ProfilerConfig(True, include=("src/**/*.py", "tools"), exclude=("tests/", "*_pb2.py"), functions=("a.*",))
    allowed = ["src/x.py", "src/deep/er/y.py", "/srv/p/src/x.py", "tools/z.py"]
    refused = ["x.py", "src/tests/t.py", "tests/t.py", "src/m_pb2.py", "src/x.txt"]
    assert [p for p in allowed + refused if config.allows_path(p)] == allowed
    assert (config.allows_function("a.b"), config.allows_function("b.a")) == (True, False)
    assert ProfilerConfig(True).allows_function("anything")
    assert ProfilerConfig(True).allows_path("anywhere")


def test_root_of_a_project(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (tmp_path / "a" / "pyproject.toml").write_text("")
    (deep / "f.py").write_text("")
    assert find_project_root(deep / "f.py") == tmp_path / "a"
    (tmp_path / ".git").write_text("gitdir: elsewhere\n")
    assert find_project_root(deep) == tmp_path


@pytest.mark.parametrize(
    ("value", "on"),
    [("", False), ("0", False), ("False", False), ("no", False), ("off", False), ("1", True), ("yes", True)],
)
def test_enabled_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str, on: bool) -> None:
    with monkeypatch.context() as environment:
        environment.setenv("LINEPROFILER_ENABLED", value)
        assert get_config(tmp_path).enabled is on


RELOADED = """
import importlib, os, sys
from lineprofiler import LineProfiler
from shown import show
sys.path.insert(0, os.getcwd())
def edit(text):
    with open("mod.py.part", "w") as file:
        file.write(text)
    os.replace("mod.py.part", "mod.py")
    importlib.invalidate_caches()
    __import__("shutil").rmtree("__pycache__", ignore_errors=True)
first = "def same():\\n    return 1\\ndef other():\\n    return 'first'\\n"
second = "def same():\\n    return 1\\n\\ndef other():\\n    x = 'second'\\n    return x\\n"
"""


def test_a_module_that_is_edited_and_loaded_again(tmp_path: Path) -> None:
    found = play(
        tmp_path,
        RELOADED
        + """
edit(first)
with LineProfiler() as profiler:
    import mod
    old = mod.other
    mod.same(), mod.other()
    edit(second)
    importlib.reload(mod)
    mod.same(), mod.other(), mod.other(), old()
    edit("import math\\n" + second)
    importlib.reload(mod)
    mod.other()
both = {}
for key, f in profiler.get_stats("line").items():
    place = os.path.basename(key.filename) + ":" + key.function_name
    both[place] = [key.first_line, {n: [s.hits, f.source_lines[n]] for n, s in f.line_stats.items()}]
import json
from lineprofiler.lines.html import render
both["page"] = render(profiler.profile(), "page").count('"name":"same"')
print(json.dumps(both))
""",
    )
    assert found["mod.py:same"] == [1, {"2": [2, "    return 1"]}]
    assert found["mod.py:other"] == [3, {"4": [2, "    return 'first'"]}]
    assert found["mod.py#2:other"] == [4, {"5": [2, "    x = 'second'"], "6": [2, "    return x"]}]
    assert found["mod.py#3:other"] == [5, {"6": [1, "    x = 'second'"], "7": [1, "    return x"]}]
    assert found["mod.py#3:<module>"][1]["1"] == [1, "import math"]
    assert "mod.py#2:same" not in found
    assert found["page"] == 1


def test_a_decorated_function_that_is_loaded_again(tmp_path: Path) -> None:
    found = play(
        tmp_path,
        RELOADED.replace("def other", "@profile\\ndef other")
        + """
import builtins
profiler = builtins.profile = LineProfiler()
profiler(show)
edit(first)
import mod
mod.other()
edit(second)
importlib.reload(mod)
mod.other()
profiler.disable()
import json
print(json.dumps({
    os.path.basename(key.filename): {n: [s.hits, f.source_lines[n]] for n, s in f.line_stats.items()}
    for key, f in profiler.get_stats("line").items() if key.function_name == "other"
}))
""",
    )
    assert found["mod.py"] == {"5": [1, "    return 'first'"]}
    assert found["mod.py#2"] == {"6": [1, "    x = 'second'"], "7": [1, "    return x"]}
