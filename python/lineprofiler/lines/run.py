"""``lineprofiler run``: runs a program in a Python of its own, profiled from its first line, and reports at its end.

The program is run by Python itself, so that ``__main__``, argv, path, status and tracebacks are what they are without
us; a sitecustomize in front of the path (see `hook`) starts the profiler in it and in every Python that it starts. This
process waits, hands signals on, merges what they left, and ends as the program did.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

from lineprofiler.config import find_project_root
from lineprofiler.lines import listing, lprof, screen
from lineprofiler.lines.child import ENVIRONMENT
from lineprofiler.lines.command import Parser, UsageError, usage_error, words_taken
from lineprofiler.lines.model import Profile
from lineprofiler.lines.project import is_installed
from lineprofiler.lines.settings import settings
from lineprofiler.lines.shared import read_folder
from lineprofiler.lines.source import from_disk, imported_names
from lineprofiler.lines.tables import print_line_profiler

HANDED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT)
_FIGURES = re.compile(r"[0-9]+-[0-9a-f]{8}(-[0-9]+\.lprof|\.lines)|[0-9]+-[0-9]+\.lprof")
"""Names of the files that processes leave, see `child.Run.leave`."""
_LONGEST_WAIT_S = 3600.0
_FROM_KERNEL = 0x80
"""si_code of a signal that the terminal sent: to the whole group, the program has it already."""


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="lineprofiler run",
        usage="lineprofiler run [options] (SCRIPT | -m MODULE | -c CODE) [args...]",
        description="Runs a Python program and prints which of its lines took the time. Without -l and -p every "
        "function of the program's project is profiled.",
    )
    add = found.add_argument
    add("-l", "--line-by-line", action="store_true", help="profile functions that are decorated with @profile only")
    add("-b", "--builtin", action="store_true", help="put `profile` into the builtins (-l does so, too)")
    add(
        "-p",
        "--prof-mod",
        action="append",
        default=[],
        metavar="LIST",
        help="profile these modules, functions and paths only; separated by commas, may be given again",
    )
    add("--prof-imports", action="store_true", help="with -p SCRIPT: profile what the script imports as well")
    add("-s", "--setup", metavar="FILE", help="Python file to run before the program, unprofiled")
    add("-o", "--output", "--outfile", metavar="FILE", help="write an .lprof file (with -l: default SCRIPT.lprof)")
    add("-i", "--output-interval", type=float, metavar="SECONDS", help="write that file this often while it runs, too")
    add("--html", metavar="PATH", help="write the annotated source as a page")
    add("--live", metavar="DIR", help="keep each process's figures in this folder, for `lineprofiler lines DIR`")
    add("--top", type=int, default=25, metavar="N", help="how many lines are listed (25)")
    add("--functions", action="store_true", help="print each function's lines as well")
    add("--all", action="store_true", help="with --functions: fold nothing, leave no function out")
    add("--threads", action="store_true", help="with --functions: also the lines of each thread")
    add("-v", "--view", action="count", default=0, help="with -l: print line_profiler's table")
    add("-r", "--rich", action="store_true", help="with -v: colour the source")
    add("--summarize", action="store_true", help="with -v: a line for each function at the end")
    add("-u", "--unit", type=float, metavar="SECONDS", help="unit of all times (each in its own; with -l -v: 1e-6)")
    add("-z", "--skip-zero", action="store_true", help="leave out functions that took no time")
    add("-q", "--quiet", action="store_true", help="print nothing but what the program prints")
    add("--config", metavar="FILE", help="TOML file with [tool.line_profiler.kernprof] (default: the one found)")
    add("--no-config", action="store_true", help="use no such file")
    return found


def split(arguments: list[str], options: argparse.ArgumentParser) -> tuple[list[str], list[str]]:
    """Our options, and the program with its arguments (beginning with -m or -c, or the script)."""
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if word == "--":
            return arguments[:at], arguments[at + 1 :]
        if word.startswith(("-m", "-c")) and not word.startswith("--"):
            if len(word) > 2:
                return arguments[:at], [word[:2], word[2:], *arguments[at + 1 :]]
            return arguments[:at], arguments[at:]
        if not word.startswith("-") or word == "-":
            return arguments[:at], arguments[at:]
        at += words_taken(word, options)
    return arguments, []


def main(arguments: list[str]) -> int:
    """Runs the program; its exit code, 2 for wrong usage. A signal that killed the program kills this process, too."""
    options = parser()
    ours, program = split(arguments, options)
    try:
        given = options.parse_args(ours)
        program = _found(program)
        _settle(given, program)
        _check(given, program)
    except UsageError as error:
        return usage_error(options, error)
    try:
        folder = _folder(given.live)
    except UsageError as error:
        return usage_error(options, error)
    except OSError as error:
        return usage_error(options, UsageError(f"{given.live}: {error.strerror}"))
    try:
        status = _run(program, _environment(given, program, folder), _Meanwhile(given, folder))
        profile = read_folder(folder)
    finally:
        if given.live is None:
            shutil.rmtree(folder, ignore_errors=True)
    if profile.is_empty and os.waitstatus_to_exitcode(status) != 0:
        return _ended(status)  # what went wrong was said by Python
    written = True
    try:
        written = _write(given, program, profile)
        _print(given, program, profile)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        written = _failed("output", error)
    return _ended(status) if written else 2


def _found(program: list[str]) -> list[str]:
    """The program with its script looked up in PATH, as shells do, where there is no file of that name."""
    if not program or program[0].startswith("-") or os.sep in program[0] or os.path.exists(program[0]):
        return program
    return [shutil.which(program[0]) or program[0], *program[1:]]


def _settle(given: argparse.Namespace, program: list[str]) -> None:
    """Adds what line_profiler's settings say, and the default name of the file that is written."""
    with warnings.catch_warnings(record=True) as wrong:
        warnings.simplefilter("always")
        try:
            table = settings("kernprof", False if given.no_config else given.config)
        except ValueError as error:
            raise UsageError(str(error)) from None
        except OSError as error:
            raise UsageError(f"{given.config}: {error.strerror}") from None
    for each in wrong:
        sys.stderr.write(f"lineprofiler run: {each.message}\n")
    for name in ("line-by-line", "builtin", "rich", "skip-zero", "summarize", "prof-imports"):
        attribute = name.replace("-", "_")
        setattr(given, attribute, getattr(given, attribute) or table[name])
    given.view = given.view or max(table["verbose"], 0)
    given.quiet = given.quiet or table["verbose"] < 0
    given.setup = given.setup or table["setup"] or None
    given.output = given.output or table["outfile"] or None
    given.prof_mod = [*table["prof-mod"], *given.prof_mod]
    if given.output_interval is None:
        given.output_interval = table["output-interval"] or None
    given.view_unit = given.unit or table["unit"]
    if given.line_by_line and given.output is None and program:
        name = "".join(program[1:2]) if program[0] == "-m" else "stdin" if program[0] in ("-", "-c") else program[0]
        given.output = f"{os.path.basename(os.path.abspath(name))}.lprof"  # of a folder: its own name


