"""The printed tables, to the letter, from figures that are given."""

from __future__ import annotations

import ast
import io
import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lineprofiler.lines import html, listing, settings, tables
from lineprofiler.lines.model import Function, FunctionKey, Line, Profile, merged
from lineprofiler.lines.screen import columns, cut, duration, highlight, inert, significant
from lineprofiler.lines.show import compare, render_changes
from lineprofiler.lines.source import from_text

TEXT = textwrap.dedent(
    """\
    def slow(n):
        total = 0
        for i in range(n):
            total += i * i
        return total


    def other():
        return 1
    """
)
PATH = "/srv/app/example.py"


@pytest.fixture
def profile() -> Profile:
    slow = Function(FunctionKey(PATH, "slow", 1), calls=1, time_ns=10_546_200, self_ns=10_546_200)
    slow.lines = {
        2: Line(1, 1, 1_000, 1_000),
        3: Line(20_313, 20_313, 4_901_800, 4_901_800),
        4: Line(20_312, 20_312, 5_642_400, 5_642_400),
        5: Line(1, 1, 1_000, 1_000),
    }
    other = Function(FunctionKey(PATH, "other", 8), calls=3, time_ns=2_300, self_ns=2_300)
    other.lines = {9: Line(3, 3, 2_300, 2_300)}
    return Profile({f.key: f for f in (slow, other)}, {PATH: from_text(TEXT)}, {"line": 31.4, "line_error": 2.2})


def printed(function: Callable[..., None], *args: object, **options: object) -> str:
    out = io.StringIO()
    function(*args, stream=out, **options)
    return out.getvalue()


FUNCTIONS = f"""\
{"=" * 100}
File: /srv/app/example.py
Function: slow at line 1
Total time: 10546.2 µs
{"=" * 100}
Line #   Hits       Time (µs)       Per Hit (µs)    % Time     Line Content
{"-" * 100}
4        20312      5642.4          0.3             53.5               total += i * i
3        20313      4901.8          0.2             46.5           for i in range(n):

{"=" * 100}
File: /srv/app/example.py
Function: other at line 8
Total time: 2.3 µs
{"=" * 100}
Line #   Hits       Time (µs)       Per Hit (µs)    % Time     Line Content
{"-" * 100}
9        3          2.3             0.8             100.0          return 1

"""


def test_table_of_functions(profile: Profile) -> None:
    options = {"min_time_us": 2.0, "top_n_lines": 2, "sort_by": "time"}
    assert printed(tables.print_functions, profile, **options) == FUNCTIONS


def test_orders_and_thresholds(profile: Profile) -> None:
    def numbers(**options: object) -> list[str]:
        given = {"min_time_us": 0.0, "top_n_lines": None, "sort_by": "line", **options}
        text = printed(tables.print_functions, profile, **given)
        return [line.split()[0] for line in text.splitlines() if line[:1].isdigit()]

    assert numbers() == ["2", "3", "4", "5", "9"]
    assert numbers(sort_by="hits") == ["3", "4", "2", "5", "9"]
    assert numbers(top_n_lines=1) == ["2", "9"]
    assert numbers(min_time_us=2.3) == ["3", "4", "9"]
    none = {"min_time_us": 1e9, "top_n_lines": None, "sort_by": "time"}
    assert printed(tables.print_functions, profile, **none) == "No profiling data above the threshold.\n"
    assert printed(tables.print_functions, Profile(), **none) == "No profiling data collected.\n"
    with pytest.raises(ValueError, match="sort_by 'name'"):
        numbers(sort_by="name")


TOP = f"""\
{"=" * 130}
Top 2 lines across all functions (sorted by time)
{"=" * 130}
File::Function{" " * 37}Line   Hits       Time (µs)     Per Hit (µs)   % Time   Line Content
{"-" * 130}
example.py::slow{" " * 35}4      20312      5642.4        0.3            53.5             total += i * i
example.py::slow{" " * 35}3      20313      4901.8        0.2            46.5         for i in range(n):
{"=" * 130}

"""


def test_table_of_top_lines(profile: Profile) -> None:
    options = {"root": Path("/srv/app"), "top_n": 2, "min_time_us": 0.0, "sort_by": "time"}
    assert printed(tables.print_top, profile, **options) == TOP
    assert printed(tables.print_top, Profile(), **options) == "No profiling data collected.\n"


