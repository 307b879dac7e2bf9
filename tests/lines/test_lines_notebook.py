"""The magics, in IPython shells of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lptest import environment, run_python

pytest.importorskip("IPython", reason="IPython has no wheel for this interpreter")

SHELL = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
def cell(text):
    result = shell.run_cell(text)
    return result.result if result.success else None
cell("%load_ext lineprofiler")
cell("def f(n):\\n    total = 0\\n    for i in range(n):\\n        total += i\\n    return total\\n")
"""


def session(folder: Path, *cells: str) -> str:
    text = SHELL + "".join(f"cell({cell!r})\n" for cell in cells)
    return run_python(text, cwd=folder).expect().stdout


def test_a_function_of_a_cell_and_its_text(tmp_path: Path) -> None:
    out = session(tmp_path, "%lprun -f f f(100)")
    assert "Function: f at line 1" in out
    rows = [line.split(None, 5) for line in out.splitlines() if line.startswith("     ")]
    assert [(r[0], r[1], r[-1]) for r in rows if len(r) > 5] == [
        ("2", "1", "total = 0"),
        ("3", "101", "for i in range(n):"),
        ("4", "100", "total += i"),
        ("5", "1", "return total"),
    ]


def test_options(tmp_path: Path) -> None:
    out = session(
        tmp_path,
        "p = %lprun -r -u 1e-3 -s -T t.txt -D d.lprof -f f f(10) + f(10)",
        "print([line.hits for s in p.get_stats('line').values() for line in s.line_stats.values()])",
        "%lprun -m json import json; json.dumps([1])",
    )
    assert "Timer unit: 0.001 s" in out
    assert "[2, 22, 20, 2]" in out
    assert "def dumps(" in out
    assert "total += i" in (tmp_path / "t.txt").read_text(encoding="utf-8")
    assert (tmp_path / "d.lprof").is_file()


def test_letters_of_options_may_stand_together(tmp_path: Path) -> None:
    out = session(tmp_path, "p = %lprun -rzu 1e-3 -ff f(10)", "print([type(p).__name__, p.functions[0].__name__])")
    assert "Timer unit: 0.001 s" in out
    assert out.splitlines()[-1] == "['LineProfiler', 'f']"


def test_values_in_quotes_may_have_spaces(tmp_path: Path) -> None:
    out = session(tmp_path, """%lprun -D "a file.lprof" -T 'a text.txt' -f f f(10); print("it's")""")
    assert "it's" in out
    assert (tmp_path / "a file.lprof").is_file()
    assert "total += i" in (tmp_path / "a text.txt").read_text(encoding="utf-8")


def test_functions_are_expressions(tmp_path: Path) -> None:
    out = session(
        tmp_path,
        "made = {'a b': f, ' ': [f]}",
        """p = %lprun -r -f made["a b"] -f made[' '][0] print("it's", f(2))""",
        "print([each.__name__ for each in p.functions])",
        """p = %lprun -r -f "made['a b']" print('made["a b"]', f(3))""",
        "print([each.__name__ for each in p.functions])",
        """%lprun -f made["a b f(1)""",
    )
    lines = out.splitlines()
    assert "it's 1" in lines
    assert 'made["a b"] 3' in lines
    assert lines.count("['f']") == 2
    assert lines[-1].startswith("""%lprun: -f made["a: SyntaxError""")


def test_a_statement_is_run_as_it_was_written(tmp_path: Path) -> None:
    """IPython puts values for braces into the line of a magic that does not refuse it."""
    out = session(
        tmp_path,
        "name, place = 'f', 't'",
        "%lprun -f {name} -T {place}.txt print({'a': 1}, '{name} $name', f'{name!r} {f(3)}')",
    )
    assert "{'a': 1} {name} $name 'f' 3" in out
    assert "total += i" in (tmp_path / "t.txt").read_text(encoding="utf-8")


def test_only_a_terminal_has_a_pager(tmp_path: Path) -> None:
    """A notebook's pager is a message beside the cell: not kept, and dropped where it is executed without a browser."""
    text = (
        SHELL.replace("core.interactiveshell import InteractiveShell", "{0} import {1} as InteractiveShell")
        + "paged = []\n"
        + "shell.set_hook('show_in_pager', lambda shell, *args, **named: paged.append(args or named))\n"
        + "cell('%lprun -f f f(100)')\nprint(len(paged))\n"
    )
    out = run_python(text.format("core.interactiveshell", "InteractiveShell"), cwd=tmp_path).expect().stdout
    assert "total += i" in out
    assert out.endswith("\n0\n")
    text = text.format("terminal.interactiveshell", "TerminalInteractiveShell")
    simple = environment(TERM="dumb", IPY_TEST_SIMPLE_PROMPT="1")
    out = run_python(text, cwd=tmp_path, env=simple).expect().stdout
    assert "total += i" not in out
    assert out.endswith("1\n")


