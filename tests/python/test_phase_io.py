"""io=True: the bytes that a program moved inside a phase, exactly and without ours."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lptest import run_python
from phases import MS, check_sane, recording, spin, stats_of

from lineprofiler import accounting
from lineprofiler.accounting import PhaseStats, Profiler

phase, count, current = accounting.phase, accounting.count, accounting.current


@pytest.fixture
def profiler(run_dir: Path) -> Iterator[Profiler]:
    with recording(run_dir) as made:
        yield made
        check_sane(made)


N = 4 << 20


def io_of(stats: PhaseStats) -> dict[str, int]:
    return {name[3:]: value for name, value in stats.counters.items() if name.startswith("io_")}


def test_io_that_moves_nothing(profiler: Profiler) -> None:
    """Our own reads of /proc are no bytes of the program, however the entries are nested."""
    for _ in range(50):
        with phase("empty", io=True), phase("inner", io=True):
            spin(MS // 10)
    for path in ("empty", "empty/inner"):
        assert io_of(stats_of(profiler, path)) == {}
        assert stats_of(profiler, path).io
    assert not stats_of(profiler, "empty").io_overlap


def test_io_is_exact(profiler: Profiler, tmp_path: Path) -> None:
    path = tmp_path / "data"
    block = os.urandom(1 << 16)
    with phase("write", io=True):
        with open(path, "wb", buffering=0) as file:
            for _ in range(N // len(block)):
                file.write(block)
            os.fsync(file.fileno())
    with phase("read warm", io=True):
        with open(path, "rb", buffering=0) as file:
            while file.read(len(block)):
                pass
    with phase("both", io=True):
        with phase("inner", io=True):
            with open(path, "rb", buffering=0) as file:
                file.read(1000)
        with open(path, "r+b", buffering=0) as file:
            file.write(b"x" * 300)
    written, read = io_of(stats_of(profiler, "write")), io_of(stats_of(profiler, "read warm"))
    assert written["write_chars"] == N
    assert read["read_chars"] == N
    assert "write_chars" not in read
    assert "read_chars" not in written
    # Block device: whole pages, and what the file system writes about the file. A tmpfs has none.
    assert written.get("write_bytes", 0) == 0 or N <= written["write_bytes"] <= N + (1 << 20)
    assert read.get("read_bytes", 0) == 0
    both, inner = io_of(stats_of(profiler, "both")), io_of(stats_of(profiler, "both/inner"))
    assert (inner["read_chars"], inner.get("write_chars", 0)) == (1000, 0)
    assert (both["read_chars"], both["write_chars"]) == (1000, 300)


def test_io_of_many_entries_has_their_range(profiler: Profiler) -> None:
    sink = os.open("/dev/null", os.O_WRONLY)
    for size in (10, 200, 3000):
        with phase("write", io=True):
            os.write(sink, b"x" * size)
    os.close(sink)
    stats = stats_of(profiler, "write")
    assert io_of(stats) == {"write_chars": 3210}
    assert (stats.counter_min["io_write_chars"], stats.counter_max["io_write_chars"]) == (10, 3000)
    assert stats.counter_calls["io_write_chars"] == 3


def write_in_thread(size: int, passes: int, pause: threading.Event | None = None) -> threading.Thread:
    def work() -> None:
        sink = os.open("/dev/null", os.O_WRONLY)
        for _ in range(passes):
            os.write(sink, b"x" * size)
        os.close(sink)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_io_of_the_process_and_of_the_thread(profiler: Profiler) -> None:
    sink = os.open("/dev/null", os.O_WRONLY)
    with phase("process", io=True):
        write_in_thread(1000, 10).join()
        os.write(sink, b"x" * 7)
    with phase("thread", io="thread"):
        write_in_thread(1000, 10).join()
        os.write(sink, b"x" * 7)
    os.close(sink)
    assert io_of(stats_of(profiler, "process"))["write_chars"] == 10_007
    assert io_of(stats_of(profiler, "thread")) == {"write_chars": 7}
    assert not stats_of(profiler, "thread").io_overlap


def test_io_of_overlapping_threads_is_marked(profiler: Profiler) -> None:
    inside = threading.Barrier(2)

    def work(name: str, **options: Any) -> None:
        with phase(name, **options):
            inside.wait()
            inside.wait()

    def both(*names: str, **options: Any) -> None:
        threads = [threading.Thread(target=work, args=(name,), kwargs=options) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    both("a", "b", io=True)
    assert stats_of(profiler, "a").io_overlap
    assert stats_of(profiler, "b").io_overlap
    both("c", "d", io="thread")
    assert not stats_of(profiler, "c").io_overlap
    for _ in range(3):
        with phase("alone", io=True), phase("inner", io=True):
            pass
    assert not stats_of(profiler, "alone").io_overlap
    assert not stats_of(profiler, "alone/inner").io_overlap


def test_io_of_children_that_were_waited_for_is_marked(profiler: Profiler) -> None:
    """The kernel adds all that a child has moved when it is waited for: in the phase in which that happens."""

    def child() -> int:
        pid = os.fork()
        if pid == 0:
            sink = os.open("/dev/null", os.O_WRONLY)
            os.write(sink, b"x" * 5000)
            os._exit(0)
        return pid

    with phase("none", io=True):
        pass
    with phase("outer", io=True):
        with phase("before", io=True):
            pid = child()
        with phase("waits", io=True):
            os.waitpid(pid, 0)
        with phase("after", io=True):
            pass
    with phase("thread", io="thread"):
        os.waitpid(child(), 0)
    with phase("late", io=True):
        pass
    marked = [path for path, stats in profiler.merged_tree().items() if stats.io_overlap]
    assert sorted(marked) == [("outer",), ("outer", "waits")]
    assert io_of(stats_of(profiler, "outer/waits"))["write_chars"] >= 5000
    assert "write_chars" not in io_of(stats_of(profiler, "thread"))


def test_own_snapshots_are_no_bytes_of_the_program(profiler: Profiler) -> None:
    """Snapshots that fall into the phase, by this thread and by another, while the program writes too."""
    sink = os.open("/dev/null", os.O_WRONLY)
    with phase("io", io=True):
        for _ in range(5):
            profiler.snapshot()
            os.write(sink, b"x" * 100)
    other = threading.Thread(target=lambda: [profiler.snapshot() for _ in range(20)])
    with phase("beside", io=True):
        other.start()
        for _ in range(2000):
            os.write(sink, b"x" * 100)
        other.join()
    with phase("thread", io="thread"):
        profiler.snapshot()
        os.write(sink, b"x" * 100)
    os.close(sink)
    assert io_of(stats_of(profiler, "io")) == {"write_chars": 500}
    assert io_of(stats_of(profiler, "beside")) == {"write_chars": 200_000}
    assert io_of(stats_of(profiler, "thread")) == {"write_chars": 100}


def test_io_counters_leave_out_our_own(profiler: Profiler) -> None:
    before = profiler.io_counters()
    assert before.available
    for _ in range(5):
        profiler.snapshot()
        with phase("io", io=True):
            pass
    after = profiler.io_counters()
    assert after.write_chars - before.write_chars == 0
    assert after.read_chars - before.read_chars == 0
    sink = os.open("/dev/null", os.O_WRONLY)
    os.write(sink, b"x" * 123)
    os.close(sink)
    assert profiler.io_counters().write_chars - before.write_chars == 123


def test_io_in_a_forked_child(run_dir: Path) -> None:
    """The kernel's counters of a child start at 0; so do ours."""
    run_python(
        """
        import os, sys, traceback
        from lineprofiler import accounting
        from lineprofiler.accounting import phase
        profiler = accounting.Profiler(sys.argv[1], install=True, snapshot_interval_s=None)
        for _ in range(20):
            profiler.snapshot()
        profiler.merged_tree()  # what it imports is the parent's reading
        with phase("parent", io=True):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    assert profiler.io_counters().write_chars < 1 << 20
                    sink = os.open("/dev/null", os.O_WRONLY)
                    with phase("child", io=True):
                        os.write(sink, b"x" * 50)
                    counters = profiler.merged_tree()[("child",)].counters
                    assert counters == {"io_write_chars": 50}, counters
                    own = profiler.io_counters()
                    assert 50 <= own.write_chars < 1 << 20 and own.read_chars < 1 << 20, own
                    status = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stderr.flush()
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        """,
        run_dir,
    ).expect()


