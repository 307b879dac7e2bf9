"""A part of `make fuzz`: damaged .lprof files, read as anybody's file is.

    fuzz_lprof.py SECONDS SEED        with the interpreter and package that run it

Whatever a file holds, reading it gives a profile or FormatError, in little memory; a profile has its listing and its
page, without a character that a terminal would obey, and can be written and read again.
"""

from __future__ import annotations

import io
import pickle
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lineprofiler.lines import html, listing, lprof, tables
from lineprofiler.lines.model import Function, FunctionKey, Line, Profile
from lineprofiler.lines.source import from_bytes

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
MEMORY = 1 << 30  # of address space beyond what is in use
SLOW_S = 20.0  # a small file takes milliseconds


def ours() -> bytes:
    function = Function(FunctionKey("/a/m.py", "f\x1b[2J", 1), 2, 900, 800, 70, 1)
    function.lines = {2: Line(2, 3, 400, 300, 70), 3: Line(2, 2, 500, 500)}
    function.threads = {"MainThread (0)": dict(function.lines)}
    function.executable = frozenset((2, 3))
    source = from_bytes(b"def f(n):\n    x = n  # \xc2\x9b31m\n    return x\n")
    return lprof.to_bytes(
        Profile({function.key: function}, {"/a/m.py": source}, {"line": 30.0}, ["a note"], processes=1)
    )


def flip(data: bytearray, r: random.Random) -> None:
    if data:
        data[r.randrange(len(data))] = r.randrange(256)


def cut(data: bytearray, r: random.Random) -> None:
    a = r.randrange(len(data) + 1)
    del data[a : a + r.choice([1, 2, 8, len(data)])]


def double(data: bytearray, r: random.Random) -> None:
    a, b = sorted(r.randrange(len(data) + 1) for _ in range(2))
    at = r.randrange(len(data) + 1)
    data[at:at] = data[a:b] * r.choice([1, 2])


def put(data: bytearray, r: random.Random) -> None:
    """Opcodes with numbers that lie, and ones that would import or call."""
    number = r.choice([b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x07", b"\x10\0\0\0"])
    words = [
        b"r" + number,
        b"B" + number,
        b"X" + number,
        b"\x8b" + number,
        b"T" + number,
        b"\x95" + number + b"\0\0\0\0",
        b"p2147483647\n",
        b"cos\nsystem\n",
        b"(S'id'\ntR",
        b"Pxyz\n",
        b"R",
        b"b",
        b"I" + b"9" * 30 + b"\n",
        b"Fnan\n",
        b"Finf\n",
        b"N",
        b"0",
        b"2",
        b"J\xff\xff\xff\xff",
        b"](e",
        b"}(u",
    ]
    at = r.randrange(len(data) + 1)
    data[at:at] = r.choice(words)


def value(found: Any, r: random.Random) -> Any:
    """One value of a whole object replaced: what is right as a pickle and wrong as a profile."""
    odd: list[Any] = [
        None,
        -1,
        1 << 70,
        float("nan"),
        float("inf"),
        "\ud800\x1b[2J",
        b"x",
        [],
        {},
        (),
        True,
        -(1 << 63),
        10**400,
        1e308,
    ]
    if r.random() < 0.1:
        return r.choice(odd)
    if isinstance(found, dict) and found:
        key = r.choice(list(found))
        return {k: value(v, r) if k is key else v for k, v in found.items()}
    if isinstance(found, (list, tuple)) and found:
        at = r.randrange(len(found))
        return type(found)(value(v, r) if n == at else v for n, v in enumerate(found))
    return r.choice(odd)


HEAD = (
    pickle.PROTO
    + b"\x02"
    + pickle.GLOBAL
    + b"line_profiler._line_profiler\nLineStats\n"
    + pickle.EMPTY_TUPLE
    + pickle.NEWOBJ
)


def odd_object(seed: bytes, r: random.Random) -> bytearray:
    state = value(vars(lprof._Unpickler(io.BytesIO(seed)).load()), r)
    return bytearray(HEAD + pickle.dumps(state, protocol=2)[2:-1] + pickle.BUILD + pickle.STOP)


DAMAGES: list[Callable[[bytearray, random.Random], None]] = [flip, flip, cut, double, put, put]


def check(path: Path) -> bool:
    """Whether it was a profile."""
    try:
        profile = lprof.read(path)
    except lprof.FormatError as error:
        if "\n" in str(error):
            raise AssertionError("it is more than one line") from error
        return False
    shown = io.StringIO()
    tables.print_functions(profile, min_time_us=0.0, top_n_lines=None, sort_by="line", stream=shown)
    tables.print_top(profile, root=None, top_n=10, min_time_us=0.0, sort_by="time", stream=shown)
    tables.print_line_profiler(profile, stream=shown, summarize=True)
    text = shown.getvalue() + listing.render(profile, listing.Layout(everything=True, threads=True))
    odd: list[Any] = [c for c in text if not (c.isprintable() or c in "\n ⋮")]
    assert not odd, f"printed: {odd[:5]!r}"
    html.render(profile, "title").encode("utf-8")
    again = lprof.to_bytes(profile)
    path.write_bytes(again)
    assert lprof.to_bytes(lprof.read(path)) == again, "what was written reads as the same"
    return True


def main() -> int:
    seconds, seed = float(sys.argv[1]), int(sys.argv[2])
    r = random.Random(seed)
    seeds = [ours(), *(path.read_bytes() for path in sorted(DATA.glob("*.lprof")))]
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + MEMORY, in_use + MEMORY))
    end, tried, good = time.monotonic() + seconds, 0, 0
    with tempfile.TemporaryDirectory(prefix="lineprofiler-fuzz-") as folder:
        path = Path(folder) / "damaged.lprof"
        while time.monotonic() < end:
            if r.random() < 0.5:
                data = odd_object(r.choice(seeds), r)
            else:
                data = bytearray(r.choice(seeds))
                for _ in range(r.choice([1, 1, 2, 4])):
                    r.choice(DAMAGES)(data, r)
            path.write_bytes(data)
            tried += 1
            began = time.process_time()
            try:
                good += check(path)
                assert time.process_time() - began < SLOW_S, "slow"
            except Exception:
                kept = Path("build") / f"fuzz-lprof-{seed}-{tried}.lprof"
                kept.parent.mkdir(exist_ok=True)
                kept.write_bytes(data)
                print(f"kept as {kept}")
                raise
    print(f"{tried} files, {good} of them profiles")
    return 0


if __name__ == "__main__":
    sys.exit(main())
