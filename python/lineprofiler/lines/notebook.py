"""IPython: ``%load_ext lineprofiler``, then ``%lprun -f function statement``, or ``%%lprun`` in front of a cell."""

from __future__ import annotations

import argparse
import builtins
import importlib
import io
import math
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from lineprofiler.lines import lprof
from lineprofiler.lines.command import Parser, UsageError, words_taken
from lineprofiler.lines.profiler import LineProfiler

_ABSENT = object()
_F = TypeVar("_F", bound=Callable[..., Any])


def _as_written(magic: _F) -> _F:
    """IPython is not to put values for ``{name}`` and ``$name`` into the line: braces are Python's in a statement."""
    magic._ipython_magic_no_var_expand = True  # type: ignore[attr-defined]
    return magic


def parser(name: str) -> argparse.ArgumentParser:
    """Options of the magic `name`."""
    found = Parser(prog=name, description="Profiles a statement, or a cell, line by line.")
    add = found.add_argument
    add("-f", "--function", action="append", default=[], metavar="FUNC", help="profile this function; may be repeated")
    add("-m", "--module", action="append", default=[], metavar="MODULE", help="profile this module's functions")
    add("-D", "--dump", metavar="FILE", help="write an .lprof file")
    add("-T", "--text", metavar="FILE", help="write the table into a file")
    add("-r", "--return", dest="give", action="store_true", help="the magic's value is the profiler")
    add("-s", "--strip", action="store_true", help="leave out functions that were not called")
    add("-z", "--skip-zero", action="store_true", help="the same as -s")
    add("-u", "--unit", type=float, metavar="SECONDS", help="unit of the times")
    if name != "%lprun":
        add("-t", "--total", action="store_true", help="keep the seconds that it took as _total_time_taken")
        add("-p", "--top", action="store_true", help="profile the cell's own lines only, not its functions")
    add("statement", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return found


class Magics:
    """The magics of one shell. Without -f and -m a cell is profiled itself, with the functions that it defines.

    While it runs the profiler is the builtin `profile`, so that code may mark its functions.
    """

    def __init__(self, shell: Any) -> None:
        self.shell = shell

    @_as_written
    def lprun(self, line: str, cell: str | None = None) -> Any:
        """``%lprun [-f FUNC] [-m MODULE] [-D FILE] [-T FILE] [-r] [-s] [-z] [-u UNIT] STATEMENT``; ``%%lprun``."""
        return self._run("%lprun" if cell is None else "%%lprun", line, cell)

    @_as_written
    def lprun_all(self, line: str, cell: str) -> Any:
        """``%%lprun_all [-D FILE] [-T FILE] [-r] [-z] [-u UNIT] [-t] [-p]``: a cell with the functions it defines."""
        return self._run("%%lprun_all", line, cell)

    def _run(self, magic: str, line: str, cell: str | None) -> Any:
        options = parser(magic)
        try:
            words, statement = _split(line, options)
            given = options.parse_args([self._expanded(word) for word in words])
            if given.unit is not None and not 0 < given.unit < math.inf:
                raise UsageError("-u must be more than 0 seconds, and finite")
            if cell is None and not statement.strip():
                raise UsageError("no statement is given")
            if cell is not None and statement.strip():
                raise UsageError(f"{statement.strip()!r}: the cell is what is run")
            profiler = LineProfiler(*self._functions(given))
            for name in given.module:
                profiler.add_module(importlib.import_module(name))
        except SystemExit:
            return None
        except (UsageError, ImportError) as error:
            print(f"{magic}: {error}")
            return None
        message, seconds = self._execute(profiler, statement if cell is None else cell, given, whole=cell is not None)
        self._tell(magic, profiler, given, message)
        if getattr(given, "total", False):
            self.shell.user_ns["_total_time_taken"] = seconds
        return profiler if given.give else None

    def _expanded(self, word: str) -> str:
        """An option's word with the values of ``{name}`` and ``$name``, as IPython has it for other magics."""
        if "{" not in word and "$" not in word:
            return word
        formatter = importlib.import_module("IPython.utils.text").DollarFormatter()
        try:
            return str(formatter.vformat(word, (), self.shell.user_ns))
        except Exception:  # it means something else by them
            return word

    def _functions(self, given: argparse.Namespace) -> list[Any]:
        found = []
        for name in given.function:
            try:
                found.append(eval(name, self.shell.user_global_ns, self.shell.user_ns))
            except Exception as error:
                raise UsageError(f"-f {name}: {type(error).__name__}: {error}") from None
        return found

    def _execute(
        self, profiler: LineProfiler, text: str, given: argparse.Namespace, *, whole: bool
    ) -> tuple[str, float]:
        source = self.shell.transform_cell(text)
        chosen = bool(given.function or given.module)
        spaces = vars(builtins)
        before = spaces.get("profile", _ABSENT)
        spaces["profile"] = profiler
        # IPython keeps the text of a name that it has compiled, for tracebacks, for %debug, and for us.
        name = self.shell.compile.cache(source, self.shell.execution_count)
        code = compile(source, name, "exec", flags=self.shell.compile.flags, dont_inherit=True)
        if whole and not chosen:
            profiler.add_code(code, nested=not getattr(given, "top", False))
        message = ""
        begin = time.perf_counter()
        try:
            profiler.enable_by_count()
            begin = time.perf_counter()
            exec(code, self.shell.user_global_ns, self.shell.user_ns)
        except SystemExit:
            message = "*** SystemExit exception caught in code being profiled.\n"
        except KeyboardInterrupt:
            message = "*** KeyboardInterrupt exception caught in code being profiled.\n"
        finally:
            seconds = time.perf_counter() - begin
            profiler.disable()
            if before is _ABSENT:
                del spaces["profile"]
            else:
                spaces["profile"] = before
        return message, seconds

    def _tell(self, magic: str, profiler: LineProfiler, given: argparse.Namespace, message: str) -> None:
        out = io.StringIO()
        options: dict[str, Any] = {"stripzeros": given.strip or given.skip_zero}
        if given.unit is not None:
            options["output_unit"] = given.unit
        profiler.print_stats(stream=out, **options)
        text = out.getvalue()
        self._show(text)
        print(message, end="")
        if given.dump is not None:
            data = lprof.to_bytes(profiler.profile())
            self._save(magic, given.dump, data, "Profile stats pickled to file")
        if given.text is not None:
            data = text.encode("utf-8", "backslashreplace")
            self._save(magic, given.text, data, "Profile printout saved to text file")

    def _save(self, magic: str, path: str, data: bytes, what: str) -> None:
        """What cannot be written is said: the statement may have run for hours, its profiler is given all the same."""
        try:
            lprof.write_whole(path, data)
        except OSError as error:
            print(f"{magic}: {path}: {error.strerror}")
        else:
            print(f"*** {what} {path!r}.")

    def _show(self, text: str) -> None:
        """Through the pager in a terminal. A notebook has the table in the cell's output: what goes to its pager is not
        kept, and not seen at all where it is executed without a browser."""
        terminal = sys.modules.get("IPython.terminal.interactiveshell")
        if terminal is not None and isinstance(self.shell, terminal.TerminalInteractiveShell):
            importlib.import_module("IPython.core.page").page(text)
        else:
            print(text, end="")


def _split(line: str, options: argparse.ArgumentParser) -> tuple[list[str], str]:
    """The words of the options, and the statement as it was written."""
    words: list[str] = []
    rest = line.strip()
    while rest.startswith("-"):
        word, _, rest = rest.partition(" ")
        rest = rest.lstrip()
        if word == "--":
            break
        words.append(word)
        if words_taken(word, options) == 2:
            value, rest = _value(rest, python=word.endswith(("f", "--function")))
            words.append(value)
    return words, rest


def _value(text: str, *, python: bool) -> tuple[str, str]:
    """The first word, and what comes behind it. Blanks may be in a word in quotes; and, if it is an expression of
    Python, within its own quotes and brackets."""
    end = text.find(text[0], 1) if text[:1] in ("'", '"') else -1
    if end > 0 and text[end + 1 : end + 2] in ("", " "):
        return text[1:end], text[end + 1 :].lstrip()
    end = _end_of_expression(text) if python else text.find(" ")
    return (text, "") if end < 0 else (text[:end], text[end:].lstrip())


def _end_of_expression(text: str) -> int:
    """Where its first blank is outside of quotes and brackets; if they are not closed, its first blank. -1: none."""
    quote, depth, escaped = "", 0, False
    for at, letter in enumerate(text):
        if quote:
            if letter == quote and not escaped:
                quote = ""
            escaped = letter == "\\" and not escaped
        elif letter in "'\"":
            quote = letter
        elif letter == " " and depth <= 0:
            return at
        else:
            depth += (letter in "([{") - (letter in ")]}")
    return -1 if not quote and depth <= 0 else text.find(" ")


def load_ipython_extension(shell: Any) -> None:
    """What ``%load_ext lineprofiler`` calls."""
    magics = Magics(shell)
    shell.register_magic_function(magics.lprun, "line_cell", "lprun")
    shell.register_magic_function(magics.lprun_all, "cell", "lprun_all")


def unload_ipython_extension(shell: Any) -> None:
    """What ``%unload_ext lineprofiler`` calls."""
    for kind, name in (("line", "lprun"), ("cell", "lprun"), ("cell", "lprun_all")):
        shell.magics_manager.magics[kind].pop(name, None)