def _check(given: argparse.Namespace, program: list[str]) -> None:
    if not program or (program[0] in ("-m", "-c") and len(program) < 2):
        raise UsageError("no program is given")
    if given.setup is not None and not os.path.isfile(given.setup):
        raise UsageError(f"{given.setup}: no such file")
    if given.top < 0:
        raise UsageError("--top must be 0 lines or more")
    if given.unit is not None and not 0 < given.unit < math.inf:
        raise UsageError("--unit must be more than 0 seconds, and finite")
    if given.output_interval is not None and not 0 < given.output_interval < math.inf:
        raise UsageError("--output-interval must be more than 0 seconds, and finite")
    if given.output_interval is not None and given.output is None:
        raise UsageError("--output-interval needs a file to write: -o FILE")
    for path in (given.output, given.html):
        if path == "-":  # stdout is the program's
            raise UsageError("-o and --html take the name of a file; ./- is one")
        if path is not None and not os.path.isdir(os.path.dirname(os.path.abspath(path))):
            raise UsageError(f"{path}: no such folder")
        if path is not None and os.path.isdir(path):
            raise UsageError(f"{path}: is a folder")
        if path is not None and not _can_be_written(os.path.abspath(path)):
            raise UsageError(f"{path}: cannot be written; -o and --html name another place")
        if path is not None and any(lprof.is_same_file(path, each) for each in (_place(program), given.setup) if each):
            raise UsageError(f"{path}: is what is run, and would be written over")
    if given.output is not None and given.html is not None and lprof.is_same_file(given.output, given.html):
        raise UsageError(f"{given.html}: -o and --html name the same file")


