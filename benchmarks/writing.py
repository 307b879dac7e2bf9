"""Tables, the machine they were measured on, and where both are written.

results.json keeps every section that was measured here, each with its date, commit, machine and load, so that one
section can be measured again by itself. README.md has a place for each section, between two comments.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import instructions
from envs import ROOT, SetupError
from measuring import HERE
from peers import EVENTS, TOOLS
from programs import PROGRAMS
from rows import BOUNDED, Row
from ways import WAYS

TABLE = HERE / "README.md"
RESULTS = HERE / "results.json"

SCALE = {"": 1.0, "ns": 1.0, "µs": 1e3, "ms": 1e6, "x": 1.0, "KB": 1024.0, "s": 1.0, "MB": 1.0}


def show(value: float, unit: str) -> str:
    scaled = value / SCALE[unit]
    if unit == "x":
        return f"{scaled:.3f}x"
    digits = 0 if scaled >= 100 else 1 if scaled >= 10 else 2
    return f"{scaled:,.{digits}f} {unit}"


def factor(ratio: dict[str, float], digits: int) -> str:
    """Median and interval, `2.31 (2.20 … 2.44)`; no interval of one round."""
    middle = f"{ratio['median']:.{digits}f}"
    if ratio["rounds"] < 2:
        return middle
    return f"{middle} ({ratio['low']:.{digits}f} … {ratio['high']:.{digits}f})"


def table(figures: dict[str, Any], rows: list[Row]) -> list[str]:
    lines = ["| what | ours | peer | peer / ours (95 % interval) | must be | met |", "|---|---:|---:|---:|---|---|"]
    for row in rows:
        if row.key not in figures or figures[row.key]["ours"] is None:
            continue
        figure = figures[row.key]
        peer = show(figure["peer"]["median"], row.unit) if figure["peer"] else ""
        ratio = figure["peer/ours"]
        shown = factor(ratio, 1) if ratio else ""
        met = "" if row.met is None else ("yes" if row.met(figures) else "**no**")
        lines.append(
            f"| {row.what} | {show(figure['ours']['median'], row.unit)} | {peer} | {shown} | {row.must} | {met} |"
        )
    return lines


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def machine() -> dict[str, Any]:
    clock = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    compiler = subprocess.run(
        [os.environ.get("CC", "cc"), "--version"], capture_output=True, text=True, check=True
    ).stdout
    return {
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "virtual": "hypervisor" in Path("/proc/cpuinfo").read_text(encoding="utf-8"),
        "kernel": platform.release(),
        "clocksource": clock.read_text(encoding="utf-8").strip() if clock.exists() else "unknown",
        "libc": " ".join(platform.libc_ver()),
        "compiler": compiler.splitlines()[0],
    }


def commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "uncommitted"


# --- tables of every tool ---


def events_table(found: dict[str, Any]) -> list[str]:
    """A row a tool, ns that an event costs under it; in brackets how many times ours."""
    used = [event for event in EVENTS if any(event in each["events"] for each in found.values())]
    lines = [
        "| tool | " + " | ".join(EVENTS[event] for event in used) + " |",
        "|---" + "|---:" * len(used) + "|",
    ]
    for key, name, _, _ in TOOLS:
        each = found[key]
        if each["error"]:
            lines.append(f"| {name} | {each['error']} |" + " |" * (len(used) - 1))
            continue
        cells = []
        for event in used:
            figure, ratio = each["events"].get(event), each["to_ours"].get(event)
            text = show(figure["median"], "ns") if figure else ""
            cells.append(f"{text} ({ratio['median']:.1f})" if ratio and key != "ours" else text)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def programs_table(found: dict[str, Any]) -> list[str]:
    """A row a tool, a column a program: factors of the whole run and of the work alone. Memory, result: the first's."""
    names = [name for name in PROGRAMS if name in found]
    lines = [
        "| tool | what it tells | " + " | ".join(f"{n} ({PROGRAMS[n]})" for n in names) + " | peak memory | result |",
        "|---|---|" + "---:|" * (len(names) + 2),
    ]
    for way in WAYS:
        cells, memory, size = [], "", ""
        for name in names:
            figure = found[name][way.key]
            if figure["error"]:
                cells.append(f"**{figure['error']}**")
            elif way.key == "bare":
                cells.append(f"{figure['seconds']['median']:.2f} s")
            else:
                cells.append(f"{factor(figure['factor'], 2)}; {figure['work_factor']['median']:.2f}")
            if figure["peak_mb"]:
                memory = memory or f"{figure['peak_mb']['median']:.0f} MB"
                size = size or (f"{max(1, 1000 * figure['left_mb']['median']):,.0f} KB" if way.leaves else "")
        lines.append(f"| {way.tool} | {way.what} | " + " | ".join(cells) + f" | {memory} | {size} |")
    return lines


