"""Every tool that programs are measured under, each at its usual settings: how it is started, and what it must leave.

One line a way. A tool is used as its own documentation does first: from the command line where it has one, with its
defaults, a file for its result. `lines` of a whole project and of one function are apart, since that choice is the
user's. What a way must leave behind proves that the tool did its work: a tool that silently records nothing would
be the quickest of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PROGRAM_WORDS = ("{main}", "{program}", "{mode}", "{size}", "{result}")


@dataclass(frozen=True)
class Way:
    key: str
    tool: str  # as in the table
    what: str  # that it tells
    side: str  # the environment: ours, peer, tools
    before: tuple[str, ...]  # words of the command line in front of the program's
    mode: str = "bare"  # of programs/main.py
    leaves: str = ""  # a glob below the working directory; not empty afterwards
    names_hot: bool = False  # and the name of the function that matters is in there
    needs: str = ""  # the requirement that it comes with

    def command(self, venv: Path, words: dict[str, str]) -> list[str]:
        known = {**words, "mode": self.mode, "bin": str(venv / "bin"), "python": str(venv / "bin" / "python")}
        return [word.format(**known) for word in (*self.before, *PROGRAM_WORDS)]


BARE = Way("bare", "nothing", "", "ours", ("{python}",))
WAYS = (
    BARE,
    Way("ours_phases", "lineprofiler: phases", "time, waiting, work of named steps; samples of CPU, memory", "ours",
        ("{python}",), "phases", "profile/workers/*/*.snap"),
    Way("peer_phases", "with-line-profiler: phases", "the same, but what only we have", "peer",
        ("{python}",), "phases", "profile/**/*.json"),
    Way("ours_function", "lineprofiler: lines of one function", "hits and time of its lines", "ours",
        ("{python}",), "ours-function", "lines.lprof", True),
    Way("line_profiler_function", "line_profiler: lines of one function", "the same", "tools",
        ("{python}",), "line_profiler-function", "lines.lprof", True, "line_profiler"),
    Way("peer_function", "with-line-profiler: lines of one function", "the same", "peer",
        ("{python}",), "peer-function", "lines.lprof", True),
    Way("ours_project", "lineprofiler: lines of the project", "hits and time of every line", "ours",
        ("{bin}/lineprofiler", "run", "-o", "lines.lprof"), "bare", "lines.lprof", True),
    Way("line_profiler_project", "line_profiler: lines of the project", "the same", "tools",
        ("{bin}/kernprof", "-l", "-p", "{modules}", "-p", "{main}", "-o", "lines.lprof"), "bare", "lines.lprof", True,
        "line_profiler"),
    Way("peer_project", "with-line-profiler: lines of the project", "the same", "peer",
        ("{python}",), "peer-project", "lines.lprof", True),
    Way("cprofile", "cProfile", "calls and time of every function", "tools",
        ("{python}", "-m", "cProfile", "-o", "profile.out"), "bare", "profile.out", True),
    Way("yappi", "yappi", "calls and CPU time of every function", "tools",
        ("{bin}/yappi", "-o", "profile.out"), "bare", "profile.out", True, "yappi"),
    Way("viztracer", "VizTracer", "a timeline of every call (the last million)", "tools",
        ("{bin}/viztracer", "-o", "trace.json", "--"), "bare", "trace.json", False, "viztracer"),
    Way("pyinstrument", "pyinstrument", "stacks, sampled each ms", "tools",
        ("{bin}/pyinstrument", "-o", "stacks.txt"), "bare", "stacks.txt", False, "pyinstrument"),
    Way("py_spy", "py-spy", "stacks, sampled from outside 100 times a second", "tools",
        ("{bin}/py-spy", "record", "-o", "stacks.svg", "--", "{python}"), "bare", "stacks.svg", False, "py-spy"),
    Way("scalene", "Scalene", "CPU, memory and copying of lines, sampled", "tools",
        ("{bin}/scalene", "run", "-o", "scalene.json"), "bare", "scalene.json", False, "scalene"),
    Way("memray", "memray", "every allocation with its stack", "tools",
        ("{bin}/memray", "run", "-o", "memray.bin"), "bare", "memray.bin", False, "memray"),
    Way("tracemalloc", "tracemalloc", "allocations by line", "tools",
        ("{python}", "-X", "tracemalloc"), "bare", "allocations.txt"),
    Way("mprof", "memory_profiler: mprof", "resident memory, sampled 10 times a second", "tools",
        ("{bin}/mprof", "run", "-E", "-o", "memory.dat", "{python}"), "bare", "memory.dat", False, "memory-profiler"),
    Way("memory_profiler_function", "memory_profiler: lines of one function", "resident memory after a line", "tools",
        ("{python}",), "memory_profiler-function", "memory.txt", True, "memory-profiler"),
)  # fmt: skip
