"""`make matrix`: everything that users run us on, part by part; ends with one line that sums all of them up.

    machine   the whole suite on each interpreter of this machine, C tests with gcc and clang; then free-threaded 3.13
    newest    the same on CPython 3.14 and 3.15 with the newest gcc and glibc, in a root folder of Debian sid
    musl      libraries, command and C tests against musl (Debian: musl-tools)
    aarch64   the same built for aarch64 and run in qemu's user mode (Debian: gcc-aarch64-linux-gnu, qemu-user)

Old kernels and containers that refuse system calls are no part: tests/faults/test_refused.py is in every test run.
Interpreters that a machine lacks are made by `../shared/pythons/more-pythons` where that lies beside the checkout, or
were made before (--pythons DIR, as that script leaves it). A part that cannot run is counted as failed, and named.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import envs
import run_tests
from envs import BUILD, ROOT, SetupError, say
from run_tests import Result

MAKER = ROOT.parent / "shared" / "pythons" / "more-pythons"
CROSS = ROOT / "tools" / "cross"
LOGS = BUILD / "matrix-logs"
# As they are called inside of the root folder, where the checkout is at /src.
NEWEST = ("python3.14", "python3.15")
# Minutes for the tests of one version: two parts run at once here, and nobody waits.
SUITE_LIMIT = 100
# In qemu an instruction is some twenty.
EMULATED = 20
# What qemu says yes to and does not do, and the tests that need it. They are run; one that fails is counted as
# skipped, with the reason.
NO_WIPE = "qemu's user mode ignores MADV_WIPEONFORK: a forked child cannot be told from its parent"
NO_CLONE = "qemu's user mode has clone() only as fork, vfork and threads: no collector can be started"
NO_STAT = "qemu's user mode makes up /proc/self/stat: the process has no start time"
NO_LEADER = "qemu's user mode: of a first thread that has ended the kernel does not always say so"
NO_VDSO = "in qemu's user mode a clock is read by a system call: a calibration over 1 ms is as exact as that is short"
NOT_EMULATED: dict[str, dict[str, str]] = {  # by file and case; "": all of the file
    "core_numbers": {"calibrated_ticks_follow_the_kernels_clock": NO_VDSO},
    "sample_readers": {"memory_of_an_ended_leader": NO_LEADER, "what_a_process_reads_of_itself": NO_STAT},
    "core_lines": {"a_child_starts_from_zero": NO_WIPE, "threads_and_engines_that_end_leave_nothing": NO_WIPE},
    "core_record": {"a_child_starts_at_zero": NO_WIPE},
    "collector_start": {"": NO_CLONE},
    "store_election": {"the_dead_do_not_keep_it": NO_STAT, "never_two_at_once": NO_STAT},
}


def missing(part: str, why: str) -> list[Result]:
    result = Result(part)
    result.fail(f"did not run: {why}")
    return [run_tests.finish(result, time.monotonic())]


def require(*wanted: tuple[str, str]) -> None:
    """Commands and the Debian packages that have them."""
    packages = [package for command, package in wanted if shutil.which(command) is None]
    if packages:
        envs.debian_install(*packages)
    still = [package for command, package in wanted if shutil.which(command) is None]
    if still:
        raise SetupError(f"missing: {' '.join(still)} (on Debian: apt-get install {' '.join(still)})")


# --- interpreters ---


def more_pythons(args: argparse.Namespace) -> Path:
    """The folder with those that no machine has."""
    made = Path(args.pythons).resolve()
    if (made / "sid-run").exists() and (made / "3.13t" / "bin" / "python3").exists():
        return made
    if not MAKER.exists():
        raise SetupError(f"no interpreters in {made} (--pythons), and nothing that makes them")
    if os.geteuid() != 0:
        raise SetupError(f"{MAKER.name} makes them as root only; then --pythons DIR says where they are")
    say(f"    making 3.14, 3.15 and free-threaded 3.13 in {made}")
    envs.run([MAKER, made], MAKER.name)
    return made


def suite(part: str, command: list[str], options: list[str], env: dict[str, str] | None = None) -> list[Result]:
    """Runs run_tests.py by this interpreter, and takes over its counts. Its own words pass through, but indented: they
    close a part, not the matrix."""
    results = BUILD / f"test-logs-{part}" / "results.json"
    results.unlink(missing_ok=True)
    command = [*command, "tools/run_tests.py", "--tag", part, "--limit", str(SUITE_LIMIT), *options]
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert child.stdout is not None
    for line in child.stdout:
        say(f"  {line.rstrip()}")
    status = child.wait()
    if not results.exists():
        return missing(part, f"run_tests.py ended with {status}")
    found = [Result(**{**each, "log": None}) for each in json.loads(results.read_text())]
    for each in found:
        each.name = f"{part}: {each.name}"
    if sum(each.passed + each.failed for each in found) == 0:
        found += missing(part, "no test ran")
    return found


def passed_on(args: argparse.Namespace) -> list[str]:
    options = [*args.paths, *(["-k", args.k] if args.k else [])]
    options += [f"--jobs={args.jobs}"] if args.jobs else []
    return options + ([] if args.timing else ["--no-timing"])


def machine(args: argparse.Namespace) -> list[Result]:
    """The interpreters of this machine; and the free-threaded one, of which the suite says if it cannot be had."""
    options = ["--all", *passed_on(args), *(["--python", args.python] if args.python else [])]
    extra: list[Result] = []
    pythons = os.environ.get("TEST_PYTHONS", "")
    try:
        threaded = more_pythons(args) / "3.13t" / "bin" / "python3"
        pythons = os.pathsep.join(filter(None, [pythons, str(threaded)]))
    except SetupError as error:
        if not any(i.free_threaded for i in envs.find_interpreters(True)):
            extra = missing("free-threaded", str(error))
    return suite("machine", [sys.executable], options, {"TEST_PYTHONS": pythons}) + extra


def newest(args: argparse.Namespace) -> list[Result]:
    made = more_pythons(args)
    if os.geteuid() != 0:
        raise SetupError("a root folder is entered as root only")
    # A mount point, as a container's root is: `unshare --mount` in it makes it private.
    enter = ["env", "-u", "TEST_PYTHONS", f"BIND={ROOT}", "unshare", "--mount", "sh", "-c"]
    enter += ['mount --bind "$1" "$1" && exec "$0" "$@"', str(made / "sid-run"), str(made / "sid")]
    enter += ["env", "HOME=/root", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "sh", "-c", 'cd /src && exec "$@"', "sh"]
    # Commands of the tests that a minimal root lacks.
    subprocess.run(
        [*enter, "sh", "-c", "command -v ps || apt-get install -qy procps"], capture_output=True, check=False
    )
    wanted = args.python or ",".join(name.removeprefix("python") for name in NEWEST)
    options = ["--secondary", "--python", wanted, *passed_on(args)]
    return suite("newest", [*enter, NEWEST[0]], options)


# --- C alone ---


def tools_of(args: argparse.Namespace) -> Path:
    main = envs.main_interpreter(envs.find_interpreters())
    return envs.environment(main, "tools", [envs.BUILD_REQUIREMENTS])


def musl(args: argparse.Namespace) -> list[Result]:
    require(("musl-gcc", "musl-tools"))
    headers = BUILD / "musl-headers"
    headers.mkdir(parents=True, exist_ok=True)
    triple = subprocess.check_output(["gcc", "-print-multiarch"], text=True).strip()
    for path in (Path("/usr/include/linux"), Path("/usr/include/asm-generic"), Path("/usr/include", triple, "asm")):
        link = headers / path.name
        link.unlink(missing_ok=True)
        link.symlink_to(path)
    options = ["--native-file", str(CROSS / "musl.ini"), f"-Dc_args=-idirafter{headers}"]
    return [run_tests.c_tests(tools_of(args), BUILD / "c-musl", options, {})]


def aarch64(args: argparse.Namespace) -> list[Result]:
    require(("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"), ("qemu-aarch64", "qemu-user"))
    if not Path("/usr/aarch64-linux-gnu/include/stdio.h").exists():  # recommended by the compiler's package only
        envs.debian_install("libc6-dev-arm64-cross")
    options = ["--cross-file", str(CROSS / "aarch64.ini")]
    return [run_tests.c_tests(tools_of(args), BUILD / "c-aarch64", options, {}, slower=EMULATED, excused=not_emulated)]


def not_emulated(name: str) -> str:
    """Why a failed test case says nothing about the machine that is emulated; "": it does."""
    test, _, case = name.partition("::")  # project.file::1 - case; older Meson: project.project:file::1 - case
    cases = NOT_EMULATED.get(re.split("[.:]", test)[-1], {})
    return cases.get("", cases.get(case.split(" - ")[-1], ""))


PARTS: dict[str, Callable[[argparse.Namespace], list[Result]]] = {
    "machine": machine,
    "newest": newest,
    "musl": musl,
    "aarch64": aarch64,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make matrix", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", help="test files or folders for the interpreters (default: all)")
    parser.add_argument("--only", default=",".join(PARTS), metavar="PART,PART", help="only these parts")
    parser.add_argument(
        "--python", default="", metavar="3.11,3.13", help="only these versions, of each part that has one"
    )
    parser.add_argument(
        "--pythons", default=str(BUILD / "pythons"), metavar="DIR", help="where more interpreters are, or are made"
    )
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="versions tested at once")
    parser.add_argument("--no-timing", dest="timing", action="store_false", help="leave out tests marked timing")
    parser.add_argument("-k", default="", metavar="EXPRESSION", help="as pytest's")
    args = parser.parse_args()
    parts = args.only.split(",")
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")

    started = time.monotonic()
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    run_tests.LOGS = LOGS
    results: list[Result] = []
    for part in parts:
        say(f"{part}:")
        try:
            results += PARTS[part](args)
        except SetupError as error:
            results += missing(part, str(error))
    say(f"\nParts: {', '.join(parts)}; logs of the interpreters in {BUILD.name}/test-logs-PART/")
    return run_tests.close(results, started)


if __name__ == "__main__":
    sys.exit(main())
