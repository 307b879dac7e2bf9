"""The sampled sections of the text, from made sample files: rows left out are counted, and each n/a has its reason."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import samplefile
from lptest import environment, lineprofiler
from samplefile import ROWS, SampleFile, Series, Share, Worker, host

MS, SECOND = 1_000_000, 1_000_000_000
DENIED, HIDDEN, NOT_DUE, NAMESPACE, NO_DRIVER, NOT_USED = 3, 7, 1, 15, 11, 16


def worker(pid: int) -> Worker:
    made = Worker("r", "node07", pid)
    made.phase("step", 75, 1000 * MS, 1600 * MS, 0.9, 0.01)
    return made


def rows(about: Worker, run: Path, columns: dict[int, list[int] | int], names: list[str]) -> SampleFile:
    """A second each, charged to one phase after the other."""
    shares: list[tuple[Share, ...]] = [((names[k % len(names)], 1000),) for k in range(ROWS)]
    about.write(run)
    file = SampleFile(about, 1)
    file.add(Series(1, columns, shares=shares))
    return file


def usual(per_s: int = 1 << 20) -> dict[int, list[int] | int]:
    """Half a core, 100 MB, so many bytes read and written in a second."""
    seconds = range(ROWS)
    return {
        1: [500_000 * k for k in seconds],
        3: [100 << 10] * ROWS,
        4: [100 << 10] * ROWS,
        6: [80 << 10] * ROWS,
        12: [per_s * k for k in seconds],
        13: [per_s * k for k in seconds],
        14: [per_s * k for k in seconds],
        15: [per_s * k for k in seconds],
    }


def text_of(run: Path, *options: str, env: dict[str, str] | None = None) -> str:
    return lineprofiler("report", str(run), *options, env=env).expect().stdout


def joined(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def section(text: str, title: str) -> list[str]:
    """The lines below a title and its rule, up to a blank one."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(title)) + 2
    return lines[start : next((i for i in range(start, len(lines)) if not lines[i]), len(lines))]


def test_phases_with_equally_many_bytes_all_have_their_row(tmp_path: Path) -> None:
    rows(worker(1), tmp_path, usual(), [f"p{k}" for k in range(7)] + ["p0"]).write(tmp_path)
    lines = text_of(tmp_path).splitlines()
    table = next(i for i, line in enumerate(lines) if line.split()[:2] == ["read", "(disk)"])
    # 98 intervals in turns of eight, the second to the second name: p0 has two of each eight.
    shown = [line.split()[0] for line in lines[table + 1 : table + 8]]
    assert shown[0] == "p0"
    assert sorted(shown) == [f"p{k}" for k in range(7)]


def test_rows_beyond_a_dozen_are_counted(tmp_path: Path) -> None:
    rows(worker(1), tmp_path, usual(), [f"p{k:02}" for k in range(15)]).write(tmp_path)
    assert len(re.findall(r"^  p\d\d +\d", text_of(tmp_path), re.MULTILINE)) == 12
    assert "… 3 more (--all)" in text_of(tmp_path)
    assert len(re.findall(r"^  p\d\d +\d", text_of(tmp_path, "--all"), re.MULTILINE)) == 15


