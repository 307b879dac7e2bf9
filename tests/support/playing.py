"""Plays a program that is given as data: phases, counts, threads, tasks, generators, forks and ends.

The same player moves the real recorder, in processes of its own (this file run as a program), and the model of
playmodel.py. What is played is a list of statements, each a list whose first item is its kind; see `Player.statement`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Protocol

Body = list[list[Any]]

# A thread that was joined may still be counted by the kernel when the program forks, which Python (3.12) goes by.
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)


class Trouble(Exception):
    """What `raise` raises; each thread, task and process catches it at its outermost statement."""


class Api(Protocol):
    def phase(self, ident: int, name: str, submits: bool) -> contextlib.AbstractContextManager[None]: ...
    def hold(self, ident: int, name: str) -> None: ...
    def drop(self, name: str, inside: Callable[[], None]) -> None: ...
    def function(self, name: str, call: Callable[[], None]) -> None: ...
    def generator(self, name: str, steps: Callable[[], Iterator[None]]) -> Iterator[None]: ...
    def count(self, name: str, amount: int) -> None: ...
    def snapshot(self) -> None: ...
    def close(self) -> None: ...
    def end(self, how: str) -> None: ...
    def fork(self, play: Callable[[], None], end: str) -> None: ...
    def threads(self, plays: list[Callable[[], None]]) -> None: ...
    def around(self) -> Any: ...
    def task(self, around: Any) -> None: ...
    def check(self) -> None: ...


class Player:
    def __init__(self, api: Api) -> None:
        self.api = api

    def root(self, body: Body) -> None:
        with contextlib.suppress(Trouble):
            self.body(body)

    def body(self, body: Body) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, statement: list[Any]) -> None:
        kind, *rest = statement
        getattr(self, "play_" + kind)(*rest)

    # ---- statements that any thread or task plays

    def play_phase(self, ident: int, name: str, submits: bool, body: Body) -> None:
        with self.api.phase(ident, name, submits):
            self.body(body)

    def play_count(self, name: str, amount: int) -> None:
        self.api.count(name, amount)

    def play_raise(self) -> None:
        raise Trouble

    def play_try(self, body: Body) -> None:
        self.root(body)

    def play_hold(self, ident: int, name: str) -> None:
        """Enters a phase that is never left."""
        self.api.hold(ident, name)

    def play_drop(self, name: str, body: Body) -> None:
        """Enters a phase and lets go of it instead of leaving it."""
        self.api.drop(name, lambda: self.body(body))

    def play_function(self, name: str, body: Body) -> None:
        self.api.function(name, lambda: self.body(body))

    # ---- generators

    def across(self, ident: int, name: str, yields: int) -> Iterator[None]:
        with self.api.phase(ident, name, False):
            for _ in range(yields):
                yield

    def play_generator(self, ident: int, name: str, yields: int, most: int, body: Body) -> None:
        """A phase that is open across yields; the consumer stops after `most`."""
        generator = self.across(ident, name, yields)
        try:
            for n, _ in enumerate(generator):
                self.body(body)
                if n + 1 == most:
                    break
        finally:
            generator.close()  # type: ignore[attr-defined]

    def play_interleaved(self, ident: int, one: str, other: str, body: Body) -> None:
        """Two of them, the first to begin is the first to end."""
        first, second = self.across(ident, one, 1), self.across(ident + 1, other, 1)
        next(first)
        next(second)
        next(first, None)
        try:
            self.root(body)
        finally:
            next(second, None)

    def play_steps(self, name: str, steps: list[Body], body: Body) -> None:
        """A decorated generator: an entry each step."""

        def generator() -> Iterator[None]:
            for step in steps:
                self.body(step)
                yield

        entered = self.api.generator(name, generator)
        try:
            for _ in entered:
                self.root(body)
        finally:
            entered.close()  # type: ignore[attr-defined]

    # ---- threads and tasks

    def play_threads(self, bodies: list[Body]) -> None:
        self.api.threads([lambda body=body: self.root(body) for body in bodies])  # type: ignore[misc]

    def play_tasks(self, ident: int, name: str, bodies: list[Body]) -> None:
        """An event loop; its first task has a phase open around the others, which is not around them."""
        around = self.api.around()

        async def main() -> None:
            self.api.task(around)
            with self.api.phase(ident, name, False):
                await asyncio.gather(*(self.task(around, body) for body in bodies))

        asyncio.run(main())
        self.api.check()

    async def task(self, around: Any, body: Body) -> None:
        self.api.task(around)
        with contextlib.suppress(Trouble):
            await self.body_of_task(body)

    async def body_of_task(self, body: Body) -> None:
        for kind, *rest in body:
            if kind == "phase":
                ident, name, submits, inside = rest
                with self.api.phase(ident, name, submits):
                    await self.body_of_task(inside)
            elif kind == "sleep":
                await asyncio.sleep(0)
            else:
                self.statement([kind, *rest])

    def play_sleep(self) -> None:
        time.sleep(0)

    # ---- what only the main thread plays

    def play_snapshot(self) -> None:
        self.api.snapshot()

    def play_close(self) -> None:
        self.api.close()

    def play_end(self, how: str) -> None:
        self.api.end(how)

    def play_fork(self, body: Body, end: str) -> None:
        self.api.fork(lambda: self.root(body), end)
        self.api.check()


class Recorder:
    """The real thing. What it did is appended to a file line by line: who forked whom, and how long each phase took by
    a clock that is read inside of it and around it."""

    def __init__(self, run_dir: str, log: str) -> None:
        from lineprofiler.accounting import Profiler

        self.profiler = Profiler(run_dir, role="played", snapshot_interval_s=None, sample_interval_s=None)
        self.log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.held: list[Any] = []

    def say(self, *words: object) -> None:
        os.write(self.log, (" ".join(map(str, words)) + "\n").encode())

    @contextlib.contextmanager
    def phase(self, ident: int, name: str, submits: bool) -> Iterator[None]:
        pid, began = os.getpid(), time.perf_counter_ns()
        inside = left = 0
        try:
            with self.profiler.phase(name, async_work=submits):
                inside = time.perf_counter_ns()
                try:
                    yield
                finally:
                    left = time.perf_counter_ns()
        finally:
            if pid == os.getpid():
                self.say("phase", pid, ident, left - inside, time.perf_counter_ns() - began)

    def hold(self, ident: int, name: str) -> None:
        scope = self.profiler.phase(name)
        scope.__enter__()
        self.held.append(scope)

    def drop(self, name: str, inside: Callable[[], None]) -> None:
        scope = self.profiler.phase(name)
        scope.__enter__()
        try:
            inside()
        finally:
            del scope

    def function(self, name: str, call: Callable[[], None]) -> None:
        self.profiler.phase(name)(lambda: call())()

    def generator(self, name: str, steps: Callable[[], Iterator[None]]) -> Iterator[None]:
        return self.profiler.phase(name)(steps)()

    def count(self, name: str, amount: int) -> None:
        self.profiler.count(name, amount)

    def snapshot(self) -> None:
        self.profiler.snapshot()

    def close(self) -> None:
        self.profiler.close()

    def end(self, how: str) -> None:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how.startswith("_exit"):
            os._exit(int(how[5:]))
        elif how == "closed":
            self.profiler.close()
            os._exit(0)
        self.held.clear()  # at a moment that is known: when an interpreter gets to it is its own affair
        sys.exit(0)

    def fork(self, play: Callable[[], None], end: str) -> None:
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            self.say("fork", parent, os.getpid())
            try:
                play()
                self.end(end)
            except BaseException as error:
                if not isinstance(error, SystemExit):
                    os.write(2, f"{error!r}\n".encode())
                    os._exit(77)
                raise
        status = os.waitpid(pid, 0)[1]
        assert status != 77 << 8, "the child failed"

    def threads(self, plays: list[Callable[[], None]]) -> None:
        threads = [threading.Thread(target=play) for play in plays]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def around(self) -> Any: ...

    def task(self, around: Any) -> None: ...

    def check(self) -> None: ...


def main() -> None:
    run_dir, log, program = sys.argv[1:4]
    with open(program, encoding="utf-8") as file:
        body, end = json.load(file)
    recorder = Recorder(run_dir, log)
    recorder.say("start", os.getpid())
    Player(recorder).root(body)
    recorder.end(end)


if __name__ == "__main__":
    main()
