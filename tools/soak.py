"""`make soak`: what the tests do some fifty times, a thousand times: SIGKILL at random moments, of recorded programs
and of collectors, each checked against counts that the program keeps elsewhere (tests/support/killing.py). And each
system call refused by each errno, where the tests take one errno after the other (tests/support/refusals.py).
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
from envs import ROOT, SetupError, say

SUPPORT = ROOT / "tests" / "support"
PROGRAMS_AT_ONCE, COLLECTORS_AT_ONCE = 50, 20


def inside(programs: int, collectors: int, calls: int) -> int:
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
    bad = failed + wrong + broken + refused[1]
    say(
        f"{programs + collectors} kills, {failed + wrong} parts failed; "
        f"{refused[0]} system calls refused, {refused[1] + broken} wrong"
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
    parser.add_argument("--here", action="store_true", help="with the interpreter and package that run this")
    args = parser.parse_args()
    if args.here:
        return inside(args.kills, args.collectors, args.calls)
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
    return subprocess.run([*map(str, command)], env=envs.clean_environment(), check=False).returncode


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    sys.exit(main())
