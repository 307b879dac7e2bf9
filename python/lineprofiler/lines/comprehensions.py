"""Comprehensions as lines of their function, which they are for their reader, and for Python since 3.12.

Before, each is code of its own that the function calls at the comprehension's first line. So its figures there are in
the function's time already, and its self time is not; those of its other lines were time of the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType

from lineprofiler.lines.model import FunctionKey, Line, Profile, add_lines

NAMES = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>"))


def homes_by_code(codes: Sequence[CodeType], keys: Sequence[FunctionKey]) -> dict[FunctionKey, FunctionKey]:
    """The function of each comprehension, outer ones first; without those whose function is none of these."""
    if not any(code.co_name in NAMES for code in codes):
        return {}
    outside = {
        id(inner): index
        for index, code in enumerate(codes)
        for inner in code.co_consts
        if isinstance(inner, CodeType) and inner.co_name in NAMES
    }
    found = []
    for index in range(len(codes)):
        at, depth = index, 0
        while codes[at].co_name in NAMES and id(codes[at]) in outside:
            at, depth = outside[id(codes[at])], depth + 1
        if depth and codes[at].co_name not in NAMES:
            found.append((depth, keys[index], keys[at]))
    return {key: home for _, key, home in sorted(found)}


def homes_by_place(profile: Profile) -> dict[FunctionKey, FunctionKey]:
    """The same where only names and places are known: the function whose text the comprehension begins in."""
    found = {}
    for key in profile.functions:
        names = key.function_name.split("#")[0].split(".")
        if names[-1] not in NAMES:
            continue
        home = _around(profile, key)
        if home is not None and home in profile.functions:
            found[key] = home
    return dict(sorted(found.items(), key=lambda each: (each[0].function_name.count("."), each[0].first_line)))


def _around(profile: Profile, key: FunctionKey) -> FunctionKey | None:
    places = profile.source(key.filename).definitions
    inside = [first for first, (_, last) in places.items() if first <= key.first_line <= last]
    for other in profile.functions:
        if other.filename == key.filename:
            if inside and (other.first_line, other.function_name) == (max(inside), places[max(inside)][0]):
                return other
            if not inside and other.function_name == "<module>":
                return other
    return None


def fold(profile: Profile, homes: dict[FunctionKey, FunctionKey]) -> None:
    """Makes each comprehension a part of its function."""
    for key, home in homes.items():
        if key not in profile.functions or not profile.functions.get(home, profile.functions[key]).lines:
            continue
        part, whole = profile.functions.pop(key), profile.function(home)
        _add(whole.lines, part.lines, key.first_line)
        for thread, lines in part.threads.items():
            _add(whole.threads.setdefault(thread, {}), lines, key.first_line)
        whole.self_ns += part.self_ns
        whole.executable |= part.executable


def _add(whole: dict[int, Line], part: dict[int, Line], first: int) -> None:
    calls = whole.get(first)
    for number, line in part.items():
        if calls is None:
            add_lines(whole, {number: line})
        elif number == first:
            calls.visits += line.visits
            calls.self_ns += line.self_ns
        else:
            add_lines(whole, {number: line})
            calls.time_ns -= line.time_ns
            calls.awaited_ns = max(calls.awaited_ns - line.awaited_ns, 0)
    if calls is not None:
        calls.time_ns = max(calls.time_ns, calls.self_ns)