def test_columns_of_phases_add_up_to_the_totals(tmp_path: Path) -> None:
    """One phase writes to pipes, the other into a mapped file: calls and disk are two sums."""
    pipes = [(k + 1) // 2 * (2 << 20) for k in range(ROWS)]  # 49 intervals, those that end with an odd row
    disk = [k // 2 * (3 << 20) for k in range(ROWS)]  # 49, the others
    rows(worker(1), tmp_path, usual() | {13: disk, 15: pipes}, ["map", "pipe"]).write(tmp_path)
    lines = [line.split() for line in text_of(tmp_path).splitlines()]
    table = next(i for i, line in enumerate(lines) if line[:2] == ["read", "(disk)"])
    assert lines[table][-3:] == ["written", "to", "disk"]
    shown = {line[0]: line[-4:] for line in lines[table + 1 : table + 3]}
    assert shown == {"map": ["0", "B", "147.0", "MB"], "pipe": ["98.0", "MB", "0", "B"]}
    assert "Write (system calls) 98.0 MB" in joined(text_of(tmp_path))
    assert "Write (to disk) 147.0 MB" in joined(text_of(tmp_path))


def test_bytes_without_a_phase_stand_last(tmp_path: Path) -> None:
    about = worker(1)
    about.write(tmp_path)
    file = SampleFile(about, 1)
    file.add(Series(1, usual(), shares=[((("step", 300)),)] * ROWS))
    file.write(tmp_path)
    text = text_of(tmp_path)
    assert text.index("  step  ") < text.index("  (no phase open)  ")
    assert "70% of reads and 70% of writes" in text


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        (DENIED, "permission denied: the program has changed its user or is not dumpable"),
        (HIDDEN, "/proc hides the process (hidepid)"),
    ],
)
def test_bytes_that_nobody_may_read_have_their_reason(tmp_path: Path, missing: int, reason: str) -> None:
    unreadable = usual() | {12: missing, 13: missing, 14: missing, 15: missing}
    rows(worker(1), tmp_path, unreadable, ["step"]).write(tmp_path)
    assert f"I/O n/a: {reason}" in joined(text_of(tmp_path))
    assert "Read (from disk)" not in text_of(tmp_path)
    rows(worker(2), tmp_path, usual(), ["step"]).write(tmp_path)
    assert f"I/O n/a of 1 of 2 processes: {reason}" in joined(text_of(tmp_path))
    assert "Read (from disk) 98.0 MB" in joined(text_of(tmp_path))


def test_no_bytes_of_one_process_are_not_those_of_another(tmp_path: Path) -> None:
    """Where all that is known moved nothing, what is not known is said all the same."""
    rows(worker(1), tmp_path, usual(0), ["step"]).write(tmp_path)
    rows(worker(2), tmp_path, usual() | dict.fromkeys((12, 13, 14, 15), DENIED), ["step"]).write(tmp_path)
    text = joined(text_of(tmp_path))
    assert "Write (to disk) 0 B" in text
    assert "I/O n/a of 1 of 2 processes: permission denied" in text


@pytest.mark.parametrize("before_ms", [0, 300, 999])
def test_what_one_gives_back_while_another_takes_it_is_not_summed(tmp_path: Path, before_ms: int) -> None:
    """Each second 900 MB go from one process to the other: together they hold 1,000 MB, whenever the run began."""
    for pid in (1, 2):
        about = worker(pid)
        about.started -= before_ms * MS
        held = [(950 if k % 2 == pid % 2 else 50) << 10 for k in range(ROWS)]
        rows(about, tmp_path, usual() | {3: held, 4: [950 << 10] * ROWS, 6: held}, ["step"]).write(tmp_path)
    found = json.loads(text_of(tmp_path, "--json"))
    assert found["machine"]["used"]["rss_peak"] == found["machine"]["used"]["pss_peak"] == 1000 << 20
    assert found["machine"]["used"]["rss_max_process"] == 950 << 20
    memory = found["resources"]["memory"]
    assert (memory["last_rss"], memory["growth_bytes"], memory["largest_step_bytes"]) == (1000 << 20, 0, 0)


def test_what_is_not_measured_is_null_everywhere(tmp_path: Path) -> None:
    rows(worker(1), tmp_path, dict.fromkeys(usual(), HIDDEN), ["step"]).write(tmp_path)
    found = json.loads(text_of(tmp_path, "--json"))["resources"]
    bytes_keys = ("read_bytes", "write_bytes", "read_chars", "write_chars", "cached_read_bytes")
    for one, keys in [
        (found["processes"][0], (*bytes_keys, "cpu_s", "peak_rss")),
        (found["phases"][0], (*bytes_keys, "cpu_s", "rss_growth")),
    ]:
        assert {key: one[key] for key in keys} == dict.fromkeys(keys)
    assert (found["io"], found["memory"]) == (None, None)
    assert found["phases"][0]["seconds"] == 98.0