def _can_be_written(path: str) -> bool:
    """Whether a file can be put there, as far as can be told before the program has run."""
    return lprof.is_stream(path) or os.access(os.path.dirname(os.path.realpath(path)), os.W_OK)


def _folder(live: str | None) -> str:
    """Where the processes leave their figures: a folder that is nobody else's, without those of an earlier run.

    Raises UsageError for another user's folder, and for one that others may enter with more in it than figures.
    """
    if live is None:
        return tempfile.mkdtemp(prefix="lineprofiler-")
    folder = os.path.realpath(live)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    names = os.listdir(folder)
    info = os.stat(folder)
    if info.st_uid != os.geteuid():
        raise UsageError(f"{live}: this folder is another user's")
    if info.st_mode & 0o077:
        if not all(_FIGURES.fullmatch(name) for name in names):
            raise UsageError(f"{live}: others may enter this folder, and there is more in it than figures of lines")
        os.chmod(folder, 0o700)
    for name in filter(_FIGURES.fullmatch, names):
        os.unlink(os.path.join(folder, name))
    return folder


def _environment(given: argparse.Namespace, program: list[str], folder: str) -> dict[str, str]:
    targets = _targets(given, program)
    settings = {
        "folder": folder,
        "root": str(_root(program)),
        "targets": targets,
        "whole": not given.line_by_line,
        "builtin": given.line_by_line or given.builtin,
        "setup": os.path.abspath(given.setup) if given.setup is not None else None,
    }
    hook = str(Path(__file__).with_name("hook"))
    before = os.environ.get("PYTHONPATH")
    path = hook if not before else f"{hook}{os.pathsep}{before}"
    return {**os.environ, "PYTHONPATH": path, ENVIRONMENT: json.dumps(settings)}


def _targets(given: argparse.Namespace, program: list[str]) -> list[str]:
    """What -p names, files by absolute paths; an empty one takes back what was named before."""
    found: list[str] = []
    for each in given.prof_mod:
        if not each:
            found.clear()
        found += [each] if os.path.exists(each) else [t for t in each.split(",") if t]
    targets = [os.path.abspath(t) if os.path.exists(t) else t for t in found]
    if given.prof_imports and program[0] not in ("-m", "-c", "-") and os.path.abspath(program[0]) in targets:
        targets += imported_names(from_disk(program[0]))
    for target in targets:
        if not os.path.isabs(target) and not _is_module(target.split(".")[0], program):
            sys.stderr.write(f"lineprofiler run: -p {target}: no such module or path\n")
    return targets


def _is_module(name: str, program: list[str]) -> bool:
    """Whether the program can import a module of this name, as far as can be told before it runs."""
    folder = os.getcwd() if program[0] in ("-m", "-c", "-") else os.path.dirname(os.path.abspath(program[0]))
    return name == "__main__" or _spec(name, folder) is not None


def _spec(name: str, folder: str) -> ModuleSpec | None:
    before = list(sys.path)
    sys.path.insert(0, folder)
    try:
        return find_spec(name)  # a module without a package around it: nothing is imported for it
    except (ImportError, ValueError):
        return None
    finally:
        sys.path[:] = before


def _root(program: list[str]) -> Path:
    """The project of the program: around its script or the package of its module. One that is installed (pytest,
    gunicorn) runs code of a project of the user's, who is in it."""
    place = _place(program)
    return find_project_root(None if place is None or is_installed(place) else place)


def _place(program: list[str]) -> str | None:
    """The file or folder of the program; None if it has none, or none is found."""
    if program[0] not in ("-m", "-c"):
        return program[0] if os.path.exists(program[0]) else None
    spec = _spec(program[1].split(".")[0], os.getcwd()) if program[0] == "-m" else None
    if spec is None:
        return None
    if spec.origin and os.path.isfile(spec.origin):
        return spec.origin
    return next(iter(spec.submodule_search_locations or []), None)


