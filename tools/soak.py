"""`make soak`: what the tests do some fifty times, a thousand times: SIGKILL at random moments, of recorded programs
and of collectors, each checked against counts that the program keeps elsewhere (tests/support/killing.py). And each
system call refused by each errno, where the tests take one errno after the other (tests/support/refusals.py). And each
call of accounting and of the line profiler a million times, to see that nothing is kept (tests/python/test_leaks.py).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import envs
import run_tests
from envs import ROOT, SetupError, say

SUPPORT = ROOT / "tests" / "support"
PROGRAMS_AT_ONCE, COLLECTORS_AT_ONCE = 50, 20


def leaks(rounds: int) -> run_tests.Result:
    """Each call so many times: passed are those of which nothing was kept."""
    result = run_tests.Result("leaks")
    with tempfile.TemporaryDirectory(prefix="lineprofiler-soak-") as folder:
        junit = Path(folder) / "leaks.xml"
        command: list[object] = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=3600"]
        command += [f"--junitxml={junit}", str(ROOT / "tests" / "python" / "test_leaks.py")]
        env = envs.clean_environment(LEAK_ROUNDS=str(rounds))
        done = envs.captured(command, env=env)
        if junit.exists():
            run_tests.count_junit(result, junit)
    if done.returncode != 0:
        say("\n".join("    | " + line for line in done.stdout.splitlines()[-200:]))
        if not result.failed:
            result.fail(f"pytest ended with {done.returncode}")
    return result


def inside(programs: int, collectors: int, calls: int, rounds: int) -> int:
    """In the environment that has the product. Each part in a folder and shared memory of its own."""
    sys.path.insert(0, str(SUPPORT))
    import killing
    import refusals
    from injection import batches, compiled
    from lpstage import Stage, shared_folder

    def staged(work: Callable[[Stage], None]) -> None:
        shm = Path(shared_folder())
        with tempfile.TemporaryDirectory(prefix="lineprofiler-soak-") as folder:
            stage = Stage(Path(folder), shm)
            try:
                work(stage)
            finally:
                stage.close()
                shutil.rmtree(shm)

    ends = ["killed", "closed"]

    def beside(count: int) -> None:
        ends.reverse()
        staged(lambda stage: killing.kill_collectors(stage, count, ends[0]))

    def kills(count: int) -> None:
        staged(lambda stage: killing.kill_programs(stage, count))

    refused = [0, 0]  # calls, and of those with a problem

    def refuse(stage: Stage, target: int, body: str, sticky: bool) -> None:
        injector = compiled(stage.folder, "injector.c")
        made = batches(
            stage,
            injector,
            refusals.BODIES[body],
            target,
            sticky=sticky,
            warm=body != "alone, ends",
            every=True,
            most=calls,
        )
        for batch in made:
            wrong = [text for each in batch if (text := refusals.problems_of(each, refusals.exit_code(body)))]
            refused[0] += sum(each.failed > 0 for each in batch)
            refused[1] += len(wrong)
            for text in wrong:
                say(f"    {body}: {text}")

    started = time.monotonic()
    failed = killing.repeat(programs, PROGRAMS_AT_ONCE, kills, say)
    say(f"  {programs} kills of programs: {failed} parts failed, {time.monotonic() - started:.0f} s")
    started = time.monotonic()
    wrong = killing.repeat(collectors, COLLECTORS_AT_ONCE, beside, say)
    say(f"  {collectors} kills of collectors: {wrong} parts failed, {time.monotonic() - started:.0f} s")
    broken = 0
    for target, body, sticky in refusals.PARTS if calls else []:
        started, before = time.monotonic(), refused[0]
        try:
            staged(lambda stage, part=(target, body, sticky): refuse(stage, *part))
        except AssertionError as error:
            broken += 1
            say(f"    {body}: {error}")
        whose = "the program's" if target == refusals.PROGRAM else "the others'"
        more = ", with all that follow" if sticky else ""
        say(f"  {body}: {refused[0] - before} of {whose} calls refused{more}, {time.monotonic() - started:.0f} s")
    looked = run_tests.Result("leaks")
    if rounds:
        started = time.monotonic()
        looked = leaks(rounds)
        say(f"  {looked.passed + looked.failed} calls, {rounds} times: {time.monotonic() - started:.0f} s")
    bad = failed + wrong + broken + refused[1] + looked.failed
    say(
        f"{programs + collectors} kills, {failed + wrong} parts failed; "
        f"{refused[0]} system calls refused, {refused[1] + broken} wrong; "
        f"{looked.passed + looked.failed} calls repeated, {looked.failed} kept something"
    )
    return 1 if bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=1000, metavar="N", help="of programs (default: 1000)")
    parser.add_argument("--collectors", type=int, default=200, metavar="N", help="of collectors (default: 200)")
    parser.add_argument(
        "--calls",
        type=int,
        default=400,
        metavar="N",
        help="the first N system calls of each kind, by each errno (default: all; 0: none)",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=1_000_000,
        metavar="N",
        help="of each call that takes microseconds (default: 1000000; 0: none)",
    )
    parser.add_argument("--here", action="store_true", help="with the interpreter and package that run this")
    args = parser.parse_args()
    if args.here:
        return inside(args.kills, args.collectors, args.calls, args.rounds)
    try:
        envs.require_compiler()
        interpreter = envs.main_interpreter(envs.find_interpreters())
        venv = envs.environment(interpreter, "soak", [envs.BUILD_REQUIREMENTS, envs.TEST_REQUIREMENTS])
        envs.install_wheel(venv, envs.build_wheel(venv, "soak"))
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    command = [envs.python_of(venv), Path(__file__), "--here"]
    command += ["--kills", str(args.kills), "--collectors", str(args.collectors), "--calls", str(args.calls)]
    command += ["--rounds", str(args.rounds)]
    return subprocess.run([*map(str, command)], env=envs.clean_environment(), check=False).returncode


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    sys.exit(main())