def test_a_counter_that_begins_anew_takes_no_other_with_it(tmp_path: Path) -> None:
    """Of the interval in which it fell nothing is known, of all others it is, and each of the four by itself."""
    about = worker(1)
    about.write(tmp_path)
    written = [k << 20 for k in range(50)] + [k << 20 for k in range(ROWS - 50)]
    series = Series(1, usual() | {13: written}, shares=[(("step", 1000),)] * ROWS)
    file = SampleFile(about, 1)
    file.batch(series, 0, 50)
    file.batch(series, 50, ROWS)
    file.write(tmp_path)
    found = json.loads(text_of(tmp_path, "--json"))["resources"]
    for one in (found["io"], found["phases"][0], found["processes"][0]):
        assert (one["write_bytes"], one["read_bytes"], one["write_chars"]) == (97 << 20, 98 << 20, 98 << 20)
    assert "step 98.0 MB 0 B 98.0 MB 97.0 MB" in joined(text_of(tmp_path))


def test_how_busy_a_host_is_where_that_is_read_seldom(tmp_path: Path) -> None:
    """Two and a half CPUs all the time: a mean over the time between two readings, and nothing of a single one."""
    for readings, mean in [((0, 11), 2.5), ((3, 14, 25), 2.5), ((0,), None), ((), None)]:
        run = tmp_path / str(readings)
        about = worker(1)
        rows(about, run, usual(), ["step"]).write(run)
        file = SampleFile(about, 2)
        busy = [2_500_000 * k if k in readings else None for k in range(ROWS)]
        file.add(Series(2, {40: [32] * ROWS, 41: busy, 61: [10_000 * k for k in range(ROWS)]}))
        file.write(run)
        found = json.loads(text_of(run, "--json"))["resources"]["hosts"]["node07"]
        assert (found["busy_cores_mean"], found["pressure_io_full"], found["sampled_s"]) == (mean, 0.01, 98.0)


def test_what_one_process_used_is_what_all_used(tmp_path: Path) -> None:
    """Its rows lie between the beginnings of intervals of the report, which would cut its busiest one in two."""
    about = worker(1)
    about.started += 400 * MS
    about.elapsed = ROWS * SECOND
    columns = usual()
    columns[1] = [500_000 * k + (500_000 if k >= 50 else 0) for k in range(ROWS)]  # one CPU in one second of all
    columns[3] = columns[4] = [(100 << 10) + (k % 7 << 10) for k in range(ROWS)]
    columns[12] = columns[13] = [90 << 20 if k >= 50 else 0 for k in range(ROWS)]
    rows(about, tmp_path, columns, ["step"]).write(tmp_path)
    found = json.loads(text_of(tmp_path, "--json"))
    [process], [host] = found["resources"]["processes"], found["resources"]["hosts"].values()
    used = found["machine"]["used"]
    assert process["cpu_cores_peak"] == host["cpu_cores_peak"] == used["cpu_cores_peak"] == 1.0
    io = found["resources"]["io"]
    assert io["read_peak_per_s"] == io["write_peak_per_s"] == 90 << 20
    for key in ("last_rss", "growth_bytes", "slope_bytes_per_s", "slope_error_bytes_per_s", "largest_step_bytes"):
        assert found["resources"]["memory"][key] == process[key], key
    assert process["last_rss"] - process["growth_bytes"] == 100 << 20


def test_what_one_of_several_used_all_used_at_least(tmp_path: Path) -> None:
    """Its busiest interval is cut in two by those of the report, and the other one sleeps."""
    for pid in (1, 2):
        about = worker(pid)
        about.started += 400 * MS
        about.elapsed = ROWS * SECOND
        columns = usual()
        columns[1] = [900_000 if pid == 1 and k >= 50 else 0 for k in range(ROWS)]
        columns[12] = columns[13] = [90 << 20 if pid == 1 and k >= 50 else 0 for k in range(ROWS)]
        rows(about, tmp_path, columns, ["step"]).write(tmp_path)
    found = json.loads(text_of(tmp_path, "--json"))
    io = found["resources"]["io"]
    assert io["read_peak_per_s"] == io["write_peak_per_s"] == 90 << 20
    [host], used = found["resources"]["hosts"].values(), found["machine"]["used"]
    assert used["cpu_cores_max_process"] == host["cpu_cores_peak"] == used["cpu_cores_peak"] == 0.9
    assert re.search(r"CPU  peak +0\.9 cores", text_of(tmp_path))


