"""The last part of `make fuzz`: damaged snapshot files against the sanitized stand-alone command, as a user calls it.

A small real run is recorded; its files are then cut, flipped, spliced and lied about, and `report` and `dump` read
them. Whatever a file holds, the command must end with 0 or 2, in time, within bounded memory and without a word from a
sanitizer; each file that breaks a rule is kept with the seed that made it.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import envs
from envs import BUILD, SetupError, say

KEPT = BUILD / "fuzz" / "kept" / "command"
LIMIT_S = 20
# A claimed length of 4 GB must not be believed. The address sanitizer reserves terabytes of address space, so the
# limit is on resident data, which setrlimit cannot give; the sanitizer's own limit can.
SANITIZER = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=1:allocator_may_return_null=1:hard_rss_limit_mb=512",
    "UBSAN_OPTIONS": "halt_on_error=1:abort_on_error=1:print_stacktrace=1",
}

RECORD = """
import os, sys, threading
from lineprofiler.accounting import Profiler
def work(p):
    for n in range(50):
        with p.phase("iteration"):
            with p.phase("load", io=True):
                pass
            with p.phase("score", sample=0.1):
                p.count("items", n)
with Profiler(run_dir=sys.argv[1], role="ac/tor \\u2713", thread_names=True) as p:
    thread = threading.Thread(target=work, args=(p,))
    thread.start()
    thread.join()
    work(p)
with Profiler(run_dir=sys.argv[1], role="learner", measure_cpu=False) as p:
    work(p)
"""


def cut(data: bytearray, r: random.Random) -> bytearray:
    return data[: r.randrange(len(data) + 1)]


def flip(data: bytearray, r: random.Random) -> bytearray:
    for _ in range(r.choice([1, 1, 1, 2, 8, 64])):
        if data:
            data[r.randrange(len(data))] ^= 1 << r.randrange(8)
    return data


def overwrite(data: bytearray, r: random.Random) -> bytearray:
    """Numbers that lie: varints of the largest values, lengths of gigabytes, NaN and infinity."""
    values = [
        b"\xff" * 9 + b"\x01",
        b"\xff\xff\xff\xff\x0f",
        b"\x00",
        b"\x80" * 10,
        b"\x7f\xf0\0\0\0\0\0\0"[::-1],
        b"\x7f\xf8\0\0\0\0\0\0"[::-1],
        b"\xff" * 8,
        b"../../../x",
        b"</script>",
    ]
    value = r.choice(values)
    at = r.randrange(len(data) + 1)
    data[at : at + r.choice([0, len(value)])] = value
    return data


def splice(data: bytearray, r: random.Random) -> bytearray:
    a, b = sorted(r.randrange(len(data) + 1) for _ in range(2))
    at = r.randrange(len(data) + 1)
    return data[:at] + data[a:b] * r.choice([1, 1, 3]) + data[at:]


def remove(data: bytearray, r: random.Random) -> bytearray:
    a = r.randrange(len(data) + 1)
    del data[a : a + r.choice([1, 2, 16, 4096])]
    return data


MUTATIONS: list[Callable[[bytearray, random.Random], bytearray]] = [cut, flip, flip, overwrite, splice, remove]


def crc32c_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC32C = crc32c_table()


def with_checksum(data: bytes) -> bytes:
    """The damaged content closed as a snapshot is (docs/file-format.md): nothing behind the check of the checksum
    would ever be reached otherwise."""
    body = data[:-5]
    crc = 0xFFFFFFFF
    for byte in body:
        crc = CRC32C[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return body + b"\x7d" + (crc ^ 0xFFFFFFFF).to_bytes(4, "little")


def run_command(command: list[str]) -> tuple[int, str]:
    env = {**envs.clean_environment(), **SANITIZER}

    def limits() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    try:
        done = subprocess.run(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=2 * LIMIT_S,
            check=False,
            preexec_fn=limits,
        )
    except subprocess.TimeoutExpired:
        return -1, "did not end"
    return done.returncode, done.stderr.decode(errors="replace")


def verdict(status: int, stderr: str) -> str | None:
    if "Sanitizer" in stderr or "runtime error" in stderr:
        return "sanitizer"
    if status not in (0, 2):
        return f"exit {status}"
    return None


def build() -> tuple[Path, Path]:
    interpreter = envs.main_interpreter(envs.find_interpreters())
    venv = envs.environment(interpreter, "demo", [envs.BUILD_REQUIREMENTS])
    envs.install_wheel(venv, envs.build_wheel(venv, "demo"))
    build = envs.c_build(venv, BUILD / "c-san", "-Db_sanitize=address,undefined", "-Db_lundef=false")
    return venv, build / "src" / "cli" / "lineprofiler"


def fuzz(seconds: float, seed: int) -> tuple[int, int]:
    """Damages files for so long. How many were tried, and how many of them broke a rule."""
    venv, command = build()
    r = random.Random(seed)
    bad = tried = 0
    shutil.rmtree(KEPT, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="lineprofiler-fuzz-") as name:
        run_dir = Path(name) / "run"
        env = envs.clean_environment(LINEPROFILER_RUN_ID="fuzz")
        envs.run([envs.python_of(venv), "-c", RECORD, run_dir], "recording the run", env=env)
        files = sorted(p for p in run_dir.rglob("*") if p.is_file())
        originals = {p: p.read_bytes() for p in files}
        status, stderr = run_command([str(command), "report", str(run_dir)])
        if status != 0 or verdict(status, stderr) or not files:
            raise SetupError(f"the undamaged run is not readable (exit {status}, {len(files)} files):\n{stderr}")
        end = time.monotonic() + seconds
        while time.monotonic() < end and bad < 20:
            path = r.choice(files)
            data = bytearray(originals[path])
            for _ in range(r.choice([1, 1, 2, 4])):
                data = r.choice(MUTATIONS)(data, r)
            damaged = with_checksum(bytes(data)) if r.random() < 0.7 else bytes(data)
            path.write_bytes(damaged)
            tried += 1
            for what in (["report", str(run_dir)], ["report", str(run_dir), "--format", "json"], ["dump", str(path)]):
                status, stderr = run_command([str(command), *what])
                problem = verdict(status, stderr)
                if problem:
                    bad += 1
                    KEPT.mkdir(parents=True, exist_ok=True)
                    kept = KEPT / f"{seed}-{tried}-{what[0]}{path.suffix}"
                    kept.write_bytes(damaged)
                    say(f"  {what[0]}: {problem}; the file is kept as {os.path.relpath(kept)}\n{stderr[-3000:]}")
                    break
            path.write_bytes(originals[path])
    return tried, bad
