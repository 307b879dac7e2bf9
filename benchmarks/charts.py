"""Plain SVG charts of the results: one bar a tool, on a logarithmic axis, with the interval as a whisker. No library.

Written into build/bench/, since nothing generated is in the tree. Every bar has its number beside it, so that
nothing is read off a length alone; ours are told apart by shade and by name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from envs import BUILD
from peers import EVENTS, TOOLS
from programs import PROGRAMS
from ways import WAYS

FOLDER = BUILD / "bench"
WIDTH, LEFT, RIGHT, ROW, TOP = 860, 270, 190, 22, 62


@dataclass(frozen=True)
class Bar:
    name: str
    value: float | None  # None: only `text`
    low: float
    high: float
    text: str
    ours: bool


def decades(values: list[float]) -> tuple[float, float]:
    """Whole powers of ten around the values."""
    low, high = 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values)))
    return low, max(high, low * 10)


def bar_chart(title: str, axis: str, bars: list[Bar], least: float) -> str:
    """`least`: where bars begin, and what is below is shown as."""
    known = [max(end, least) for bar in bars if bar.value is not None for end in (bar.value, bar.high)]
    low, high = decades([least, *known])
    span = math.log10(high / low)
    width, height = WIDTH - LEFT - RIGHT, TOP + ROW * len(bars) + 34

    def x(value: float) -> float:
        return LEFT + width * math.log10(max(value, low) / low) / span

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12" fill="#222">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="16" y="24" font-size="15">{escape(title)}</text>',
        f'<text x="16" y="44" fill="#666">{escape(axis)}</text>',
    ]
    for power in range(round(math.log10(low)), round(math.log10(high)) + 1):
        at, bottom = x(10.0**power), TOP + ROW * len(bars)
        out.append(f'<line x1="{at:.1f}" y1="{TOP - 4}" x2="{at:.1f}" y2="{bottom}" stroke="#ddd"/>')
        out.append(f'<text x="{at:.1f}" y="{bottom + 18}" text-anchor="middle" fill="#666">{10**power:,}</text>')
    for number, bar in enumerate(bars):
        y = TOP + ROW * number
        out.append(f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">{escape(bar.name)}</text>')
        end = LEFT + 4.0
        if bar.value is not None:
            end = max(x(bar.value), LEFT + 1)
            shade = "#1f5f99" if bar.ours else "#a9b4bf"
            out.append(f'<rect x="{LEFT}" y="{y + 4}" width="{end - LEFT:.1f}" height="{ROW - 8}" fill="{shade}"/>')
            middle, right = y + ROW / 2, x(bar.high)
            out.append(f'<line x1="{x(bar.low):.1f}" y1="{middle}" x2="{right:.1f}" y2="{middle}" stroke="#222"/>')
            end = max(end, right)
        out.append(f'<text x="{end + 6:.1f}" y="{y + 15}">{escape(bar.text)}</text>')
    return "\n".join([*out, "</svg>", ""])


def program_bars(found: dict[str, Any]) -> list[Bar]:
    bars = []
    for way in WAYS[1:]:
        each = found[way.key]
        if each["error"] or not each["factor"]:
            bars.append(Bar(way.tool, None, 0, 0, (each["error"] or "not measured")[:60], way.side == "ours"))
            continue
        figure = each["factor"]
        text = f"{figure['median']:.2f}x"
        bars.append(Bar(way.tool, figure["median"], figure["low"], figure["high"], text, way.side == "ours"))
    return bars


def event_bars(found: dict[str, Any], event: str) -> list[Bar]:
    bars = []
    for key, name, side, _ in TOOLS:
        figure = found[key]["events"].get(event)
        if figure:
            text = f"{figure['median']:,.0f} ns"
            bars.append(Bar(name, figure["median"], figure["low"], figure["high"], text, side == "ours"))
    return bars


def write_charts(document: dict[str, Any]) -> list[Path]:
    FOLDER.mkdir(parents=True, exist_ok=True)
    written = []

    def write(name: str, text: str) -> None:
        written.append(FOLDER / f"{name}.svg")
        written[-1].write_text(text, encoding="utf-8")

    for version, entry in document.get("programs", {}).items():
        for program, ways in entry["figures"]["programs"].items():
            title = f"{program} ({PROGRAMS[program]}), Python {version}"
            axis = "how many times longer the whole run takes, to bare; logarithmic; whisker: 95 % interval"
            write(f"program-{program}-{version}", bar_chart(title, axis, program_bars(ways), 1.0))
    for version, entry in document.get("events", {}).items():
        for event, name in EVENTS.items():
            bars = event_bars(entry["figures"]["tools"], event)
            if bars:
                axis = "ns that it costs under the tool; logarithmic; whisker: 95 % interval"
                write(f"event-{event}-{version}", bar_chart(f"{name}, Python {version}", axis, bars, 10.0))
    return written
