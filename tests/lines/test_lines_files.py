"""``.lprof`` files: ours and line_profiler's, both ways; what is broken or malicious; the command that prints them."""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from lptest import ROOT, lineprofiler, run_process

from lineprofiler import LineProfiler, load_stats, show_func, show_text
from lineprofiler._lineprofiler import pickle_is_modest
from lineprofiler.lines import lprof
from lineprofiler.lines.compat import LineStats
from lineprofiler.lines.model import Function, FunctionKey, Line, Profile
from lineprofiler.lines.show import compare
from lineprofiler.lines.source import from_bytes
from lineprofiler.lines.stats import Stats

DATA = ROOT / "tests/data"


def example(path: Path, factor: int = 1, text: str | None = None) -> Profile:
    source = text if text is not None else "def f(n):\n    x = n\n    return x\n"
    path.write_text(source)
    function = Function(FunctionKey(str(path), "f", 1), 2 * factor, 900 * factor, 800 * factor, 70 * factor, 1)
    function.lines = {2: Line(2, 3, 400 * factor, 300 * factor, 70), 3: Line(2, 2, 500 * factor, 500 * factor)}
    function.threads = {"MainThread (0)": dict(function.lines)}
    function.executable = frozenset((2, 3))
    return Profile(
        {function.key: function}, {str(path): from_bytes(path.read_bytes())}, {"line": 30.0}, ["a note"], processes=1
    )


def test_round_trip_keeps_everything(tmp_path: Path) -> None:
    profile = example(tmp_path / "m.py")
    lprof.write(tmp_path / "a.lprof", profile)
    assert lprof.read(tmp_path / "a.lprof") == profile
    assert os.listdir(tmp_path).count("a.lprof") == 1
    assert len(os.listdir(tmp_path)) == 2


def test_rights_and_links_of_the_file_that_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = example(tmp_path / "m.py")
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as m:
            m.setattr(os, "umask", lambda mask: pytest.fail("another thread may make a file just now"))
            (tmp_path / "link.lprof").symlink_to("out.lprof")
            lprof.write(tmp_path / "link.lprof", profile)
    finally:
        os.umask(before)
    assert (tmp_path / "link.lprof").is_symlink()
    assert (tmp_path / "out.lprof").stat().st_mode & 0o777 == 0o640
    assert lprof.read(tmp_path / "out.lprof").functions == profile.functions
    assert sorted(os.listdir(tmp_path)) == ["link.lprof", "m.py", "out.lprof"]


def test_a_stream_is_written_to_whatever_is_behind_it(tmp_path: Path) -> None:
    profile = example(tmp_path / "m.py")
    with open(tmp_path / "shell.out", "wb") as out:  # as `> shell.out` does for /dev/stdout
        for path in (f"/dev/fd/{out.fileno()}", f"/proc/self/fd/{out.fileno()}"):
            lprof.write(path, profile)
            assert os.path.samestat(os.fstat(out.fileno()), os.stat(tmp_path / "shell.out"))
            assert lprof.read(tmp_path / "shell.out").functions == profile.functions


def test_changed_source_is_said_and_the_text_that_ran_is_shown(tmp_path: Path) -> None:
    lprof.write(tmp_path / "a.lprof", example(tmp_path / "m.py"))
    (tmp_path / "m.py").write_text("def g():\n    pass\n")
    source = lprof.read(tmp_path / "a.lprof").source(str(tmp_path / "m.py"))
    assert source.note == "source changed since the run"
    assert source.line(2) == "    x = n"
    (tmp_path / "m.py").unlink()
    gone = lprof.read(tmp_path / "a.lprof").source(str(tmp_path / "m.py"))
    assert (gone.note, gone.line(3)) == ("", "    return x")


@pytest.mark.parametrize("version", ["4.2", "5.1"])
def test_files_of_line_profiler_are_read(version: str) -> None:
    profile = lprof.read(DATA / f"line-profiler-{version}.lprof")
    hits = {k.function_name: {n: line.hits for n, line in f.lines.items()} for k, f in profile.functions.items()}
    names = sorted(hits)
    # 4.x knows plain names only.
    assert names == (["add", "count"] if version == "4.2" else ["Index.add", "count"])
    assert hits["count"] == {2: 1, 3: 31, 4: 30, 5: 1}
    assert not profile.full
    assert all(line.time_ns > 0 for f in profile.functions.values() for line in f.lines.values())


