"""The other tools: an environment of their own, what is in it, and which events of theirs are measured beside ours.

A tool that does not install on this Python or this machine is no reason to measure nothing: what pip said is kept
and stands in the tables.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import envs
from envs import Interpreter, SetupError, say
from measuring import HERE, run_work, spread

REQUIREMENTS = HERE / "requirements-tools.txt"
EVENTS = {
    "call": "a call",
    "line": "a line",
    "block": "a named block",
    "count": "a count",
    "io": "a block with its I/O",
    "region": "a region of lines",
    "allocation": "an allocation",
}
# Key in events.py, name in tables, environment, requirement that it comes with.
TOOLS = (
    ("ours", "lineprofiler", "ours", ""),
    ("peer", "with-line-profiler", "peer", ""),
    ("line_profiler", "line_profiler", "tools", "line_profiler"),
    ("memory_profiler", "memory_profiler", "tools", "memory-profiler"),
    ("cprofile", "cProfile", "tools", ""),
    ("yappi", "yappi", "tools", "yappi"),
    ("viztracer", "VizTracer", "tools", "viztracer"),
    ("pyinstrument", "pyinstrument", "tools", "pyinstrument"),
    ("tracemalloc", "tracemalloc", "tools", ""),
    ("memray", "memray", "tools", "memray"),
)


def name_of(requirement: str) -> str:
    return requirement.split("==")[0]


def tools_environment(interpreter: Interpreter) -> tuple[Path, dict[str, str]]:
    """The environment, and by requirement why it is missing there."""
    venv = envs.environment(interpreter, f"bench-tools-{interpreter}", [])
    stamp = venv / "tools.json"
    wanted = hashlib.sha256("\n".join(envs.requirement_lines(REQUIREMENTS)).encode()).hexdigest()
    if stamp.exists():
        known = json.loads(stamp.read_text(encoding="utf-8"))
        if known["wanted"] == wanted:
            return venv, dict(known["missing"])
    missing = {}
    for line in envs.requirement_lines(REQUIREMENTS):
        say(f"    installing {line}")
        try:
            pip = [envs.python_of(venv), "-m", "pip", "install", "-q", "--prefer-binary", line]
            envs.run(list(pip), f"pip install {line}")
        except SetupError as error:
            said = [text for text in str(error).splitlines() if text.startswith("ERROR")]
            missing[name_of(line)] = f"does not install: {(said or ['see pip'])[-1].removeprefix('ERROR: ')[:120]}"
            say(f"    {name_of(line)} {missing[name_of(line)]}")
    stamp.write_text(json.dumps({"wanted": wanted, "missing": missing}), encoding="utf-8")
    return venv, missing


def versions(venv: Path) -> dict[str, str]:
    shown = subprocess.run(
        [str(envs.python_of(venv)), "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"],
        capture_output=True,
        text=True,
        check=True,
        env=envs.clean_environment(),
    ).stdout
    return {each["name"]: each["version"] for each in json.loads(shown)}


def measure_events(
    places: dict[str, Path], missing: dict[str, str], rounds: int, quick: bool, folder: Path
) -> dict[str, Any]:
    """By tool: ns added by each event that it offers, and the ratio to ours of the same round; or what went wrong."""
    found: dict[str, dict[str, list[float]]] = {key: {} for key, *_ in TOOLS}
    errors = {key: missing[needs] for key, _, _, needs in TOOLS if needs in missing}
    for number in range(rounds):
        for key, _, side, _ in TOOLS if number % 2 == 0 else TOOLS[::-1]:
            if key in errors:
                continue
            try:
                values = run_work(places[side], key, *(["quick"] if quick else []), cwd=folder, script="events.py")
            except SetupError as error:
                errors[key] = f"fails: {str(error).splitlines()[-1][:160]}"
                say(f"    {key} {errors[key]}")
                continue
            for event, value in values.items():
                found[key].setdefault(event, []).append(value)
    ours = found["ours"]
    return {
        key: {
            "error": errors.get(key),
            "events": {event: spread(values) for event, values in events.items()},
            "to_ours": {
                event: spread([v / o for v, o in zip(values, ours.get(event, []), strict=False) if o > 0])
                for event, values in events.items()
            },
        }
        for key, events in found.items()
    }
