"""GPUs as the collector sees them: a stand-in for NVIDIA's library, built here, in which every call can fail or hang.
AMD's sysfs and the readers of /proc have synthetic trees in tests/c/test_sample_readers.c.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from lpsamples import Samples, read
from lpstage import Stage, private_mounts
from nvml import Library

PROGRAM = """
    import sys
    from lineprofiler.accounting import Profiler

    with Profiler("run", sample_interval_s=0.2) as profiler, profiler.phase("gpu"):
        print(flush=True)
        sys.stdin.readline()
"""

NAMES = ("busy", "memory_busy", "memory_used", "memory_total", "power", "temperature", "ours_busy", "ours_memory")


@dataclass
class Seen:
    host: Samples
    process: Samples
    said: list[float]  # CLOCK_MONOTONIC at which each step began, and the end

    def rows(self, step: int, index: int = 0) -> list[dict[str, tuple[int | None, str]]]:
        """Rows about a device that were asked for and taken during a step: value and reason by name. A row tells what
        was answered to the tick before, so the first ticks are left out."""
        first, last = self.said[step] + 0.45, self.said[step + 1]
        found = []
        for batch in self.host.of("gpu"):
            for row, at in enumerate(batch.columns["time"]):
                if batch.index == index and first <= batch.mono_ns / 1e9 + (at or 0) / 1e6 <= last:
                    found.append({n: (batch.columns[n][row], batch.reasons.get(n, "")) for n in NAMES})
        assert found, "no row in a step"
        return found


def watched(stage: Stage, library: Library, *steps: tuple[str, ...], seconds: float = 1.0) -> Seen:
    """Samples of a program during which the library says one thing after the other, each for so many seconds."""
    program = stage.start(PROGRAM, LD_LIBRARY_PATH=str(library.folder))
    assert program.stdout is not None
    program.stdout.readline()
    said = []
    for lines in steps:
        library.says(*(line.replace("PID", str(program.pid)) for line in lines))
        said.append(time.monotonic())
        time.sleep(seconds)
    said.append(time.monotonic())
    program.communicate("\n", 60)
    stage.settle()
    return Seen(read(stage, stage.samples("host")[0]), read(stage, stage.samples()[0]), said)


def test_devices_and_whose_they_are(stage: Stage, library: Library) -> None:
    library.says("devices 2")
    seen = watched(stage, library, ("devices 2", "pid PID 512 40", "pid 1 300 20"), seconds=2)
    assert {batch.label for batch in seen.host.of("gpu") if batch.index == 0} == {"Stand-in 0"}
    assert {batch.label for batch in seen.host.of("gpu") if batch.index == 1} == {"Stand-in 1"}
    shown = {name: value for name, (value, _) in seen.rows(0)[-1].items()}
    assert shown == {
        "busy": 300,
        "memory_busy": 120,
        "memory_used": 1000 * 1024,
        "memory_total": 16384 * 1024,
        "power": 250_000,
        "temperature": 55,
        "ours_busy": 400,  # of the two processes, the one that is ours
        "ours_memory": 512 * 1024,
    }
    other = {name: value for name, (value, _) in seen.rows(0, index=1)[-1].items()}
    assert (other["busy"], other["ours_busy"], other["ours_memory"]) == (310, 0, 0)
    assert seen.process.known("ours_memory", "process_gpu")[-1] == 512 * 1024
    assert seen.process.known("ours_busy", "process_gpu")[-1] == 400
    assert {batch.index for batch in seen.process.of("process_gpu")} == {0}


FAILURES = {
    "nvmlDeviceGetUtilizationRates": ("busy", "memory_busy"),
    "nvmlDeviceGetMemoryInfo": ("memory_used", "memory_total"),
    "nvmlDeviceGetPowerUsage": ("power",),
    "nvmlDeviceGetTemperature": ("temperature",),
    "nvmlDeviceGetComputeRunningProcesses_v3": ("ours_memory",),
    "nvmlDeviceGetProcessUtilization": ("ours_busy",),
    "nvmlDeviceGetHandleByIndex_v2": NAMES,
    "nvmlDeviceGetName": (),
    "nvmlDeviceGetMigMode": (),
    "nvmlShutdown": (),
}
REASONS = {
    3: "not supported by this device",
    4: "the GPU library does not permit it",
    15: "the NVIDIA driver does not answer its library",
    999: "the call failed",
}


@pytest.mark.parametrize("code", [3, 4, 15, 999])
def test_each_call_that_fails_costs_its_columns(stage: Stage, library: Library, code: int) -> None:
    seen = watched(stage, library, *((f"{function} {code}", "pid PID 512 40") for function in FAILURES))
    for step, (function, names) in enumerate(FAILURES.items()):
        row = seen.rows(step)[-1]
        for name in NAMES:
            if name in names:
                assert row[name] == (None, REASONS[code]), (function, name)
            else:
                assert row[name][0] is not None, (function, name)
    assert None not in seen.process.column("cpu"), "the rest goes on"
    assert {batch.label for batch in seen.host.of("gpu")} == {"Stand-in 0"}


@pytest.mark.parametrize("function", ["nvmlInit_v2", "nvmlDeviceGetCount_v2"])
@pytest.mark.parametrize("code", [4, 15, 999])
def test_a_library_that_does_not_work(stage: Stage, library: Library, function: str, code: int) -> None:
    """A row that says why: nothing is known of any device."""
    library.says(f"{function} {code}")
    seen = watched(stage, library, (f"{function} {code}",))
    assert set(seen.host.of("gpu")[-1].reasons.values()) == {REASONS[code]}
    assert seen.host.known("busy", "gpu") == []
    assert None not in seen.process.column("cpu")


@pytest.mark.parametrize("function", ["nvmlInit_v2", "nvmlDeviceGetUtilizationRates"])
def test_a_library_that_hangs_costs_its_columns_only(stage: Stage, library: Library, function: str) -> None:
    """The thread hangs; processes go on being sampled, the column says so, and the collector leaves in time."""
    library.says(f"{function} hang")
    seen = watched(stage, library, (f"{function} hang",), seconds=6.5)
    assert set(seen.host.of("gpu")[-1].reasons.values()) == {"the GPU library did not answer in time"}
    # Five a second; a loaded machine lets some pass, and counts them.
    assert len(seen.process.times_s()) + seen.process.last("missed") >= 28
    assert None not in seen.process.column("cpu")


def test_partitions_are_not_guessed(stage: Stage, library: Library) -> None:
    library.says("mig 1")
    seen = watched(stage, library, ("mig 1", "pid PID 512 40"))
    for row in seen.rows(0):
        assert row["busy"][0] == 300
        assert row["ours_busy"] == row["ours_memory"] == (None, "not told for a partition of a device (MIG)")
    assert seen.process.of("process_gpu") == []


def test_no_library_is_no_gpu(stage: Stage) -> None:
    if Path("/dev/nvidiactl").exists() or list(Path("/sys/class/drm").glob("card*/device/mem_info_vram_total")):
        pytest.skip("this machine has a GPU")
    stage.python(PROGRAM.replace("sys.stdin.readline()", "__import__('time').sleep(1.2)")).expect()
    stage.settle()
    host = read(stage, stage.samples("host")[0])
    assert host.of("gpu") == []
    assert host.known("memory_total", "host")
    assert "\nGPU none seen: no NVIDIA driver, no AMD device\n" in stage.command("report", "run").expect().stdout


IN_A_CONTAINER = """
    import sys, time
    from lineprofiler.accounting import Profiler

    with Profiler("run", sample_interval_s=0.2) as profiler, profiler.phase("gpu"):
        time.sleep(1.5)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a pid namespace")