@pytest.mark.parametrize(("phases", "shown", "more"), [(5, 5, 0), (12, 12, 0), (13, 11, 2), (40, 11, 29)])
def test_what_no_phase_has_is_the_last_row(tmp_path: Path, phases: int, shown: int, more: int) -> None:
    about = worker(1)
    about.write(tmp_path)
    file = SampleFile(about, 1)
    names = [f"phase {k}" for k in range(phases)]
    shares: list[tuple[Share, ...]] = [((names[k % phases], 900),) for k in range(ROWS)]
    file.add(Series(1, usual(), shares=shares))
    file.write(tmp_path)
    for options in ([], ["--all"]):
        text = text_of(tmp_path, *options, env=environment(LC_ALL="C"))
        rows = re.findall(r"(?m)^  (phase \d+|\.\. \d+ more|\(no phase open\)) ", text[text.index("I/O (sampled)") :])
        hidden = [f".. {more} more"] if more and not options else []
        assert rows[-1 - len(hidden) :] == [*hidden, "(no phase open)"]
        assert len(rows) == len(hidden) + 1 + (phases if options else shown), text


def test_what_several_used_in_one_interval(tmp_path: Path) -> None:
    """The ticks of their collector are no beginnings of seconds of the run, but the same for all."""
    for pid in (1, 2, 3):
        about = worker(pid)
        about.started += 400 * MS
        about.elapsed = ROWS * SECOND
        columns = usual()
        columns[1] = [800_000 if k >= 50 else 0 for k in range(ROWS)]
        columns[12] = columns[13] = [90 << 20 if k >= 50 else 0 for k in range(ROWS)]
        rows(about, tmp_path, columns, ["step"]).write(tmp_path)
    found = json.loads(text_of(tmp_path, "--json"))
    [host], used, io = found["resources"]["hosts"].values(), found["machine"]["used"], found["resources"]["io"]
    assert (
        host["cpu_cores_peak"] == used["cpu_cores_peak"] == pytest.approx(2.4, rel=0.002)
    )  # a row is 1 ms late at most
    assert io["read_peak_per_s"] == io["write_peak_per_s"] == pytest.approx(270 << 20, rel=0.002)


@pytest.mark.parametrize("processes", [1, 2])
def test_memory_that_was_held_between_two_samples(tmp_path: Path, processes: int) -> None:
    """The kernel keeps the most that a process ever held: neither process nor run held less at its peak."""
    for pid in range(1, processes + 1):
        about = worker(pid)
        about.elapsed = ROWS * SECOND
        held = {4: [(700 if pid == 1 and k >= 50 else 100) << 10 for k in range(ROWS)]}
        rows(about, tmp_path, usual() | held, ["step"]).write(tmp_path)
    found, text = json.loads(text_of(tmp_path, "--json")), text_of(tmp_path)
    [host], used = found["resources"]["hosts"].values(), found["machine"]["used"]
    most = 600 + 100 * processes
    assert used["rss_max_process"] == 700 << 20
    assert used["rss_peak"] == host["rss_peak"] == found["resources"]["memory"]["peak_rss"] == most << 20
    assert re.search(rf"RAM  peak RSS +{most}\.0 MB", text)
    assert re.search(rf"(?m)^Peak +{most}\.0 MB$", text)


def test_a_burst_on_a_narrow_page(tmp_path: Path) -> None:
    """48 columns of a run do not fit: none of them is left out, whenever the burst was."""
    for burst in range(2, ROWS, 2):
        columns = usual(0) | {13: [(100 << 20) if k >= burst else 0 for k in range(ROWS)]}
        rows(worker(1), tmp_path, columns, ["step"]).write(tmp_path)
        text = text_of(tmp_path, env=environment(COLUMNS="64", LC_ALL="C.UTF-8"))
        [bar] = re.findall(r"(?m)^  write (.*) peak 100\.0 MB/s$", text)
        assert bar.strip(" \N{MIDDLE DOT}"), burst


@pytest.mark.parametrize("into_ms", [0, 300, 900])
def test_bars_of_memory_end_where_samples_do(tmp_path: Path, into_ms: int) -> None:
    """Whenever the run began: what was sampled to its end has no column that looks as if it was not."""
    first, about = worker(1), worker(2)
    first.started += SECOND - into_ms * MS
    first.elapsed = 1 * MS
    first.write(tmp_path)
    about.started += SECOND
    about.elapsed = 4 * SECOND + 150 * MS
    about.write(tmp_path)
    file = SampleFile(about, 1)
    columns = {column: v if isinstance(v, int) else v[:6] for column, v in usual().items()}
    file.add(Series(1, columns, early_us=850_000))
    file.write(tmp_path)
    text = text_of(tmp_path, env=environment(COLUMNS="80", LC_ALL="C.UTF-8"))
    bars = [re.findall(rf"(?m)^  {name} +([^ ].*) peak", text)[0].count("\N{MIDDLE DOT}") for name in ("write", "RSS")]
    assert bars == [0, 0], text


