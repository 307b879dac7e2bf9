"""``lineprofiler run``: runs a program in a Python of its own, profiled from its first line, and reports at its end.

The program is run by Python itself, so that ``__main__``, argv, path, status and tracebacks are what they are without
us; a sitecustomize in front of the path (see `hook`) starts the profiler in it and in every Python that it starts. This
process waits, hands signals on, merges what they left, and ends as the program did.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from lineprofiler.config import find_project_root
from lineprofiler.lines import listing, lprof, screen
from lineprofiler.lines.child import ENVIRONMENT
from lineprofiler.lines.command import Parser, UsageError, usage_error
from lineprofiler.lines.model import Profile
from lineprofiler.lines.shared import read_folder
from lineprofiler.lines.tables import print_line_profiler

HANDED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT)
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
    add("-s", "--setup", metavar="FILE", help="Python file to run before the program, unprofiled")
    add("-o", "--output", "--outfile", metavar="FILE", help="write an .lprof file (with -l: default SCRIPT.lprof)")
    add("--html", metavar="PATH", help="write the annotated source as a page")
    add("--live", metavar="DIR", help="keep each process's figures in this folder, for `lineprofiler lines DIR`")
    add("--top", type=int, default=25, metavar="N", help="how many lines are listed (25)")
    add("--functions", action="store_true", help="print each function's lines as well")
    add("--all", action="store_true", help="with --functions: fold nothing, leave no function out")
    add("--threads", action="store_true", help="with --functions: also the lines of each thread")
    add("-v", "--view", action="count", default=0, help="with -l: print line_profiler's table")
    add("-u", "--unit", type=float, metavar="SECONDS", help="unit of all times (each in its own; with -l -v: 1e-6)")
    add("-z", "--skip-zero", action="store_true", help="leave out functions that took no time")
    add("-q", "--quiet", action="store_true", help="print nothing but what the program prints")
    return found


def split(arguments: list[str], options: argparse.ArgumentParser) -> tuple[list[str], list[str]]:
    """Our options, and the program with its arguments (beginning with -m or -c, or the script)."""
    valued = {name for action in options._actions if action.nargs is None for name in action.option_strings}
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
        at += 2 if word in valued else 1
    return arguments, []


def main(arguments: list[str]) -> int:
    """Runs the program; its exit code, 2 for wrong usage. A signal that killed the program kills this process, too."""
    options = parser()
    ours, program = split(arguments, options)
    try:
        given = options.parse_args(ours)
        _check(given, program)
    except UsageError as error:
        return usage_error(options, error)
    try:
        folder = _folder(given.live)
    except OSError as error:
        return usage_error(options, UsageError(f"{given.live}: {error.strerror}"))
    try:
        status = _run(program, _environment(given, program, folder))
        profile = read_folder(folder)
    finally:
        if given.live is None:
            shutil.rmtree(folder, ignore_errors=True)
    try:
        _report(given, program, profile, status)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        sys.stderr.write(f"lineprofiler run: {error.filename or 'output'}: {error.strerror}\n")
        return 2
    return _ended(status)


def _check(given: argparse.Namespace, program: list[str]) -> None:
    if not program or (program[0] in ("-m", "-c") and len(program) < 2):
        raise UsageError("no program is given")
    if given.setup is not None and not os.path.isfile(given.setup):
        raise UsageError(f"{given.setup}: no such file")
    if given.unit is not None and not given.unit > 0:
        raise UsageError("--unit must be more than 0 seconds")
    for path in (given.output, given.html):
        if path is not None and not os.path.isdir(os.path.dirname(os.path.abspath(path))):
            raise UsageError(f"{path}: no such folder")


def _folder(live: str | None) -> str:
    """Where the processes leave their figures: an empty folder that is nobody else's."""
    if live is None:
        return tempfile.mkdtemp(prefix="lineprofiler-")
    os.makedirs(live, mode=0o700, exist_ok=True)
    os.chmod(live, 0o700)
    for name in os.listdir(live):
        if name.endswith((".lines", ".lprof")):
            os.unlink(os.path.join(live, name))
    return os.path.abspath(live)


def _environment(given: argparse.Namespace, program: list[str], folder: str) -> dict[str, str]:
    targets = [t for each in given.prof_mod for t in each.split(",") if t]
    settings = {
        "folder": folder,
        "root": str(_root(program)),
        "targets": [os.path.abspath(t) if os.path.exists(t) else t for t in targets],
        "whole": not given.line_by_line,
        "builtin": given.line_by_line or given.builtin,
        "setup": os.path.abspath(given.setup) if given.setup is not None else None,
    }
    hook = str(Path(__file__).with_name("hook"))
    before = os.environ.get("PYTHONPATH")
    path = hook if not before else f"{hook}{os.pathsep}{before}"
    return {**os.environ, "PYTHONPATH": path, ENVIRONMENT: json.dumps(settings)}


def _root(program: list[str]) -> Path:
    """The project of the program: around its script, or the package of its module."""
    if program[0] not in ("-m", "-c"):
        return find_project_root(program[0] if os.path.exists(program[0]) else None)
    if program[0] == "-m":
        before = list(sys.path)
        sys.path.insert(0, os.getcwd())
        try:
            spec = find_spec(program[1].split(".")[0])  # the package alone: nothing of it is imported
        except (ImportError, ValueError):
            spec = None
        finally:
            sys.path[:] = before
        places = [spec.origin] if spec is not None and spec.origin and os.path.isfile(spec.origin) else []
        places += list(spec.submodule_search_locations or []) if spec is not None else []
        if places:
            return find_project_root(places[0])
    return find_project_root()


def _run(program: list[str], environment: dict[str, str]) -> int:
    """The program's status as `os.waitpid` has it."""
    command = [sys.executable, *vars(subprocess)["_args_from_interpreter_flags"](), *program]
    watched = {*HANDED_ON, signal.SIGCHLD}
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        child = os.posix_spawn(sys.executable, command, environment, setsigmask=before)
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid == child:
                return status
            info = signal.sigwaitinfo(watched)
            if info.si_signo != signal.SIGCHLD and info.si_code != _FROM_KERNEL:
                os.kill(child, info.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _report(given: argparse.Namespace, program: list[str], profile: Profile, status: int) -> None:
    output = given.output
    if given.line_by_line and output is None:
        name = program[1] if program[0] == "-m" else "stdin" if program[0] in ("-", "-c") else program[0]
        output = f"{os.path.basename(name)}.lprof"
    if profile.is_empty and os.waitstatus_to_exitcode(status) != 0:
        return  # what went wrong was said by Python
    if output is not None:
        lprof.write(output, profile)
        if not given.quiet:
            screen.emit(f"Wrote profile results to {output!r}\n")
    if given.html is not None:
        from lineprofiler.lines.html import write as write_page

        write_page(given.html, profile, " ".join(program), _root(program))
    if given.quiet or (given.line_by_line and not given.view and not given.functions):
        return
    if given.view:
        print_line_profiler(profile, output_unit=given.unit or 1e-6, stripzeros=given.skip_zero)
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
    screen.emit("\n" + listing.render(profile, layout, functions=given.functions))


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