def test_line_profiler_reads_ours(tmp_path: Path) -> None:
    theirs = pytest.importorskip("line_profiler", reason="line_profiler has no wheel for this interpreter")
    profile = example(tmp_path / "m.py")
    lprof.write(tmp_path / "a.lprof", profile)
    stats = theirs.load_stats(str(tmp_path / "a.lprof"))
    assert stats.timings == {(str(tmp_path / "m.py"), 1, "f"): [(2, 2, 400), (3, 2, 500)]}
    assert stats.unit == 1e-9
    command = [sys.executable, "-m", "line_profiler", str(tmp_path / "a.lprof")]
    shown = run_process(command, cwd=tmp_path).expect().stdout
    assert "Function: f at line 1" in shown
    assert "x = n" in shown


def test_we_read_what_line_profiler_writes_now(tmp_path: Path) -> None:
    theirs = pytest.importorskip("line_profiler", reason="line_profiler has no wheel for this interpreter")

    def work(n: int) -> int:
        return sum(range(n))

    profiler = theirs.LineProfiler(work)
    profiler.runcall(work, 10)
    profiler.dump_stats(str(tmp_path / "b.lprof"))
    ours = load_stats(tmp_path / "b.lprof")
    assert ours.timings == profiler.get_stats().timings
    assert ours.unit == 1e-9


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch PWNED",)


def state_of(state: Any, name: str = "LineStats") -> bytes:
    body = pickle.dumps(state, 2)[2:-1]
    return b"\x80\x02cline_profiler.line_profiler\n" + name.encode() + b"\n)\x81" + body + b"b."


