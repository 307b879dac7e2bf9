"""The thread behind ``Profiler.on_snapshot``: the only thread that accounting ever makes, and only if asked for.

Every ``snapshot_interval_s`` it writes a snapshot and calls the callbacks. It is stopped while the process forks, so
that a fork happens without it (Python 3.12 and later warn of threads), and does not exist in the child: callbacks
hold connections and files that belong to the process that registered them.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lineprofiler.accounting._profiler import Profiler

JOIN_S = 1.0
"""How long a fork or a close waits for a callback that is running, s."""
LONGEST_WAIT_S = 3600.0
"""Of one wait: an interval may be longer than any lock can wait."""

_tickers: set[Ticker] = set()
_guarded = False


class Ticker:
    """One profiler's timer."""

    def __init__(self, profiler: Profiler, interval_s: float) -> None:
        # Weak: a profiler that nobody holds any more must be able to die.
        self._profiler = weakref.ref(profiler)
        self._interval = interval_s
        self._next = time.monotonic() + interval_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._forking: set[int] = set()  # threads that are in fork() now
        self._ended = False
        self._process = os.getpid()  # in a child the thread is not, and who held the lock may be missing
        # Several threads may fork at once. Of one thread twice: a signal's handler that forks.
        self._changing = threading.RLock()

    def start(self) -> None:
        """Starts the thread. Raises RuntimeError where no thread can be started."""
        _guard_forks()
        with self._changing:
            _tickers.add(self)
            self._begin()

    def stop(self) -> None:
        """Ends the thread for good; waits up to a second for a callback that is running."""
        self._ended = True
        _tickers.discard(self)
        if os.getpid() == self._process:
            with self._changing:
                self._end()

    def _begin(self) -> None:
        self._stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(self._stop,), name="lineprofiler-on-snapshot", daemon=True)
        thread.start()
        self._thread = thread

    def _end(self) -> None:
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is None or thread is threading.current_thread():
            return
        thread.join(JOIN_S)
        if thread.native_id is not None and not thread.is_alive():
            _await_kernel(thread.native_id)

    def _run(self, stop: threading.Event) -> None:
        process = os.getpid()
        while not stop.wait(min(max(self._next - time.monotonic(), 0.0), LONGEST_WAIT_S)):
            if time.monotonic() < self._next:
                continue
            profiler = self._profiler()
            if profiler is None:
                _tickers.discard(self)
                return
            profiler._tick()
            if os.getpid() != process:
                return  # the callback forked and this is the child
            del profiler
            # Missed ticks are skipped: a slow callback must not be followed by a burst.
            late = time.monotonic() - self._next
            self._next += self._interval * max(1, int(late / self._interval) + 1)

    def pause(self) -> None:
        """Before a fork. A callback that forks cannot wait for itself: there the thread stays."""
        if threading.current_thread() is not self._thread and os.getpid() == self._process:
            with self._changing:
                self._forking.add(threading.get_ident())
                self._end()

    def resume(self) -> None:
        """In the parent, after it."""
        if threading.get_ident() not in self._forking or os.getpid() != self._process:
            return
        with self._changing:
            self._forking.discard(threading.get_ident())
            if not self._forking and self._thread is None and not self._ended and self._profiler() is not None:
                with contextlib.suppress(RuntimeError):  # no thread to be had: callbacks end, the program goes on
                    self._begin()


def _await_kernel(native_id: int) -> None:
    """Until the kernel has forgotten a thread: join() returns a little before that on Python 3.12 and earlier, and a
    fork in between would warn of a thread that is as good as gone."""
    deadline = time.monotonic() + 0.05
    while os.path.exists(f"/proc/self/task/{native_id}") and time.monotonic() < deadline:
        time.sleep(0.0002)


def _guard_forks() -> None:
    global _guarded
    if not _guarded:
        _guarded = True
        os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)


def _before_fork() -> None:
    for ticker in list(_tickers):
        ticker.pause()


def _after_in_parent() -> None:
    for ticker in list(_tickers):
        ticker.resume()


def _after_in_child() -> None:
    _tickers.clear()
