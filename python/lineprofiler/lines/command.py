"""What the subcommands in Python share: arguments, help and errors as those of the C command."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from lineprofiler.lines import screen


class UsageError(Exception):
    """What is wrong with the command line or a file, in one line."""


class Parser(argparse.ArgumentParser):
    """Says an error in one line and leaves the exit to the caller."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Formatter, allow_abbrev=False, add_help=False, **options)
        self.add_argument("-h", "--help", action="help", help="this text")

    def print_help(self, file: Any = None) -> None:
        """As argparse does, but what cannot be written is no success."""
        screen.emit(self.format_help(), file)

    def error(self, message: str) -> Any:
        raise UsageError(message)


class _Formatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=80)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return str(super()._format_action_invocation(action))
        letters = [s for s in action.option_strings if not s.startswith("--")]
        words = [s for s in action.option_strings if s.startswith("--")][:1]  # other spellings work, unsaid
        value = f" {action.metavar}" if action.nargs is None and action.metavar else ""
        if action.choices is not None:
            value = " " + "|".join(map(str, action.choices))
        return (", ".join([*letters, *words]) if letters else "    " + words[0]) + value


def words_taken(word: str, options: argparse.ArgumentParser) -> int:
    """How many words an option takes with its value: 2 where that is the next one. Letters may stand together."""
    valued = {name for action in options._actions if action.nargs is None for name in action.option_strings}
    if word.startswith("--"):
        return 2 if word in valued else 1
    for at, letter in enumerate(word[1:], 2):
        if f"-{letter}" in valued:
            return 2 if at == len(word) else 1
    return 1


def usage_error(parser: argparse.ArgumentParser, error: UsageError) -> int:
    """Says it on standard error; the exit code."""
    sys.stderr.write(f"{parser.format_usage()}{parser.prog}: {error}\n")
    return 2