def test_bars_of_a_time_without_any_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is as unknown as bytes are, also where the next process begins between two ticks."""
    first, second = worker(1), worker(2)
    first.started += 300 * MS
    first.elapsed = 3 * SECOND + 700 * MS
    second.started += 7 * SECOND + 300 * MS
    second.elapsed = 4 * SECOND
    for about in (first, second):
        about.write(tmp_path)
        file = SampleFile(about, 1)
        series = Series(1, {column: v if isinstance(v, int) else v[:12] for column, v in usual().items()})
        file.batch(series, *((0, 4) if about is first else (6, 11)))
        file.write(tmp_path)
        monkeypatch.setattr(samplefile, "START", samplefile.START + 300 * MS)
        monkeypatch.setattr(samplefile, "MONO", samplefile.MONO + 300 * MS)
    text = text_of(tmp_path, env=environment(COLUMNS="80", LC_ALL="C.UTF-8"))
    gaps = [re.findall(rf"(?m)^  {name} +([^ ].*) peak", text)[0] for name in ("write", "RSS")]
    assert gaps[0].count("\N{MIDDLE DOT}") > 8
    assert [c == "\N{MIDDLE DOT}" for c in gaps[0]] == [c == "\N{MIDDLE DOT}" for c in gaps[1]], text


def test_memory_of_a_run_that_is_shorter_than_an_interval(tmp_path: Path) -> None:
    """What all processes held together at the end is a figure of an interval; without one there is a reason."""
    about = Worker("r", "node07", 1, elapsed=SECOND + 200 * MS)
    about.phase("step", 1, 1000 * MS, 1000 * MS)
    for seconds, reason in [
        (1, "end and growth n/a: no interval (1.00s) was sampled for half of it"),
        (2, "growth n/a: only one interval (1.00s) was sampled for half of it"),
        (3, None),
    ]:
        run = tmp_path / str(seconds)
        about.elapsed = seconds * SECOND + 200 * MS
        first = {column: known[:seconds] for column, known in usual().items() if isinstance(known, list)}
        about.write(run)
        file = SampleFile(about, 1)
        file.add(Series(1, first, shares=[(("step", 1000),)] * seconds))
        file.write(run)
        memory = joined("\n".join(section(text_of(run), "MEMORY (RSS)")))
        assert ("At the end n/a" in memory) == (seconds == 1)
        assert ("n/a:" in memory) == (reason is not None)
        assert (reason or "") in memory


def test_a_process_of_which_nothing_is_known(tmp_path: Path) -> None:
    """Hidden by /proc: no figure is zero, each is n/a with that reason, and sections stay."""
    rows(worker(1), tmp_path, dict.fromkeys(usual(), HIDDEN), ["step"]).write(tmp_path)
    text = joined(text_of(tmp_path))
    assert "CPU peak n/a" in text
    assert "RAM peak RSS n/a" in text
    for what in ("CPU", "RSS", "PSS", "I/O"):
        assert f"{what} n/a: /proc hides the process (hidepid)" in text
    assert "MEMORY (RSS)" not in text


def test_shared_pages_are_not_added_up_of_some_only(tmp_path: Path) -> None:
    rows(worker(1), tmp_path, usual(), ["step"]).write(tmp_path)
    assert "RAM peak PSS 80.0 MB (shared pages once)" in joined(text_of(tmp_path))
    rows(worker(2), tmp_path, usual() | {6: 6}, ["step"]).write(tmp_path)
    text = joined(text_of(tmp_path))
    assert "RAM peak PSS n/a n/a" in text
    assert "PSS n/a of 1 of 2 processes: not read above 500 MB: the program's memory would be held up" in text


def device_rows(ours: int | list[int]) -> Series:
    columns: dict[int, list[int] | int] = {
        80: [300] * ROWS,
        81: [1 << 20] * ROWS,
        82: [80 << 20] * ROWS,
        86: ours,
        87: ours,
    }
    return Series(3, columns, 0, "A GPU")


@pytest.mark.parametrize("torch", [True, False])
def test_a_driver_that_does_not_know_our_numbers(tmp_path: Path, torch: bool) -> None:
    """In a container. Phases of a process that says itself that it uses a device have the device as a whole."""
    about = worker(1)
    columns = usual() | ({26: [300 << 10] * ROWS, 27: [400 << 10] * ROWS} if torch else {26: NOT_USED, 27: NOT_USED})
    rows(about, tmp_path, columns, ["step"]).write(tmp_path)
    file = host(about, 0.0, False)
    file.add(device_rows(NAMESPACE))
    file.write(tmp_path)
    text = text_of(tmp_path)
    assert "GPU 0 30.0% n/a 70.0% 1.0 GB n/a" in joined("\n".join(section(text, "GPU (sampled)")))
    assert "this run n/a: the GPU library knows other process numbers (pid namespace)" in joined(text)
    assert ("GPU BY PHASE" in text) == torch
    if torch:
        assert "step 30% 30% 300.0 MB 98" in joined("\n".join(section(text, "GPU BY PHASE")))


def test_nobody_looked_for_devices(tmp_path: Path) -> None:
    """A host without rows of its own: whether it has devices is not known."""
    about = worker(1)
    rows(about, tmp_path, usual(), ["step"]).write(tmp_path)
    assert "GPU not sampled\n" in text_of(tmp_path)
    host(about, 0.0, False).write(tmp_path)
    assert "GPU none seen: no NVIDIA driver, no AMD device" in text_of(tmp_path)


def test_nothing_of_ours_on_a_device_is_a_measured_zero(tmp_path: Path) -> None:
    about = worker(1)
    rows(about, tmp_path, usual(), ["step"]).write(tmp_path)
    file = host(about, 0.0, False)
    file.add(device_rows([0] * ROWS))
    file.write(tmp_path)
    shown = joined("\n".join(section(text_of(tmp_path), "GPU (sampled)")))
    assert shown.endswith("GPU 0 30.0% 0.0% 70.0% 1.0 GB 0 B")


def test_a_library_that_does_not_work_is_no_device(tmp_path: Path) -> None:
    about = worker(1)
    rows(about, tmp_path, usual(), ["step"]).write(tmp_path)
    file = host(about, 0.0, False)
    file.add(Series(3, dict.fromkeys((80, 81, 82, 83, 84, 86, 87), NO_DRIVER), 0, "GPU"))
    file.write(tmp_path)
    text = text_of(tmp_path)
    assert "GPU none seen: the NVIDIA driver does not answer its library" in text
    assert "GPU  devices" not in text


def test_samples_that_end_before_their_process(tmp_path: Path) -> None:
    """A file that is cut off is no process that has ended: sums are of the time in which all are known.

    The last row that is left, of second 60, counts until 61 and for the interval that begins there: 38 of 100 are left
    out.
    """
    for pid in (1, 2):
        about = Worker("r", "node07", pid, elapsed=100 * SECOND)
        about.phase("step", 1, 1000 * MS, 1000 * MS)
        path = rows(about, tmp_path, usual(), ["step"]).write(tmp_path)
    whole = "\n".join(section(text_of(tmp_path), "MEMORY (RSS)"))
    assert "At the end 200.0 MB" in joined(whole)
    assert "left out" not in whole
    path.write_bytes(path.read_bytes()[:-1])  # without its last batch: 60 rows are left of 99
    memory = "\n".join(section(text_of(tmp_path), "MEMORY (RSS)"))
    assert "Last known 200.0 MB" in joined(memory)
    assert "Growth over run 0 B" in joined(memory)
    assert "samples of 1 of 2 process(es) end before it did (cut off, or not written yet): 38.00s in" in joined(memory)
    document = json.loads(lineprofiler("report", str(tmp_path), "--json").expect().stdout)["resources"]
    assert document["memory"]["unseen_processes"] == 1
    assert document["memory"]["unseen_s"] == 38.0
    assert document["memory"]["last_rss"] == 200 << 20
    assert [round(process["unseen_s"]) for process in document["processes"]] == [0, 41]  # 60 rows at 1 … 60 s