def test_a_statement_may_mark_functions(tmp_path: Path) -> None:
    (tmp_path / "marked.py").write_text("@profile\ndef inside(n):\n    return n + 1\n")
    out = session(
        tmp_path,
        "import builtins, sys\nsys.path.insert(0, '.')",
        "%lprun import marked; marked.inside(3)",
        "print(hasattr(builtins, 'profile'))",
        "builtins.profile = 7",
        "%lprun -f f f(1)",
        "print(builtins.profile)",
    )
    assert "Function: inside at line 1" in out
    assert "return n + 1" in out
    assert out.splitlines()[-1] == "7"
    assert "\nFalse\n" in out


def test_cells(tmp_path: Path) -> None:
    out = session(
        tmp_path,
        "%%lprun\ndef g(x):\n    return x * 2\nkept = [g(i) for i in range(10)]\n",
        "print('kept', kept[-1])",
        "%%lprun -f f\nf(5)\n",
        "%%lprun_all -t -p\ndef h():\n    return 1\nh()\n",
        "print('seconds', _total_time_taken >= 0)",
    )
    assert "Function: g at line 1" in out
    assert "kept 18" in out
    assert "seconds True" in out
    assert "Function: h" not in out
    hits = [line.split()[1] for line in out.splitlines() if line.endswith("total += i")]
    assert hits == ["5"]


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    out = session(
        tmp_path,
        "%lprun -f nothing f(1)",
        "%lprun -f f",
        "%lprun -m no_such_module f(1)",
        "%lprun -x f(1)",
        "%lprun -u 0 -f f f(1)",
        "%lprun -u inf -f f f(1)",
    )
    assert out.splitlines() == [
        "%lprun: -f nothing: NameError: name 'nothing' is not defined",
        "%lprun: no statement is given",
        "%lprun: No module named 'no_such_module'",
        "%lprun: unrecognized arguments: -x",
        "%lprun: -u must be more than 0 seconds, and finite",
        "%lprun: -u must be more than 0 seconds, and finite",
    ]


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    """The other file is written, and the profiler is there."""
    out = session(
        tmp_path,
        "p = %lprun -r -f f -D no/such/a.lprof -T a.txt f(3)",
        "q = %lprun -r -f f -D b.lprof -T no/such/b.txt f(3)",
        "print(sum(len(each.get_stats()) for each in (p, q)))",
    )
    assert "%lprun: no/such/a.lprof: No such file or directory\n" in out
    assert "%lprun: no/such/b.txt: No such file or directory\n" in out
    assert "Traceback" not in out
    assert out.splitlines()[-1] == "2"
    assert (tmp_path / "a.txt").exists()
    assert (tmp_path / "b.lprof").exists()


def test_a_statement_that_ends_or_raises(tmp_path: Path) -> None:
    out = session(tmp_path, "import sys\n%lprun -f f f(3); sys.exit()", "%lprun -f f f(3); 1/0", "print('goes on')")
    assert "SystemExit exception caught" in out
    assert "ZeroDivisionError" in out
    assert "goes on" in out


def test_a_profiler_in_a_notebook(tmp_path: Path) -> None:
    out = session(
        tmp_path,
        "from lineprofiler import LineProfiler\nwith LineProfiler() as p:\n    f(10)\n",
        "import json\nprint(json.dumps({k.function_name: [l.hits for l in v.line_stats.values()]"
        " for k, v in p.get_stats('line').items() if k.function_name == 'f'}))",
        "print(next(s for s in p.get_stats().values() if s.function_name == 'f').source_lines[4])",
    )
    lines = out.splitlines()
    assert json.loads(lines[-2]) == {"f": [1, 11, 10, 1]}
    assert lines[-1] == "        total += i"


def test_unload(tmp_path: Path) -> None:
    out = session(tmp_path, "%unload_ext lineprofiler", "print([get_ipython().find_line_magic('lprun')])")
    assert out == "[None]\n"
