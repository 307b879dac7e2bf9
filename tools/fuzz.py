"""`make fuzz`: libFuzzer against every reader of bytes, then damaged files against the command itself, damaged .lprof
files, and random programs against a model of what their reports must say (tests/processes/test_played.py).

The targets stand in tests/fuzz, one file a reader; their seeds are made here at run time. What a target has found
interesting is kept in build/fuzz/corpus/<target> and is where the next run begins; what broke a rule lies in
build/fuzz/kept/<target> and is read again by `build/fuzz/tests/fuzz/replay_<target> FILE`. One target at a time.
The C tests run the same targets without libFuzzer (tests/fuzz/replay.c), in seconds.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import envs
import fuzz_command
from envs import BUILD, ROOT, SetupError, say

FOLDER = BUILD / "fuzz"
WHEEL = "fuzz-wheel"  # its build folder: not the one in which everything is built for libFuzzer
COMMAND = "command"
LPROF = "lprof"
PROGRAMS = "programs"
ROOM = 48 << 10  # FUZZ_ROOM of tests/fuzz/fuzz.h
SANITIZER = {
    "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
}


@dataclass
class Outcome:
    target: str
    tried: int
    found: int
    cpu_s: float


def targets() -> list[str]:
    """What tests/fuzz/meson.build builds: one for each file."""
    return sorted(p.stem.removeprefix("fuzz_") for p in (ROOT / "tests" / "fuzz").glob("fuzz_*.c"))


def has_libfuzzer() -> bool:
    program = "#include <stddef.h>\nint LLVMFuzzerTestOneInput(const char *d, size_t n){return d && n > 9;}"
    if shutil.which("clang") is None:
        return False
    done = subprocess.run(
        ["clang", "-x", "c", "-", "-fsanitize=fuzzer,address,undefined", "-o", "/dev/null"],
        input=program.encode(),
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return done.returncode == 0


def build() -> None:
    if not has_libfuzzer():
        envs.debian_install("clang", "libclang-rt-dev")
    if not has_libfuzzer():
        raise SetupError("clang with libFuzzer was not found; on Debian: apt-get install clang libclang-rt-dev")
    tools = envs.environment(envs.main_interpreter(envs.find_interpreters()), "tools", [envs.BUILD_REQUIREMENTS])
    options = ["-Dfuzz=true", "-Db_sanitize=address,undefined", "-Db_lundef=false"]
    envs.c_build(tools, FOLDER, *options, env={"CC": "clang"})


def run_target(target: str, seconds: int) -> Outcome:
    corpus, kept = FOLDER / "corpus" / target, FOLDER / "kept" / target
    shutil.rmtree(kept, ignore_errors=True)
    for folder in (corpus, kept):
        folder.mkdir(parents=True, exist_ok=True)
    programs = FOLDER / "tests" / "fuzz"
    envs.run([programs / f"replay_{target}", "--seeds", corpus], f"seeds of {target}")
    command = [
        str(programs / f"fuzz_{target}"),
        str(corpus),
        f"-max_len={ROOM}",
        f"-max_total_time={seconds}",
        "-timeout=300",
        "-rss_limit_mb=1500",
        "-print_final_stats=1",
        f"-artifact_prefix={kept}/",
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    log = FOLDER / f"{target}.log"
    with log.open("wb") as out:
        done = subprocess.run(
            command,
            env=envs.clean_environment(**SANITIZER),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    text = log.read_text(errors="replace")
    tried = re.search(r"stat::number_of_executed_units:\s*(\d+)", text)
    if done.returncode != 0:
        files = ", ".join(os.path.relpath(p) for p in sorted(kept.iterdir()))
        say(f"  {target}: exit {done.returncode}; kept: {files or 'nothing'}\n{text[-6000:]}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Outcome(target, int(tried[1]) if tried else 0, int(done.returncode != 0), cpu_s)


def run_command(seconds: int, seed: int) -> Outcome:
    say(f"  {COMMAND}: seed {seed}")
    before = time.process_time()
    tried, found = fuzz_command.fuzz(seconds, seed)
    return Outcome(COMMAND, tried, found, time.process_time() - before)


def python_environment() -> Path:
    """With this tree's wheel, and what tests need."""
    interpreter = envs.main_interpreter(envs.find_interpreters())
    venv = envs.environment(interpreter, "fuzz", [envs.BUILD_REQUIREMENTS, envs.TEST_REQUIREMENTS])
    envs.install_wheel(venv, envs.build_wheel(venv, WHEEL))
    return venv


def run_python(target: str, seconds: int, seed: int) -> Outcome:
    """A target in Python: its last line of numbers begins with how many it tried."""
    say(f"  {target}: seed {seed}")
    venv = python_environment()
    env = envs.clean_environment(PLAY_SECONDS=str(seconds), PLAY_SEED=str(seed))
    if target == LPROF:
        command = [envs.python_of(venv), ROOT / "tools" / "fuzz_lprof.py", str(seconds), str(seed)]
    else:
        command = [envs.python_of(venv), "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-k", "test_long"]
        command += [ROOT / "tests" / "processes" / "test_played.py"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*map(str, command)],
        env=env,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    (FOLDER / f"{target}.log").write_text(done.stdout, encoding="utf-8")
    if done.returncode != 0:
        say(done.stdout[-6000:])
    tried = re.search(r"^(\d+) (?:programs|files)", done.stdout, re.MULTILINE)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Outcome(target, int(tried[1]) if tried else 0, int(done.returncode != 0), cpu_s)


def run_one(target: str, seconds: int, seed: int) -> Outcome:
    if target == COMMAND:
        return run_command(seconds, seed)
    if target in (LPROF, PROGRAMS):
        return run_python(target, seconds, seed)
    return run_target(target, seconds)


def main() -> int:
    every = [*targets(), COMMAND, LPROF, PROGRAMS]
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default: 60)")
    parser.add_argument("--targets", default=",".join(every), help="some of: %(default)s")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="of what is not libFuzzer"
    )
    args = parser.parse_args()
    chosen = args.targets.split(",")
    unknown = sorted(set(chosen) - set(every))
    if unknown:
        parser.error(f"no such target: {', '.join(unknown)}")
    os.nice(10)
    results: list[Outcome] = []
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        if set(chosen) & set(targets()):
            build()
        for target in chosen:
            one = run_one(target, args.seconds, args.seed)
            say(f"  {target}: {one.tried} inputs in {one.cpu_s:.0f} s of CPU, {one.found} broke a rule")
            results.append(one)
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    tried, found = sum(r.tried for r in results), sum(r.found for r in results)
    say(f"{len(results)} targets, {tried} inputs, {found} broke a rule")
    return 1 if found or any(r.tried == 0 for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