REGIONS = f"""\
{"=" * 130}
Region: select  —  5000.0 µs, 50.0% of profiled time, 2 entries, 2500.0 µs each
{"=" * 130}
File::Function{" " * 37}Line   Hits       Time (µs)     Per Hit (µs)   % Region  Line Content
{"-" * 130}
/srv/app/example.py::other{" " * 25}9      3          2.3           0.8            0.0          return 1

"""


def test_table_of_regions(profile: Profile) -> None:
    part = Profile({k: f for k, f in profile.functions.items() if k.function_name == "other"}, profile.sources)
    options = {"root": None, "top_n": 10, "min_time_us": 0.0}
    assert printed(tables.print_regions, {"select": (2, 5_000_000, part)}, 10_000_000, **options) == REGIONS
    assert printed(tables.print_regions, {}, 1, **options) == "No regions recorded.\n"


THEIRS = """\
Timer unit: 1e-09 s

Total time: 0.0105462 s
File: /srv/app/example.py
Function: slow at line 1

Line #      Hits         Time  Per Hit   % Time  Line Contents
==============================================================
     1                                           def slow(n):
     2         1       1000.0   1000.0      0.0      total = 0
     3     20313    4901800.0    241.3     46.5      for i in range(n):
     4     20312    5642400.0    277.8     53.5          total += i * i
     5         1       1000.0   1000.0      0.0      return total

Total time: 2.3e-06 s
File: /srv/app/example.py
Function: other at line 8

Line #      Hits         Time  Per Hit   % Time  Line Contents
==============================================================
     8                                           def other():
     9         3       2300.0    766.7    100.0      return 1

  0.01 seconds - /srv/app/example.py:1 - slow
  0.00 seconds - /srv/app/example.py:8 - other
"""


def test_table_of_line_profiler(profile: Profile) -> None:
    assert printed(tables.print_line_profiler, profile, summarize=True) == THEIRS
    text = printed(tables.print_line_profiler, profile, sort=True, details=False, summarize=True)
    assert [line.split()[-1] for line in text.splitlines()[2:]] == ["other", "slow"]


def test_the_end_of_a_visit_is_shown_if_it_took_time(profile: Profile) -> None:
    function = next(iter(profile.functions.values()))
    function.lines[7] = Line(0, 1, 2_000, 2_000)  # of 10.5 ms
    assert "\n7 " not in printed(tables.print_functions, profile, min_time_us=0, top_n_lines=None, sort_by="line")
    function.lines[7] = Line(0, 1, 20_000, 20_000)
    text = printed(tables.print_functions, profile, min_time_us=0, top_n_lines=None, sort_by="line")
    assert "\n7        0          20.0            0.0             0.2" in text


def test_units_keep_three_digits(profile: Profile) -> None:
    text = printed(tables.print_line_profiler, profile, output_unit=1.0)
    assert text.startswith("Timer unit: 1 s\n")
    # 1 µs in seconds is not 0.0
    assert text.splitlines()[9].split()[:4] == ["2", "1", "1e-06", "1e-06"]
    assert [significant(v) for v in (0, 0.0123, 0.5, 12.345, 99.96, 1234.56)] == [
        "0",
        "0.0123",
        "0.5",
        "12.3",
        "100.0",
        "1234.6",
    ]


def test_a_line_of_no_time_shows_its_hits() -> None:
    function = Function(FunctionKey(PATH, "f", 1))
    function.lines = {1: Line(5, 5, 0, 0)}
    profile = Profile({function.key: function})
    text = printed(tables.print_line_profiler, profile)
    assert "     1         5          0.0      0.0      0.0  \n" in text
    assert "(no source)" in text
    assert printed(tables.print_line_profiler, profile, stripzeros=True) == text
    profile.function(FunctionKey(PATH, "never", 3))
    assert printed(tables.print_line_profiler, profile, stripzeros=True) == text
    assert "Function: never at line 3" in printed(tables.print_line_profiler, profile)


LISTING = """\
10.5ms in profiled code  (2 functions in 1 file)

Hottest lines by self time
 53.5 %  5.6ms  20,312  example.py:4  total += i * i
 46.5 %  4.9ms  20,313  example.py:3  for i in range(n):
  0.0 %  2.3us       3  example.py:9  return 1
  0.0 %  1.0us       1  example.py:2  total = 0
  0.0 %  1.0us       1  example.py:5  return total

slow  /srv/app/example.py:1
  10.5ms · self 10.5ms · 1 call
 line    hits   time   self  per hit     %
    1                                               def slow(n):
    2       1  1.0us  1.0us    1.0us   0.0              total = 0
    3  20,313  4.9ms  4.9ms    241ns  46.5 ███▌         for i in range(n):
    4  20,312  5.6ms  5.6ms    278ns  53.5 ████             total += i * i
    5       1  1.0us  1.0us    1.0us   0.0              return total

other  /srv/app/example.py:8
  2.3us · self 2.3us · 3 calls
 line  hits   time   self  per hit      %
    8                                              def other():
    9     3  2.3us  2.3us    767ns  100.0 ████████     return 1

Own cost is subtracted: 31 ± 2 ns a line.
"""


