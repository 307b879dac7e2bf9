"""What a phase takes on whose way out torch is asked for its memory, and what torch's own function takes of that.

torch is torch_standin.c, so that no GPU is needed; `python torch_memory.py` prints one JSON object. It is asked once a
second, so the state in which it is found is what matters most, and there are three:

- *cold*: the program computes in Python between phases, nothing of which is large; but for a second nobody needed what
  the reading needs, and other programs of the machine took its place in the caches.
- *loaded*: before each phase 64 MB are copied. Nothing is in the caches, as between the steps of a training.
- *warm*: before each phase the program asks torch itself, so all that is torch's is in the caches.

In each the same call of torch alone (its two functions of C, from Python) is timed in the middle between two readings:
nothing that asks torch can be cheaper than that. Phases are 11 ms apart, so that each looks at its clocks (a system
call or two), also those that the ones with a reading are compared with. The least counts, of all: other programs had
the machine meanwhile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

clock = time.perf_counter_ns
SECOND = 1_000_000_000
APART_NS = 11_000_000


@dataclass
class Times:
    """ns each."""

    reading: list[int] = field(default_factory=list)  # phases that asked
    others: list[int] = field(default_factory=list)  # phases that did not
    alone: list[int] = field(default_factory=list)  # torch's functions called by the program

    def figures(self, name: str) -> dict[str, float]:
        assert self.reading, "torch was asked"
        return {
            f"torch_{name}": float(min(self.reading) - min(self.others)),
            f"torch_{name}_alone": float(min(self.alone)),
        }


def stand_in() -> Any:
    """Loaded as `torch`, with CUDA initialised; gives its C module."""
    folder = Path.cwd() / "torch_standin"
    folder.mkdir(exist_ok=True)
    include = sysconfig.get_path("include")
    source = Path(__file__).with_name("torch_standin.c")
    command = [os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", f"-I{include}", str(source)]
    subprocess.run([*command, "-o", str(folder / "torch_standin.so")], check=True)
    sys.path.insert(0, str(folder))
    import torch_standin  # type: ignore[import-not-found]

    torch, cuda = types.ModuleType("torch"), types.ModuleType("torch.cuda")
    torch.cuda, torch._C = cuda, torch_standin  # type: ignore[attr-defined]
    cuda._initialized = True  # type: ignore[attr-defined]
    cuda._is_in_bad_fork = torch_standin._cuda_isInBadFork  # type: ignore[attr-defined]
    sys.modules.update({"torch": torch, "torch.cuda": cuda})
    return torch_standin


def watch(core: Any, between: Callable[[], object], seconds: float) -> Times:
    """Phases for so long, with a call before each."""
    from lineprofiler.accounting import Profiler

    times = Times()
    phases: list[tuple[int, int]] = []
    device, stats, asked = core._cuda_getDevice, core._cuda_memoryStats, core.calls
    with Profiler(f"run{clock()}", sample_interval_s=1.0, snapshot_interval_s=None) as profiler:
        step = profiler.phase("step")
        begin = clock()
        middle = begin + SECOND // 2  # the first reading is due after a second
        while (now := clock()) - begin < seconds * SECOND:
            between()
            start = clock()
            if now < middle:
                with step:
                    pass
                phases.append((start, clock() - start))
            else:
                stats(device())
                times.alone.append(clock() - start)
                middle += SECOND
    moments = asked()
    for start, took in phases:
        has_asked = any(start <= moment < start + took for moment in moments)
        (times.reading if has_asked else times.others).append(took)
    assert len(times.reading) <= seconds + 1, "once a second at most"
    return times


def torch_reading(seconds: float) -> dict[str, float]:
    core = stand_in()
    here, there = bytearray(32 << 20), bytearray(32 << 20)

    def computes() -> None:
        end = clock() + APART_NS
        while clock() < end:
            pass

    def copies() -> None:
        end = clock() + APART_NS
        there[:] = here
        while clock() < end:
            there[:] = here

    def asks() -> None:
        end = clock() + APART_NS
        while clock() < end:
            core._cuda_memoryStats(core._cuda_getDevice())

    figures = watch(core, computes, seconds).figures("reading")
    figures |= watch(core, copies, seconds).figures("loaded")
    figures |= watch(core, asks, seconds).figures("warm")
    return figures


if __name__ == "__main__":
    print(json.dumps(torch_reading(float(sys.argv[1]) if len(sys.argv) > 1 else 5.5)))