def tools_that_failed(document: dict[str, Any]) -> list[str]:
    """Each with its error: none is dropped."""
    out = []
    for version, entry in document.get("events", {}).items():
        tools = entry["figures"]["tools"]
        out += [f"{version} {name}, events: {tools[key]['error']}" for key, name, *_ in TOOLS if tools[key]["error"]]
    for version, entry in document.get("programs", {}).items():
        out += [
            f"{version} {way.tool}, {program}: {ways[way.key]['error']}"
            for program, ways in entry["figures"]["programs"].items()
            for way in WAYS
            if ways[way.key]["error"]
        ]
    return out


# --- writing ---


def facts_line(entry: dict[str, Any]) -> str:
    facts, load = entry["machine"], entry["load_average"]
    kind = "Virtual machine" if facts["virtual"] else "Machine"
    return (
        f"{kind}, {facts['cpu']}, {facts['cpus']} CPUs, kernel {facts['kernel']}, clock source {facts['clocksource']}, "
        f"{facts['libc']}, {facts['compiler']}. Measured {entry['date']} at {entry['commit']}"
        f"{' (quick)' if entry['quick'] else ''} in {entry['seconds']:.0f} s, load average {load[0]:.1f} before and "
        f"{load[1]:.1f} after."
    )


def versions_line(versions: dict[str, str], peer: list[str]) -> str:
    wanted = {way.needs for way in WAYS if way.needs}
    found = {name.lower().replace("_", "-"): f"{name} {version}" for name, version in versions.items()}
    here = [found[name.lower().replace("_", "-")] for name in sorted(wanted) if name.lower().replace("_", "-") in found]
    return f"Versions: {', '.join(here)}; cProfile and tracemalloc of this Python; peer: {', '.join(peer)}."


def section_text(name: str, entries: dict[str, Any]) -> list[str]:
    """What stands in README.md between the comments of a section: a table a version, with where it was measured."""
    lines = []
    for version, entry in sorted(entries.items(), key=lambda item: natural(item[0])):
        figures = entry["figures"]
        lines += ["", f"### {version}" if name == "instructions" else f"### Python {version}", "", facts_line(entry)]
        if name == "instructions":
            lines += ["", *instructions.table(instructions.Outcome.from_dict(figures))]
        elif name == "events":
            lines += [versions_line(figures["versions"], entry["peer"]), "", *events_table(figures["tools"])]
        elif name == "programs":
            lines.append(f"Programs: {', '.join(figures['requirements'])}.")
            lines += [versions_line(figures["versions"], entry["peer"]), "", *programs_table(figures["programs"])]
        else:
            if name == "calls":
                lines.append(f"Peer: {', '.join(entry['peer'])}.")
            lines += ["", *table(figures, BOUNDED[name])]
    return lines[1:]


def natural(version: str) -> list[Any]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", version)]


def read_results() -> dict[str, Any]:
    try:
        document = json.loads(RESULTS.read_text(encoding="utf-8"))
    except OSError as error:
        raise SetupError(f"{RESULTS.relative_to(ROOT)}: {error.strerror}: nothing was measured here yet") from None
    except ValueError as error:
        raise SetupError(f"{RESULTS.relative_to(ROOT)}: {error}") from None
    assert isinstance(document, dict)
    return document


def write_results(document: dict[str, Any]) -> dict[str, Any]:
    """Puts the entries in place of what was there of them; returns all."""
    known = read_results() if RESULTS.exists() else {}
    for name, entries in document.items():
        known.setdefault(name, {}).update(entries)
    RESULTS.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return known


def write_tables(document: dict[str, Any]) -> None:
    text = TABLE.read_text(encoding="utf-8")
    for name, entries in document.items():
        begin, end = f"<!-- begin: {name}, written by run.py -->", f"<!-- end: {name} -->"
        if begin not in text or end not in text:
            raise SetupError(f"{TABLE.relative_to(ROOT)} has no place for {name}: {begin} … {end}")
        start, stop = text.index(begin) + len(begin), text.index(end)
        text = text[:start] + "\n" + "\n".join(section_text(name, entries)) + "\n" + text[stop:]
    TABLE.write_text(text, encoding="utf-8")