def test_listing(profile: Profile) -> None:
    assert listing.render(profile, listing.Layout()) == LISTING


def test_a_lambda_among_the_hottest_lines_is_told_from_its_function(profile: Profile) -> None:
    inner = Function(FunctionKey(PATH, "slow.<locals>.<lambda>#2", 4))
    inner.lines = {4: Line(1, 1, 900, 900)}
    profile.functions[inner.key] = inner
    text = listing.render(profile, listing.Layout(), functions=False)
    assert [line.split("example.py:")[1].split()[:2] for line in text.splitlines() if "total += i * i" in line] == [
        ["4", "total"],
        ["4", "<lambda>#2"],
    ]


def test_listing_folds_what_is_cold() -> None:
    text = "def f():\n" + "".join(f"    x{n} = {n}\n" for n in range(2, 60)) + "    return hot()\n"
    function = Function(FunctionKey(PATH, "f", 1), calls=1, time_ns=10**9)
    function.lines = {n: Line(1, 1, 1000, 1000) for n in range(2, 60)} | {60: Line(1, 1, 999_942_000, 999_942_000)}
    profile = Profile({function.key: function}, {PATH: from_text(text)})
    shown = listing.render(profile, listing.Layout(top=1))
    assert "    ⋮  57 lines, 0.0 %\n" in shown
    assert "x59 = 59" in shown
    assert "x30 = 30" not in shown
    assert "x30 = 30" in listing.render(profile, listing.Layout(top=1, everything=True))


def test_listing_fits_a_terminal_and_colours_it(profile: Profile) -> None:
    plain = listing.render(profile, listing.Layout(width=80))
    assert max(map(len, plain.splitlines())) <= 80
    colored = listing.render(profile, listing.Layout(width=80, color=True))
    assert "\x1b[35mfor\x1b[0m" in colored
    assert "\x1b[31m 53.5 %\x1b[0m" in colored
    import re

    assert re.sub(r"\x1b\[\d+m", "", colored) == plain


def test_wide_characters_take_two_columns() -> None:
    """And what joins the one before takes none: lines are cut, and columns stand, where a terminal has them."""
    assert [columns(text) for text in ("", "abc", "漢字", "e\u0301", "a\u200db", "\xad")] == [0, 3, 4, 1, 2, 1]
    assert [cut("漢字漢字", width) for width in (8, 7, 6, 5)] == ["漢字漢字", "漢字...", "漢...", "漢..."]
    assert cut("e\u0301" * 9, 6) == "e\u0301" * 3 + "..."
    path, source = "/srv/函数.py", "def f():\n    s = '" + "漢" * 80 + "'\n    return s\n"
    function = Function(FunctionKey(path, "f", 1), calls=1, time_ns=30_000, self_ns=30_000)
    function.lines = {2: Line(1, 1, 10_000, 10_000), 3: Line(1, 1, 10_000, 10_000)}
    other = Function(FunctionKey("/srv/a.py", "g", 1), calls=1, time_ns=10_000, self_ns=10_000)
    other.lines = {1: Line(1, 1, 10_000, 10_000)}
    sources = {path: from_text(source), "/srv/a.py": from_text("return g")}
    shown = Profile({f.key: f for f in (function, other)}, sources)
    text = listing.render(shown, listing.Layout(width=80))
    assert max(map(columns, text.splitlines())) in (79, 80)
    rows = [row for row in text.splitlines() if row.startswith(" 33.3 %")]
    assert [
        columns(row[: row.index(word)]) for row, word in zip(rows, ("return g", "s =", "return s"), strict=True)
    ] == [columns(rows[0][: rows[0].index("return g")])] * 3
    changes = render_changes(compare(Profile(), shown), (Profile(), shown), ("a", "b"), listing.Layout(width=120))
    assert len({columns(row.partition("  return ")[0]) for row in changes.splitlines() if "  return " in row}) == 1
    out = io.StringIO()
    tables.print_top(shown, root=None, top_n=9, min_time_us=0, sort_by="line", stream=out)
    assert {columns(row[: row.index(" 10.0 ")]) for row in out.getvalue().splitlines() if " 10.0 " in row} == {68}


