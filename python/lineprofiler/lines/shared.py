"""Figures that processes share in a folder, read while they run, hang, or after they died, and added up.

A process that shares has one ``*.lines`` file there. One of ``lineprofiler run`` that ends by itself leaves an
``.lprof`` file as well, with the text of its sources; then that is taken, and its ``*.lines`` are not.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lineprofiler import _lineprofiler
from lineprofiler.lines import comprehensions, lprof
from lineprofiler.lines.model import FunctionKey, Line, Profile, add_lines
from lineprofiler.lines.screen import duration
from lineprofiler.lines.source import Source, from_disk


def read_folder(folder: str | Path) -> Profile:
    """The sum of all processes that left or keep figures in this folder. What cannot be read stands in its notes.

    Raises OSError if the folder cannot be listed.
    """
    names = sorted(os.listdir(folder))
    sources: dict[str, Source] = {}
    profiles, ended = [], set()
    unseen = {"living": 0, "ended": 0}
    for name in names:
        if name.endswith(".lprof"):
            try:
                profiles.append(lprof.read(os.path.join(folder, name)))
            except (OSError, lprof.FormatError) as error:
                profiles.append(Profile(notes=[f"{name}: {error}"], processes=0))
                continue
            sources.update(profiles[-1].sources)
            ended.add(name.rpartition("-")[0])
    for name in names:
        if name.endswith(".lines"):
            try:
                found = _lineprofiler.load_lines(os.path.join(folder, name))
            except (OSError, ValueError) as error:
                profiles.append(Profile(notes=[f"{name}: {error}"], processes=0))
                continue
            if name.removesuffix(".lines") not in ended and found["lines"]:
                profiles.append(from_segment(found, sources))
                if not found["closed"]:
                    unseen["living" if found["living"] else "ended"] += 1
    total = profiles.pop(0) if profiles else Profile(processes=0)  # ours alone: added to, not copied
    for profile in profiles:
        total.merge(profile)
    if unseen["living"]:
        total.notes.append(f"what comes yet: {unseen['living']} process{_es(unseen['living'])} still running")
    if unseen["ended"]:
        many = f"{unseen['ended']} process{_es(unseen['ended'])}"
        total.notes.append(f"the end of {many}, killed or left by os._exit or exec")
    return total


def _es(count: int) -> str:
    return "" if count == 1 else "es"


def from_segment(found: dict[str, Any], sources: dict[str, Source]) -> Profile:
    """The profile of one process. `sources` are known texts by file; those that are read here are added."""
    profile = Profile()
    keys = [_key(file, name, first, sources) for file, name, first in found["codes"]]
    threads = {number: f"{name} ({number})" for number, name in found["threads"]}
    profile.places = _places(found, keys, threads)
    for key in keys:
        profile.function(key)
        profile.sources[key.filename] = sources[key.filename]
    for row in found["lines"]:
        if row[1] < 1:
            continue  # an empty module
        function = profile.function(keys[row[0]])
        line = {row[1]: Line(row[2], row[3], row[4], row[5], row[6])}
        add_lines(function.lines, line)
        add_lines(function.threads.setdefault(threads.get(row[7], str(row[7])), {}), line)
    for index, _, calls, time_ns, self_ns, awaited_ns, suspended in found["functions"]:
        function = profile.function(keys[index])
        function.calls += calls
        function.time_ns += time_ns
        function.self_ns += self_ns
        function.awaited_ns += awaited_ns
        function.suspended += suspended
    comprehensions.fold(profile, comprehensions.homes_by_place(profile))
    return profile


def _places(found: dict[str, Any], keys: list[FunctionKey], threads: dict[int, str]) -> list[str]:
    """Where each thread is, or was when the process was killed: its open lines, outermost first."""
    if found["closed"]:
        return []
    stacks: dict[int, list[str]] = {}
    since: dict[int, int] = {}
    for thread, code, line, ns in found["open"]:
        key = keys[code]
        stacks.setdefault(thread, []).append(f"{key.function_name} {os.path.basename(key.filename)}:{line}")
        since[thread] = ns
    tense = "is" if found["living"] else "was"
    return [
        f"process {found['pid']}, thread {threads.get(thread, thread)}, {tense} in {' > '.join(stack)}"
        + (f" for {duration(since[thread])}" if found["living"] else "")
        for thread, stack in sorted(stacks.items())
    ]


def _key(filename: str, name: str, first_line: int, sources: dict[str, Source]) -> FunctionKey:
    if filename not in sources:
        sources[filename] = from_disk(filename)
    if "." not in name:  # a process of Python 3.10 knows plain names only
        known = sources[filename].definitions.get(first_line)
        if known is not None and known[0].split(".")[-1] == name:
            name = known[0]
    return FunctionKey(filename, name, first_line)
