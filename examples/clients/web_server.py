"""uvicorn: two worker processes that serve a client. What does a request cost, and how much of it is waiting?

    python examples/clients/web_server.py RUN_DIR        then: lineprofiler report RUN_DIR

`app` is a plain ASGI application. Each worker takes a profiler as its life begins and closes it as it ends; requests
of one worker overlap in time, and each has its own stack of phases, since phases nest per task. The program starts
uvicorn, asks eighty times, eight requests at once, stops the server with SIGTERM, and checks the figures.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lineprofiler import accounting
from lineprofiler.accounting import Profiler, merge_run

WORKERS, REQUESTS = 2, 80
Message = dict[str, Any]


async def app(scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Any]) -> None:
    if scope["type"] == "lifespan":
        await live(receive, send)
        return
    with accounting.phase("request"):
        with accounting.phase("query"):
            await asyncio.sleep(0.01)  # a database would be asked here
        with accounting.phase("render"):
            body = json.dumps({"path": scope["path"], "squares": [n * n for n in range(200)]}).encode()
        with accounting.phase("send"):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": body})
            accounting.count("bytes", len(body))


async def live(receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Any]) -> None:
    await receive()
    accounting.start(role="web worker")
    await send({"type": "lifespan.startup.complete"})
    await receive()
    accounting.stop()
    await send({"type": "lifespan.shutdown.complete"})


def ask(address: str) -> int:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return len(answer.read())


def main(run_dir: str) -> None:
    with Profiler(run_dir, role="client") as profiler, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)  # so that the first requests wait for the server instead of failing
        command = [sys.executable, "-m", "uvicorn", "web_server:app", "--log-level", "warning"]
        command += ["--workers", str(WORKERS), "--fd", str(listener.fileno())]
        server = subprocess.Popen(command, cwd=Path(__file__).parent, pass_fds=[listener.fileno()])
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/page"
        with profiler.phase("ask"), ThreadPoolExecutor(8) as pool:
            sizes = list(pool.map(ask, [address] * REQUESTS))
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) in (0, -signal.SIGTERM)

    run = merge_run(run_dir)
    assert 1 <= len(run.workers_of("web worker")) <= WORKERS
    tree = run.tree_of("web worker")
    for name in ("query", "render", "send"):
        assert tree[("request", name)].calls == REQUESTS
    assert tree[("request", "send")].counters == {"bytes": sum(sizes)}
    assert tree[("request", "query")].wall_ns >= REQUESTS * 10_000_000  # each waits for 10 ms
    assert os.path.isdir(run_dir)


if __name__ == "__main__":
    main(sys.argv[1])