def test_descriptors_closed_by_the_program(run_dir: Path) -> None:
    """A daemon's closerange, and the numbers used again for the program's own files: they are never closed or read."""
    run_python(
        """
        import os, resource, sys, threading
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))  # ours would be above 9999 otherwise
        from lineprofiler import accounting
        from lineprofiler.accounting import phase

        def io_of(name):
            return {k: v for k, v in profiler.merged_tree()[(name,)].counters.items()}

        profiler = accounting.Profiler(sys.argv[1], install=True, snapshot_interval_s=None)
        def use(name):
            out = os.open("/dev/null", os.O_WRONLY)
            with phase(name, io=True):
                os.write(out, b"x" * 10)
                os.sched_yield()
            os.close(out)
            assert io_of(name) == {"io_write_chars": 10}, io_of(name)
        use("before")
        ours = [int(n) for n in os.listdir("/proc/self/fd") if int(n) > 2]
        assert [n for n in ours if n > 700], ours
        os.closerange(3, 9999)
        use("after closerange")
        # Closed again, and the very numbers given to files of the program.
        ours = [int(n) for n in os.listdir("/proc/self/fd") if int(n) > 700]
        os.closerange(3, 9999)
        mine = os.open(sys.argv[1] + "/mine", os.O_RDWR | os.O_CREAT)
        os.write(mine, b"1 2 3 4 5 6 7 8 9\\n" * 100)
        for number in ours:
            os.dup2(mine, number)
        use("reused")
        thread = threading.Thread(target=use, args=("thread",))
        thread.start()
        thread.join()
        use("again")
        profiler.close()
        for number in ours:
            assert os.fstat(number).st_ino == os.fstat(mine).st_ino
        left = [int(n) for n in os.listdir("/proc/self/fd") if int(n) > 700]
        left = [n for n in left if n not in ours and os.path.exists(f"/proc/self/fd/{n}")]
        assert left == [], left
        """,
        run_dir,
    ).expect()


def test_descriptors_are_gone_after_close(run_dir: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with recording(run_dir):
        with phase("io", io=True), phase("inner", io="thread"):
            pass
        threads = [threading.Thread(target=lambda: phase("t", io=True).__enter__()) for _ in range(5)]
        for thread in threads:
            thread.start()
            thread.join()
    assert set(os.listdir("/proc/self/fd")) == before


def test_no_descriptor_left_to_have(run_dir: Path) -> None:
    """At the limit of open files the bytes cannot be read: counted, and nothing else changes."""
    run_python(
        """
        import os, resource, sys
        from lineprofiler import accounting
        from lineprofiler.accounting import phase
        profiler = accounting.Profiler(sys.argv[1], install=True, snapshot_interval_s=None)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        held = []
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        with phase("io", io=True):
            pass
        for fd in held:
            os.close(fd)
        stats = profiler.merged_tree()[("io",)]
        assert (stats.calls, stats.io_missing, stats.counters) == (1, 1, {}), stats
        with phase("io", io=True):
            pass
        stats = profiler.merged_tree()[("io",)]
        assert (stats.calls, stats.io_missing) == (2, 1), stats
        profiler.close()
        """,
        run_dir,
    ).expect()
