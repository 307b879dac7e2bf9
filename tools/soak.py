"""`make soak`: what the tests do some fifty times, a thousand times: SIGKILL at random moments, of recorded programs
and of collectors, each checked against counts that the program keeps elsewhere (tests/support/killing.py).
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


def inside(programs: int, collectors: int) -> int:
    """In the environment that has the product. Each part in a folder and shared memory of its own."""
    sys.path.insert(0, str(SUPPORT))
    import killing
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

    started = time.monotonic()
    failed = killing.repeat(programs, PROGRAMS_AT_ONCE, kills, say)
    say(f"  {programs} kills of programs: {failed} parts failed, {time.monotonic() - started:.0f} s")
    started = time.monotonic()
    wrong = killing.repeat(collectors, COLLECTORS_AT_ONCE, beside, say)
    say(f"  {collectors} kills of collectors: {wrong} parts failed, {time.monotonic() - started:.0f} s")
    say(f"{programs + collectors} kills, {failed + wrong} parts failed")
    return 1 if failed or wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=1000, metavar="N", help="of programs (default: 1000)")
    parser.add_argument("--collectors", type=int, default=200, metavar="N", help="of collectors (default: 200)")
    parser.add_argument("--here", action="store_true", help="with the interpreter and package that run this")
    args = parser.parse_args()
    if args.here:
        return inside(args.kills, args.collectors)
    try:
        envs.require_compiler()
        interpreter = envs.main_interpreter(envs.find_interpreters())
        venv = envs.environment(interpreter, "demo", [envs.BUILD_REQUIREMENTS])
        envs.install_wheel(venv, envs.build_wheel(venv, "demo"))
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    command = [envs.python_of(venv), Path(__file__), "--here"]
    command += ["--kills", str(args.kills), "--collectors", str(args.collectors)]
    return subprocess.run([*map(str, command)], env=envs.clean_environment(), check=False).returncode


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    sys.exit(main())