def test_numbers_of_another_pid_namespace_are_not_matched(stage: Stage, library: Library) -> None:
    """The driver speaks of the host's numbers; within a container a process with that number is another one."""
    library.says("pid 2 512 40", "pid 3 512 40", "pid 4 512 40")  # as there would be inside
    program = stage.script(IN_A_CONTAINER)
    # The shell is the first process of the namespace, and waits for the collector.
    script = f"unshare --pid --fork --mount-proc sh -c '\"$PY\" {program}; sleep 2'"
    done = private_mounts(stage, script, LD_LIBRARY_PATH=str(library.folder))
    if done.stderr.startswith("unshare"):
        pytest.skip(f"no pid namespace here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    host = read(stage, stage.samples("host")[0])
    assert set(host.known("busy", "gpu")) == {300}
    for name in ("ours_busy", "ours_memory"):
        assert set(host.column(name, "gpu")) == {None}
        assert host.reason_of(name, "gpu") == "the GPU library knows other process numbers (pid namespace)"
    assert read(stage, stage.samples()[0]).of("process_gpu") == []


def test_what_the_report_says(stage: Stage, library: Library) -> None:
    """GPU and GPU BY PHASE of a run that used one, to the figures of the stand-in."""
    library.says("devices 2")
    watched(stage, library, ("devices 2", "pid PID 512 40"), seconds=2.5)
    document = stage.report().document
    busy, other = document["resources"]["gpu"]["devices"]
    assert (busy["busy_mean"], other["busy_mean"]) == (30.0, 31.0)
    # From when the library says so: a tick or two of twelve later.
    assert 20 <= busy["ours_mean"] <= 40
    assert (other["ours_mean"], other["ours_memory_peak"]) == (0.0, 0)
    assert busy["ours_memory_peak"] == document["machine"]["used"]["vram_held_peak"] == 512 << 20
    assert (busy["memory_peak"], busy["memory_total"]) == (1000 << 20, 16384 << 20)
    assert (busy["power_mean_w"], busy["temperature_max_c"]) == (250.0, 55.0)
    text = stage.command("report", "run").expect().stdout
    sections = text[text.index("GPU (sampled)") :]
    rows = [line.split() for line in sections.splitlines() if line.startswith(("GPU 0", "GPU 1", "gpu  "))]
    assert rows[0][:3] == ["GPU", "0", "30.0%"]
    assert rows[1] == ["GPU", "1", "31.0%", "0.0%", "69.0%", "1000.0", "MB", "0", "B"]
    assert rows[2][:4] == ["gpu", "30%", "30%", "n/a"]
    assert "VRAM n/a: no process told by then what torch's allocator holds" in text