class _Meanwhile:
    """Writes the file of the results while the program runs, at the interval that was asked for."""

    def __init__(self, given: argparse.Namespace, folder: str) -> None:
        self._every: float | None = given.output_interval
        self._output: str | None = given.output
        self._folder = folder
        self._next = time.monotonic() + (self._every or 0.0)

    def rest_s(self) -> float | None:
        """Seconds until it is to be written next; None: never."""
        return None if self._every is None else min(max(self._next - time.monotonic(), 0.0), _LONGEST_WAIT_S)

    def write(self) -> None:
        if self._every is None or self._output is None or time.monotonic() < self._next:
            return
        with contextlib.suppress(OSError):  # it is said at the end, if it still is so
            lprof.write(self._output, read_folder(self._folder))
        self._next = time.monotonic() + self._every


def _started(command: list[str], environment: dict[str, str], mask: set[int | signal.Signals]) -> int:
    """Starts the program with the signals that we were started with; its number."""
    if signal.getsignal(signal.SIGCHLD) != signal.SIG_IGN:
        return os.posix_spawn(sys.executable, command, environment, setsigmask=mask)
    # Who ignores SIGCHLD is not told that a child has ended, nor how. The program is to ignore it all the same, which
    # posix_spawn cannot ask for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.execve(sys.executable, command, environment)
        finally:
            os._exit(127)
    return child


def _run(program: list[str], environment: dict[str, str], meanwhile: _Meanwhile) -> int:
    """Runs it; its status as `os.waitpid` has it."""
    command = [sys.executable, *vars(subprocess)["_args_from_interpreter_flags"](), *program]
    watched = {*HANDED_ON, signal.SIGCHLD}
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        child = _started(command, environment, before)
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid == child:
                return status
            rest = meanwhile.rest_s()
            info = signal.sigwaitinfo(watched) if rest is None else signal.sigtimedwait(watched, rest)
            if info is None:
                meanwhile.write()
            elif info.si_signo != signal.SIGCHLD and info.si_code != _FROM_KERNEL:
                os.kill(child, info.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _write(given: argparse.Namespace, program: list[str], profile: Profile) -> bool:
    """Writes the files that were asked for; False if one could not be, which is said: what is printed comes even so."""
    written = True
    if given.output is not None:
        try:
            lprof.write(given.output, profile)
        except OSError as error:
            written = _failed(given.output, error)
        if written and not given.quiet:
            screen.emit(f"Wrote profile results to {given.output!r}\n")
    if given.html is not None:
        from lineprofiler.lines.html import write as write_page

        try:
            write_page(given.html, profile, " ".join(program), _root(program))
        except OSError as error:
            written = _failed(given.html, error)
    return written


def _failed(what: str, error: OSError) -> bool:
    sys.stderr.write(f"lineprofiler run: {what}: {error.strerror}\n")
    return False


def _print(given: argparse.Namespace, program: list[str], profile: Profile) -> None:
    if given.quiet or (given.line_by_line and not given.view and not given.functions):
        return
    if given.view:
        print_line_profiler(
            profile,
            output_unit=given.view_unit,
            stripzeros=given.skip_zero,
            summarize=given.summarize,
            rich=given.rich,
            config=False if given.no_config else given.config,
        )
        return
    layout = listing.layout_for(
        None,
        top=given.top,
        unit_s=given.unit,
        everything=given.all,
        threads=given.threads,
        skip_zero=given.skip_zero,
        root=_root(program),
    )
    screen.emit("\n" + listing.render(profile, layout, functions=given.functions, what=_what(given, program)))


def _what(given: argparse.Namespace, program: list[str]) -> str:
    """What was to be profiled, in the sentence that is all if no line of it ran."""
    if given.prof_mod:
        return "of what -p names"
    if given.line_by_line:
        return "of a function that is decorated with @profile"
    return f"of the project {screen.inert(str(_root(program)))} (-p names other code)"


def _ended(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), -code)
    return 128 - code
