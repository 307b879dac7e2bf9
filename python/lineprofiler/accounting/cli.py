"""The ``lineprofiler`` command: the C command behind Python's streams."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable
from typing import TextIO

from lineprofiler import _lineprofiler
from lineprofiler.streams import whole_writer

_IN_PYTHON = {"run": "lineprofiler.lines.run", "lines": "lineprofiler.lines.show"}
"""Subcommands that are Python modules; the others are C."""
_ENVIRONMENT = ("NO_COLOR", "TERM", "COLUMNS", "LC_ALL", "LC_CTYPE", "LANG")


def main(argv: list[str] | None = None) -> int:
    """Runs the command with these arguments (None: those of the process) and gives its exit code.

    0 success, 1 a gate failed, 2 usage or input that cannot be read, 130 interrupted. A closed pipe ends quietly.
    """
    arguments = [str(each) for each in (sys.argv[1:] if argv is None else argv)]
    if arguments and arguments[0] in _IN_PYTHON:
        return _quietly(_program(arguments[0]), arguments[1:])
    no_color, term, columns, lc_all, lc_ctype, lang = map(_variable, _ENVIRONMENT)
    if lc_ctype in ("C.UTF-8", "C.utf8", "UTF-8") and lang in ("C", "POSIX"):
        lc_ctype = None  # put there by the interpreter (PEP 538); who says LANG=C wants ASCII
    out, err = sys.stdout, sys.stderr
    fd, is_tty = _terminal(out)
    try:
        code = _lineprofiler.cli_main(
            arguments,
            # A process may have no streams: then what was asked for cannot be written; len drops what would be said.
            whole_writer(out) if out is not None else _no_output,
            err.write if err is not None else len,
            fd,
            is_tty,
            _shows_utf8(out),
            (no_color, term, columns, lc_all, lc_ctype, lang),
        )
        if out is not None:
            out.flush()
    except BrokenPipeError:
        _drop(out)
        return 0
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        _drop(out)
        if err is not None:
            err.write(f"lineprofiler: cannot write the output: {error.strerror or error}\n")
        return 2
    return code


def _program(name: str) -> Callable[[list[str]], int]:
    from importlib import import_module

    main: Callable[[list[str]], int] = import_module(_IN_PYTHON[name]).main
    return main


def _quietly(program: Callable[[list[str]], int], arguments: list[str]) -> int:
    """Runs it as the C command is run: a closed pipe ends it quietly, --help and an interrupt have their codes."""
    out, err = sys.stdout, sys.stderr
    code = 0
    try:
        try:
            code = program(arguments)
        except SystemExit as end:  # argparse has printed the help
            code = int(end.code or 0)
        if out is not None:
            out.flush()
    except BrokenPipeError:
        _drop(out)
        return 0
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        _drop(out)
        if err is not None and code != 2:  # else it has been said
            err.write(f"lineprofiler: cannot write the output: {error.strerror or error}\n")
        return 2
    return code


def _variable(name: str) -> str | None:
    """An environment variable; what is not ASCII in it (bytes of anything) means nothing here."""
    value = os.environ.get(name)
    return None if value is None else value.encode("ascii", "replace").decode("ascii")


def _no_output(_text: str) -> object:
    raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def _terminal(stream: TextIO | None) -> tuple[int, bool]:
    try:
        return (stream.fileno(), stream.isatty()) if stream is not None else (-1, False)
    except (OSError, ValueError, AttributeError):  # a StringIO, a closed file, a stream of somebody's own
        return -1, False


def _shows_utf8(stream: TextIO | None) -> bool:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return encoding.lower().replace("_", "-") in ("utf-8", "utf8", "utf-8-sig")


def _drop(stream: TextIO | None) -> None:
    """Points a broken output at nothing, or the interpreter would complain about it again at its end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if stream is not None:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, stream.fileno())
            os.close(nothing)


if __name__ == "__main__":
    sys.exit(main())