def test_lines_that_are_cut_keep_their_colours() -> None:
    lines = ["def f():", "    return 'a long text' + g(", "        1)"]
    assert highlight(lines, ["def f():", "    return 'a lo...", "        1)"]) == [
        "\x1b[35mdef\x1b[0m \x1b[34mf\x1b[0m():",
        "    \x1b[35mreturn\x1b[0m \x1b[32m'a lo...\x1b[0m",
        "        \x1b[36m1\x1b[0m)",
    ]
    # What is no Python keeps its text, and what was understood before it its colour.
    assert highlight(["x = 1", "'open"])[0] == "x = \x1b[36m1\x1b[0m"


def test_each_source_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A project's functions come file by file in no order, and there are more files than anybody remembers."""
    files = [f"/srv/app/m{n}.py" for n in range(150)]
    sources = {path: from_text(f"{TEXT}# {path}\n") for path in files}
    functions = [
        Function(FunctionKey(path, name, first)) for name, first in (("slow", 1), ("other", 8)) for path in files
    ]
    for n, function in enumerate(functions):
        function.lines = {function.key.first_line + 1: Line(1, 1, 1000 + n, 1000 + n)}
    parsed = []
    whole = ast.parse
    monkeypatch.setattr(ast, "parse", lambda text: parsed.append(text) or whole(text))
    profile = Profile({f.key: f for f in functions}, sources)
    assert html.render(profile, "all").count('"name":"slow"') == len(files)
    assert listing.render(profile, listing.Layout(everything=True)).count("return total") == len(files)
    assert len(parsed) == len(files)


def test_awaited_time_has_a_column_where_there_is_some(profile: Profile) -> None:
    profile.functions[FunctionKey(PATH, "other", 8)].lines[9].awaited_ns = 7_000_000
    text = listing.render(profile, listing.Layout())
    assert text.count("awaited") == 1
    assert "7.0ms" in text


def test_threads_are_shown_apart_when_asked(profile: Profile) -> None:
    slow = profile.functions[FunctionKey(PATH, "slow", 1)]
    slow.threads = {"MainThread (0)": {4: Line(12, 12, 3, 3)}, "worker (1)": {4: Line(20_300, 20_300, 5, 5)}}
    text = listing.render(profile, listing.Layout(threads=True))
    assert text.index("in thread MainThread (0)") < text.index("in thread worker (1)")
    assert "worker" not in listing.render(profile, listing.Layout())


def test_what_was_not_measured_is_said() -> None:
    text = listing.render(Profile(notes=["no tool id was free"]), listing.Layout())
    assert text == "No line of the profiled code was executed.\nNot measured: no tool id was free\n"


def test_merging_adds_up(profile: Profile) -> None:
    total = merged([profile, profile])
    slow = total.functions[FunctionKey(PATH, "slow", 1)]
    assert (slow.calls, slow.time_ns, slow.lines[4].hits) == (2, 2 * 10_546_200, 2 * 20_312)
    assert total.processes == 2
    assert profile.functions[slow.key].lines[4].hits == 20_312


def test_streams_that_cannot_show_everything(profile: Profile) -> None:
    raw = io.BytesIO()
    ascii_only = io.TextIOWrapper(raw, encoding="ascii")
    tables.print_functions(profile, min_time_us=0.0, top_n_lines=None, sort_by="time", stream=ascii_only)
    ascii_only.flush()
    assert b"Total time: 10546.2 us" in raw.getvalue()


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert inert("a\x1b[2Jb\tc\u202e") == "a\\x1b[2Jb   c\\u202e"


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0ns"),
        (999.4, "999ns"),
        (999.6, "1.0us"),
        (100_000, "100.0us"),
        (1_500_000, "1.5ms"),
        (10**9, "1.00s"),
        (59_990_000_000, "59.99s"),
        (61 * 10**9, "1m 01s"),
        (3_660 * 10**9, "1h 01m"),
    ],
)
def test_durations(ns: float, text: str) -> None:
    assert duration(ns) == text


def test_columns_of_the_environment_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "COLUMNS", "77")
    assert listing.layout_for(io.StringIO()).width == 77


# --- config= of line_profiler's table ---