BROKEN = {
    "garbage": b"garbage",
    "empty": b"",
    "cut": state_of({"timings": {}, "unit": 1e-9})[:-5],
    "more after the end": state_of({"timings": {}, "unit": 1e-9}) + b"x",
    "runs code": pickle.dumps(Evil()),
    "runs code inside": state_of({"timings": {("f", 1, "g"): [Evil()]}, "unit": 1e-9}),
    "another class": state_of({}, "LineProfiler"),
    "a class in two lines": b"\x80\x04\x8c\x06po\nsix\x8c\x06system\x93.",
    "a builtin": b"cbuiltins\neval\n(V1+1\ntR.",
    "persistent": b"Pfoo\n.",
    "a plain dict": pickle.dumps({"timings": {}, "unit": 1e-9}),
    "no unit": state_of({"timings": {}}),
    "unit is text": state_of({"timings": {}, "unit": "s"}),
    "unit is nan": state_of({"timings": {}, "unit": float("nan")}),
    "timings is a list": state_of({"timings": [], "unit": 1e-9}),
    "short key": state_of({"timings": {("f", 1): []}, "unit": 1e-9}),
    "hits are text": state_of({"timings": {("f", 1, "g"): [(1, "2", 3)]}, "unit": 1e-9}),
    "time is infinite": state_of({"timings": {("f", 1, "g"): [(1, 2, float("inf"))]}, "unit": 1e-9}),
    "line beyond 64 bits": state_of({"timings": {("f", 1, "g"): [(1 << 70, 2, 3)]}, "unit": 1e-9}),
    "ours, a cost that is no number": state_of(
        {
            "timings": {},
            "unit": 1e-9,
            "lineprofiler": {
                "version": 1,
                "own_cost": {"line": float("nan")},
                "notes": [],
                "places": [],
                "processes": 1,
                "full": True,
                "sources": {},
                "functions": [],
            },
        }
    ),
    "ours, damaged": state_of({"timings": {}, "unit": 1e-9, "lineprofiler": {"version": 1, "sources": 3}}),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_and_malicious_files(tmp_path: Path, case: str) -> None:
    (tmp_path / "x.lprof").write_bytes(BROKEN[case])
    with pytest.raises(lprof.FormatError):
        lprof.read(tmp_path / "x.lprof")
    done = lineprofiler("lines", "x.lprof", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("lineprofiler lines: x.lprof: ")
    assert done.stderr.count("\n") == 1
    assert os.listdir(tmp_path) == ["x.lprof"]


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for name in ("none.lprof", "."):
        done = lineprofiler("lines", name, cwd=tmp_path).expect(2)
        assert done.stderr.startswith(f"lineprofiler lines: {name}: ")
        assert done.stderr.count("\n") == 1
    assert lineprofiler("lines", cwd=tmp_path).expect(2).stderr.startswith("usage: lineprofiler lines")
    assert "--formal" in lineprofiler("lines", "--formal", "x", cwd=tmp_path).expect(2).stderr


def test_printed_merged_exported(tmp_path: Path) -> None:
    lprof.write(tmp_path / "a.lprof", example(tmp_path / "m.py"))
    lprof.write(tmp_path / "b.lprof", example(tmp_path / "m.py", factor=3))
    text = lineprofiler("lines", "a.lprof", "b.lprof", cwd=tmp_path).expect().stdout
    assert "8 calls" in text
    assert "2 processes" in text
    assert "return x" in text
    document = json.loads(lineprofiler("lines", "a.lprof", "b.lprof", "--format", "json", cwd=tmp_path).expect().stdout)
    [function] = document["functions"]
    assert (function["calls"], function["time_ns"], function["lines"][0]["awaited_ns"]) == (8, 3600, 140)
    assert function["threads"]["MainThread (0)"][0]["hits"] == 4
    rows = list(csv.DictReader(io.StringIO(lineprofiler("lines", "a.lprof", "--format", "csv", cwd=tmp_path).stdout)))
    assert [(r["line"], r["hits"], r["visits"], r["time_ns"], r["source"]) for r in rows] == [
        ("2", "2", "3", "400", "    x = n"),
        ("3", "2", "2", "500", "    return x"),
    ]
    assert lineprofiler("lines", "a.lprof", "-o", "out.txt", cwd=tmp_path).expect().stdout == ""
    assert "return x" in (tmp_path / "out.txt").read_text(encoding="utf-8")


def test_a_unit_of_all_times_is_named(tmp_path: Path) -> None:
    lprof.write(tmp_path / "a.lprof", example(tmp_path / "m.py"))
    for words in (["a.lprof"], ["--diff", "a.lprof", "a.lprof"]):
        assert "units" not in lineprofiler("lines", *words, cwd=tmp_path).expect().stdout
        shown = lineprofiler("lines", *words, "-u", "1e-6", cwd=tmp_path).expect().stdout
        assert shown.count("All times are in units of 1e-06 s.\n\n") == 1


def test_options_stand_where_they_like(tmp_path: Path) -> None:
    for name in ("a.lprof", "b.lprof", "-c.lprof"):
        lprof.write(tmp_path / name, example(tmp_path / "m.py"))
    both = lineprofiler("lines", "--top", "3", "--all", "a.lprof", "b.lprof", cwd=tmp_path).expect().stdout
    for words in (["a.lprof", "--top", "3", "b.lprof", "--all"], ["a.lprof", "--top=3", "--all", "--", "b.lprof"]):
        assert lineprofiler("lines", *words, cwd=tmp_path).expect().stdout == both
    assert "A = a.lprof" in lineprofiler("lines", "a.lprof", "--diff", "b.lprof", cwd=tmp_path).expect().stdout
    assert (
        lineprofiler("lines", "--top", "3", "--all", "--", "a.lprof", "-c.lprof", cwd=tmp_path).expect().stdout == both
    )
    for words in (["--all"], ["--all", "--"], ["--top", "x", "a.lprof"], ["a.lprof", "--no"]):
        done = lineprofiler("lines", *words, cwd=tmp_path).expect(2)
        assert done.stderr.startswith("usage: lineprofiler lines [options] FILE...\n")
        assert done.stderr.count("\n") == 3


def test_what_is_read_is_not_written_over(tmp_path: Path) -> None:
    """Neither the profile under any of its names, nor a file that a full disk or a mistake leaves no text for."""
    lprof.write(tmp_path / "a.lprof", example(tmp_path / "m.py"))
    lprof.write(tmp_path / "b.lprof", example(tmp_path / "m.py"))
    (tmp_path / "other.lprof").symlink_to("a.lprof")
    os.link(tmp_path / "a.lprof", tmp_path / "hard.lprof")
    before = (tmp_path / "a.lprof").read_bytes()
    for option in ("-o", "--html"):
        for path in ("a.lprof", "other.lprof", "hard.lprof", str(tmp_path / "a.lprof")):
            done = lineprofiler("lines", "b.lprof", "a.lprof", option, path, cwd=tmp_path).expect(2)
            assert f"lineprofiler lines: {path}: is read, and would be written over\n" in done.stderr
            assert (tmp_path / "a.lprof").read_bytes() == before
        done = lineprofiler("lines", "a.lprof", option, "/proc/x/y", cwd=tmp_path).expect(2)
        assert "/proc/x" in done.stderr
        assert done.stderr.count("\n") == 1
        assert ".lprof-" not in done.stderr
    (tmp_path / "out").write_text("kept")
    command = f"ulimit -f 0; exec '{Path(sys.executable).with_name('lineprofiler')}' lines a.lprof -o out"
    full = run_process(["bash", "-c", command], cwd=tmp_path)
    assert (full.returncode, full.stderr) == (2, "lineprofiler lines: out: File too large\n")
    assert (tmp_path / "out").read_text() == "kept"
    assert lineprofiler("lines", "a.lprof", "-o", "/dev/stdout", cwd=tmp_path).expect().stdout.count("return x") > 0


def test_a_dash_is_standard_output(tmp_path: Path) -> None:
    """And no file of that name appears, also where there is no text to be shown."""
    lprof.write(tmp_path / "a.lprof", example(tmp_path / "m.py"))
    (tmp_path / "p.py").write_text("print('ran')")
    shown = lineprofiler("lines", "a.lprof", "--top", "3", cwd=tmp_path).expect().stdout
    assert lineprofiler("lines", "a.lprof", "--top", "3", "-o", "-", cwd=tmp_path).expect().stdout == shown
    both = lineprofiler("lines", "a.lprof", "--top", "3", "-o", "-", "--html", "a.html", cwd=tmp_path).expect()
    assert both.stdout == shown
    for words in (["lines", "a.lprof", "--html", "-"], ["run", "--html", "-", "p.py"], ["run", "-o", "-", "p.py"]):
        done = lineprofiler(*words, cwd=tmp_path).expect(2)
        assert (done.stdout, "take" in done.stderr, "./- is one" in done.stderr) == ("", True, True)
    lineprofiler("run", "-q", "-o", "./-", "p.py", cwd=tmp_path).expect()
    assert {p.name for p in tmp_path.iterdir()} >= {"-", "a.lprof", "p.py"}


def test_the_table_of_line_profiler(tmp_path: Path) -> None:
    """What ``python -m line_profiler`` prints of the same file, with its options and its settings."""
    stats = LineStats({("a.py", 1, "f"): [(2, 1, 900)], ("b.py", 1, "g"): [(2, 1, 100)], ("c.py", 1, "h"): []}, 1e-9)
    stats.to_file(tmp_path / "a.lprof")

    def table(**options: Any) -> str:
        out = io.StringIO()
        stats.print(out, **options)
        return out.getvalue()

    def shown(*words: str) -> str:
        return lineprofiler("lines", *words, "a.lprof", cwd=tmp_path).expect().stdout

    assert shown("-mt") == table(output_unit=1e-6, summarize=True, sort=True)
    assert shown("-rtmz", "-u", "1e-3") == table(
        output_unit=1e-3, summarize=True, sort=True, stripzeros=True, rich=True
    )
    (tmp_path / "pyproject.toml").write_text("[tool.line_profiler.cli]\nskip-zero = true\nunit = 1\n")
    assert shown("-t") == table(output_unit=1, sort=True, stripzeros=True)
    for words in (("--diff", "-t", "a.lprof"), ("--format", "csv", "-m")):
        done = lineprofiler("lines", *words, "a.lprof", cwd=tmp_path).expect(2)
        assert "-t, -m and -r are for line_profiler's table" in done.stderr
    assert "--top must be 0 lines or more" in lineprofiler("lines", "--top", "-1", "a.lprof").expect(2).stderr
    for unit in ("0", "nan", "inf"):
        assert "--unit must be more than 0 s" in lineprofiler("lines", "-u", unit, "a.lprof").expect(2).stderr


def test_what_line_profiler_did_not_measure_is_null() -> None:
    done = lineprofiler("lines", DATA / "line-profiler-5.1.lprof", "--format", "json").expect()
    function = next(f for f in json.loads(done.stdout)["functions"] if f["function"] == "count")
    assert function["calls"] is None
    assert function["lines"][0]["self_ns"] is None
    assert function["source_note"] == "no source"
    text = lineprofiler("lines", DATA / "line-profiler-5.1.lprof").expect().stdout
    assert "self and awaited time are not in it" in text
    # Only the last sentence has the word: there is no column of it.
    assert text.count("self") == 1
    done = lineprofiler("lines", DATA / "line-profiler-5.1.lprof", "--format", "csv").expect()
    for row in csv.DictReader(io.StringIO(done.stdout)):
        assert (row["visits"], row["self_ns"], row["awaited_ns"]) == ("", "", "")
        assert int(row["hits"]) > 0


def test_a_table_of_nothing_has_its_columns(tmp_path: Path) -> None:
    lprof.write(tmp_path / "none.lprof", Profile())
    lprof.write(tmp_path / "a.lprof", example(tmp_path / "m.py"))
    for words in (["a.lprof"], ["--diff", "a.lprof", "a.lprof"]):
        full = lineprofiler("lines", "--format", "csv", *words, cwd=tmp_path).expect().stdout
        none = ["none.lprof" if word == "a.lprof" else word for word in words]
        assert lineprofiler("lines", "--format", "csv", *none, cwd=tmp_path).expect().stdout == full.splitlines(True)[0]


def test_a_page_and_a_file_are_both_written(tmp_path: Path) -> None:
    lprof.write(tmp_path / "a.lprof", example(tmp_path / "m.py"))
    words = ("a.lprof", "--html", "a.html", "--format", "json")
    assert lineprofiler("lines", *words, "-o", "a.json", cwd=tmp_path).expect().stdout == ""
    assert (tmp_path / "a.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["functions"]
    assert "the same file" in lineprofiler("lines", *words, "-o", "a.html", cwd=tmp_path).expect(2).stderr


def test_self_time_of_a_function_is_one_figure_everywhere(tmp_path: Path) -> None:
    """That of its lines, to the last digit: the function's own is rounded apart, and 0 where it began before us."""
    profile = example(tmp_path / "m.py")
    [function] = profile.functions.values()
    function.self_ns += 1
    lprof.write(tmp_path / "a.lprof", profile)
    lines = sum(line.self_ns for line in function.lines.values())
    document = json.loads(lineprofiler("lines", "a.lprof", "--format", "json", cwd=tmp_path).expect().stdout)
    assert document["functions"][0]["self_ns"] == lines
    assert f"self {lines}.0" in lineprofiler("lines", "-u", "1e-9", "a.lprof", cwd=tmp_path).expect().stdout
    [figures] = Stats(profile).values()
    assert round(figures.self_time * 1e9) == lines


def test_diff_follows_lines_that_moved(tmp_path: Path) -> None:
    lprof.write(tmp_path / "a.lprof", example(tmp_path / "m.py"))
    moved = example(tmp_path / "m.py", text="# new\n\ndef f(n):\n    y = 0\n    x = n\n    return x\n")
    function = Function(FunctionKey(str(tmp_path / "m.py"), "f", 3), 2, 5000)
    function.lines = {4: Line(2, 2, 10, 10), 5: Line(2, 2, 4000, 4000), 6: Line(2, 2, 450, 450)}
    moved.functions = {function.key: function}
    lprof.write(tmp_path / "b.lprof", moved)
    rows = json.loads(lineprofiler("lines", "--diff", "a.lprof", "b.lprof", "--format", "json", cwd=tmp_path).stdout)
    assert [(r["line_a"], r["line_b"], r["change_ns"], r["source"]) for r in rows["lines"]] == [
        (2, 5, 3700, "x = n"),
        (None, 4, 10, "y = 0"),
        (3, 6, -50, "return x"),
    ]
    text = lineprofiler("lines", "--diff", "a.lprof", "b.lprof", cwd=tmp_path).expect().stdout
    assert "self time: 800ns -> 4.5us  +457.5 %" in text
    assert text.index("Slower") < text.index("x = n") < text.index("only in B") < text.index("Faster")
    assert "two files, not 1" in lineprofiler("lines", "--diff", "a.lprof", cwd=tmp_path).expect(2).stderr


def several(path: Path, text: str, *functions: tuple[str, int, int, int]) -> Profile:
    """Functions as (name, first line, its one line that ran, ns)."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    profile = Profile(sources={str(path): from_bytes(path.read_bytes())})
    for name, first, number, spent in functions:
        function = profile.function(FunctionKey(str(path), name, first))
        function.calls, function.time_ns, function.self_ns = 1, spent, spent
        function.lines = {number: Line(1, 1, spent, spent)}
    return profile


PAIR = "class A:\n    @property\n    def x(self):\n        get()\n    @x.setter\n    def x(self, v):\n        put()\n"


def test_diff_tells_functions_of_one_name_apart(tmp_path: Path) -> None:
    names = ("A.x", 2, 4), ("A.x", 5, 7), ("<lambda>", 8, 8), ("<lambda>", 9, 9)
    text = PAIR + "f = lambda: 1\ng = lambda: 2\n"
    lprof.write(tmp_path / "a.lprof", several(tmp_path / "m.py", text, *((*n, 1000) for n in names)))
    spent = (1000, 1500, 900, 1000)
    moved = [(name, first + 1, number + 1, ns) for (name, first, number), ns in zip(names, spent, strict=True)]
    lprof.write(tmp_path / "b.lprof", several(tmp_path / "m.py", "# new\n" + text, *moved))
    done = lineprofiler("lines", "--diff", "a.lprof", "b.lprof", "--format", "json", cwd=tmp_path).expect()
    rows = json.loads(done.stdout)["lines"]
    assert [(r["line_a"], r["line_b"], r["ns_a"], r["ns_b"]) for r in rows] == [
        (7, 8, 1000, 1500),
        (4, 5, 1000, 1000),
        (9, 10, 1000, 1000),
        (8, 9, 1000, 900),
    ]
    text = lineprofiler("lines", "--diff", "a.lprof", "b.lprof", cwd=tmp_path).expect().stdout
    assert "self time: 4.0us -> 4.4us" in text


def test_diff_of_two_checkouts(tmp_path: Path) -> None:
    text = "def f():\n    g()\n"
    lprof.write(tmp_path / "a.lprof", several(tmp_path / "old" / "m.py", text, ("f", 1, 2, 1000)))
    lprof.write(tmp_path / "b.lprof", several(tmp_path / "new" / "m.py", text, ("f", 1, 2, 1500)))
    done = lineprofiler("lines", "--diff", "a.lprof", "b.lprof", "--format", "json", cwd=tmp_path).expect()
    assert [(r["line_a"], r["line_b"], r["change_ns"]) for r in json.loads(done.stdout)["lines"]] == [(2, 2, 500)]


def test_diff_of_relative_and_absolute_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kernprof keeps names as they were given, ours are absolute; what may be either is neither."""
    monkeypatch.chdir(tmp_path)
    text = "def f():\n    return 1\n"
    relative = several(Path("m.py"), text, ("f", 1, 2, 100))
    absolute = several(tmp_path / "sub" / "m.py", text, ("f", 1, 2, 300))
    [change] = compare(relative, absolute)
    assert (change.line_a, change.line_b, change.ns_a, change.ns_b) == (2, 2, 100, 300)
    [change] = compare(absolute, relative)
    assert (change.line_a, change.line_b, change.ns_a, change.ns_b) == (2, 2, 300, 100)
    absolute.merge(several(tmp_path / "m.py", text, ("f", 1, 2, 900)))
    assert len(compare(relative, absolute)) == len(compare(absolute, relative)) == 3


def test_versions_of_a_source_are_said(tmp_path: Path) -> None:
    """Figures of lines are added up by their numbers: whoever reads the sum is told that the texts differed."""
    for name, text in (("a", "def f():\n    g()\n"), ("b", "def f():\n    h()\n"), ("c", "def f():\n    g()\n")):
        lprof.write(tmp_path / f"{name}.lprof", several(tmp_path / "m.py", text, ("f", 1, 2, 1000)))
    said = "figures of different versions of this file are added up by line number"
    for files in (("a", "b"), ("a", "b", "c")):
        words = [f"{name}.lprof" for name in files]
        assert said in lineprofiler("lines", *words, cwd=tmp_path).expect().stdout
        [function] = json.loads(lineprofiler("lines", *words, "--format", "json", cwd=tmp_path).stdout)["functions"]
        assert function["source_note"] == said
    assert said not in lineprofiler("lines", "a.lprof", "c.lprof", cwd=tmp_path).expect().stdout


def test_diff_of_a_long_file_with_lines_that_are_alike(tmp_path: Path) -> None:
    """A text of many empty and equal lines is compared in moments; it took longer than anybody waits."""
    for name, above in (("a", ""), ("b", "# new\n" * 7)):
        text = above + "".join(f"x{n} = f()\n\n" if n % 2 else "pass\n\n" for n in range(8000))
        lines = [n + len(above.splitlines()) for n in (1, 8001, 15999)]
        profile = several(tmp_path / "m.py", text, ("<module>", 1, lines[0], 1000))
        [function] = profile.functions.values()
        function.lines.update({n: Line(1, 1, 1000, 1000) for n in lines})
        lprof.write(tmp_path / f"{name}.lprof", profile)
    done = lineprofiler("lines", "--diff", "a.lprof", "b.lprof", "--format", "json", cwd=tmp_path).expect()
    rows = json.loads(done.stdout)["lines"]
    assert [(r["line_a"], r["line_b"]) for r in rows] == [(n, n + 7) for n in (1, 8001, 15999)]


@pytest.mark.parametrize("number", [10**12, -(10**12)])
@pytest.mark.parametrize("first", [1, -5, 10**15])
def test_numbers_of_lines_that_no_source_has(tmp_path: Path, number: int, first: int) -> None:
    """A generator of code, or a forged file, numbers its lines as it likes; what is shown is what there is."""
    profile = several(tmp_path / "m.py", "def f():\n    g()\n", ("f", first, number, 1000))
    [function] = profile.functions.values()
    function.lines[2] = Line(1, 1, 10, 10)
    lprof.write(tmp_path / "a.lprof", profile)
    for words in ((), ("-t",), ("--all",), ("--html", "page.html"), ("--diff", "a.lprof")):
        text = lineprofiler("lines", *words, "a.lprof", cwd=tmp_path).expect().stdout
        assert len(text.splitlines()) < 50
        assert "--html" in words or "--diff" in words or str(number) in text


def test_names_that_are_no_utf_8_are_written_to_files(tmp_path: Path) -> None:
    profile = several(tmp_path / "m.py", "def f():\n    g()\n", ("f", 1, 2, 1000))
    key = FunctionKey(f"{tmp_path}/\udcff.py", "f", 1)
    profile.functions = {key: Function(key, 1, 1000, 1000, lines={2: Line(1, 1, 1000, 1000)})}
    lprof.write(tmp_path / "a.lprof", profile)
    for form in ("csv", "json", "text"):
        lineprofiler("lines", "--format", form, "-o", "out", "a.lprof", cwd=tmp_path).expect()
        assert "udcff.py" in (tmp_path / "out").read_text(encoding="utf-8")


def test_line_stats_add_up(tmp_path: Path) -> None:
    a = LineStats({("f.py", 1, "f"): [(2, 1, 10)]}, 1e-9)
    b = LineStats({("f.py", 1, "f"): [(2, 1, 10), (3, 4, 5)]}, 1e-6)
    total = a + b
    assert total.timings == {("f.py", 1, "f"): [(2, 2, 10_010), (3, 4, 5_000)]}
    assert total.unit == 1e-9
    assert a == LineStats(dict(a.timings), 1e-9)
    assert a != b
    total.to_file(tmp_path / "t.lprof")
    assert load_stats(tmp_path / "t.lprof") == total
    out = io.StringIO()
    total.print(stream=out, output_unit=1e-6)
    assert out.getvalue().startswith("Timer unit: 1e-06 s\n")


def test_line_stats_are_what_line_profiler_has(tmp_path: Path) -> None:
    timings = {("f.py", 1, "f"): [(2, 3, 10)], ("f.py", 9, "g"): []}
    stats = LineStats(timings, 1e-6)
    assert repr(stats) == f"LineStats({timings}, 1E-06)"
    stats.to_file(tmp_path / "a.lprof")
    again = LineStats.from_files(tmp_path / "a.lprof")
    assert (again, again.unit, again.timings) == (stats, 1e-6, timings)  # the unit is kept, and functions never called
    stats += LineStats({("f.py", 1, "f"): [(2, 1, 500)]}, 1e-9)
    assert (stats.timings["f.py", 1, "f"], stats.unit) == ([(2, 4, 10_500)], 1e-9)  # in the finer unit
    assert timings == again.timings  # nothing of the operands is changed
    assert again.__eq__(3) is NotImplemented

    whole, one = io.StringIO(), io.StringIO()
    show_text(timings, 1e-6, 1e-6, whole, True, True, True)  # options by position, as line_profiler takes them
    show_func("f.py", 1, "f", [(2, 3, 10)], 1e-6, 1e-6, one, config=False)
    assert whole.getvalue() == f"Timer unit: 1e-06 s\n\n{one.getvalue()}  0.00 seconds - f.py:1 - f\n"
    assert one.getvalue().startswith("Total time: 1e-05 s\nFile: f.py\n")
    assert "     2         3         10.0      3.3    100.0" in one.getvalue()
    show_func("f.py", 9, "g", [], 1e-6, stream=one, stripzeros=True)
    assert "Function: g" not in one.getvalue()


def test_dump_and_rows_of_a_profiler(tmp_path: Path) -> None:
    def work(n: int) -> int:
        total = 0
        for i in range(n):
            total += i
        return total

    profiler = LineProfiler(work)
    assert profiler.runcall(work, 50) == 1225
    profiler.dump_stats(tmp_path / "w.lprof")
    stats = load_stats(tmp_path / "w.lprof")
    [rows] = stats.timings.values()
    first = work.__code__.co_firstlineno
    assert [(line - first, hits) for line, hits, _ in rows] == [(1, 1), (2, 51), (3, 50), (4, 1)]
    assert stats.timings == profiler.get_stats().timings
    table = profiler.get_stats().rows()
    assert [(r["line"] - first, r["hits"], r["source"].strip()) for r in table][2] == (3, 50, "total += i")


CLAIMS = {
    "a number to remember by": b"\x80\x02Nr\xff\xff\xff\x7f.",
    "one as a text": b"Np2147483647\n.",
    "a byte array": b"\x80\x05\x96\x00\x00\x00\x40\x00\x00\x00\x00.",
    "bytes": b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xff.",
    "a text": b"\x80\x02X\x03\x00\x00\x00ab",
    "a whole number": b"\x80\x02\x8b\x00\x00\x00\x7f.",
    "a frame": b"\x80\x04\x95\x00\x00\x00\x00\x01\x00\x00\x00N.",
    "half a length": b"\x80\x02X\x03\x00",
    "a line without end": b"\x80\x02cline_profiler",
    "an object of an extension": b"\x80\x02\x82\x01.",
    "no end": b"\x80\x02N",
    "nothing": b"",
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_claims_more_than_it_has_is_not_for_the_unpickler_in_c(claim: str) -> None:
    assert not pickle_is_modest(CLAIMS[claim])


@pytest.mark.parametrize("protocol", range(1, pickle.HIGHEST_PROTOCOL + 1))
def test_honest_pickles_are(protocol: int) -> None:
    """Every kind of plain data, of every length class; the first 300 objects are remembered by two kinds of numbers."""
    numbers = [0, 255, 65_535, -1, 1 << 31, 1 << 63, 1 << 3000, -(1 << 70), 0.5, True, None]
    texts = ["", "t", "r\xff\xff\xff\x7f", "\u20ac" * 90, "x" * 70_000]
    data = [numbers, texts, [t.encode() for t in texts], {str(i): (i,) * (i % 5) for i in range(300)}, {1, 2}]
    if protocol < 5:
        data += [texts]
    else:
        data += [bytearray(70_000)]
    pickled = pickle.dumps(data, protocol)
    assert pickle_is_modest(pickled)
    assert pickle.loads(pickled) == data
    assert not pickle_is_modest(pickled[:-1])


def test_every_cut_of_a_file_is_known(tmp_path: Path) -> None:
    data = lprof.to_bytes(example(tmp_path / "m.py"))
    assert pickle_is_modest(data)
    assert not any(pickle_is_modest(data[:size]) for size in range(len(data)))


@pytest.mark.parametrize("put", [b"r\xff\xff\xff\x7f", b"p2147483647\n", b"p+02147483647\n"])
def test_a_number_to_remember_by_takes_no_memory(tmp_path: Path, put: bytes) -> None:
    """The unpickler in C would make room for two thousand million objects; here half a gigabyte is all there is."""
    path = tmp_path / "bomb.lprof"
    path.write_bytes(b"\x80\x02N" + put + b".")
    code = f"""
import resource
from lineprofiler.lines import lprof
in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (in_use + (512 << 20),) * 2)
try:
    lprof.read({str(path)!r})
except lprof.FormatError as error:
    print(error)
"""
    if "TESTS_SANITIZED" in os.environ:  # it has the address space for itself
        code = code.replace("resource.setrlimit", "(lambda *unused: None)")
    done = run_process([sys.executable, "-c", code]).expect()
    assert done.stdout == "it holds no line profile\n"