SETTINGS = """\
[tool.lineprofiler]
include = ["src/"]
[tool.line_profiler.kernprof]
line-by-line = true  # as -l
rich = false
verbose = 2
unit = 1e-3
outfile = "a # b.lprof"
prof-mod = [
    "a.b",  # a module
    # and
    'c',
]
[tool.line_profiler.write]
output_prefix = "it's"
"""
WIDTHS = """\
[tool.other]
line = 99
[tool.line_profiler.show.column_widths]  # least widths
line = 8
hits = 3
time = 20  # wide
[tool.line_profiler.show]
"""


def test_config_sets_the_widths_of_columns(profile: Profile, tmp_path: Path) -> None:
    path = tmp_path / "show.toml"
    path.write_text(WIDTHS)
    usual = printed(tables.print_line_profiler, profile)
    assert usual == printed(tables.print_line_profiler, profile, config=False)
    assert "\nLine #      Hits         Time  Per Hit   % Time  Line Contents\n" in usual
    wide = printed(tables.print_line_profiler, profile, config=path)
    # No column is narrower than line_profiler's own: its `hits` has 9, whatever is asked.
    assert "\n  Line #      Hits                 Time  Per Hit   % Time  Line Contents\n" in wide
    assert "\n       3     20313            4901800.0    241.3     46.5" in wide
    assert [line.split() for line in wide.splitlines() if "=" not in line] == [
        line.split() for line in usual.splitlines() if "=" not in line
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("colour = 3", "has no key 'colour': line, hits, time, perhit, percent"),
        ('hits = "wide"', "hits cannot be 'wide'"),
        ("hits = true", "hits cannot be True"),
        ("hits = 100000", "hits cannot be 100000"),
    ],
)
def test_a_config_with_mistakes_is_told(profile: Profile, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "show.toml"
    path.write_text(f"[tool.line_profiler.show.column_widths]\n{text}\ntime = 12\n")
    with pytest.warns(RuntimeWarning, match=said):
        shown = printed(tables.print_line_profiler, profile, config=path)
    assert shown == printed(tables.print_line_profiler, profile)


def test_a_config_that_is_not_there(profile: Profile, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.toml"):
        printed(tables.print_line_profiler, profile, config=tmp_path / "none.toml")
    path = tmp_path / "broken.toml"
    path.write_text("[tool.line_profiler.show]\nrich = @\n")
    with pytest.raises(ValueError, match=r"broken\.toml: "):
        printed(tables.print_line_profiler, profile, config=path)
    path.write_text("[tool.line_profiler]\nshow = 3\n")
    with pytest.warns(RuntimeWarning, match=r"\[tool.line_profiler.show.column_widths\] is no table"):
        printed(tables.print_line_profiler, profile, config=path)


def test_a_config_is_found(profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In $LINE_PROFILER_RC, else upwards from the working directory, line_profiler.toml before pyproject.toml."""
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b" / "c")
    monkeypatch.delenv("LINE_PROFILER_RC", raising=False)
    text = "[tool.line_profiler.show.column_widths]\nhits = {}\n"

    def hits(config: Any = None) -> int:
        return settings.settings("show.column_widths", config)["hits"]

    os.mkfifo("line_profiler.toml")  # is not waited for
    assert hits(False) == 9
    (tmp_path / "a" / "pyproject.toml").write_text(text.format(11))
    assert (hits(), hits(True), hits(False)) == (11, 11, 9)
    (tmp_path / "a" / "b" / "line_profiler.toml").write_text(
        "[tool.line_profiler.show]\nrich = @\n"
    )  # no TOML: passed over
    assert hits() == 11
    (tmp_path / "a" / "line_profiler.toml").write_text(text.format(12))
    assert hits() == 12
    (tmp_path / "other.toml").write_text(text.format(13))
    monkeypatch.setenv("LINE_PROFILER_RC", str(tmp_path / "other.toml"))
    assert (hits(), hits(tmp_path / "a" / "pyproject.toml")) == (13, 11)
    assert "\nLine #          Hits  " in printed(tables.print_line_profiler, profile)


def test_every_kind_of_value_of_a_config(tmp_path: Path) -> None:
    path = tmp_path / "all.toml"
    path.write_text(SETTINGS)
    found = settings.settings("kernprof", path)
    assert (found["line-by-line"], found["rich"], found["verbose"]) == (True, False, 2)
    assert (found["unit"], found["outfile"], found["prof-mod"]) == (1e-3, "a # b.lprof", ["a.b", "c"])
    assert settings.settings("write", path)["output_prefix"] == "it's"
    assert settings.settings("setup", path) == settings.settings("setup", False)
