"""`make test`: builds the wheel for each Python found, runs every test, ends with one line that sums them up.

C tests run once. Of the Python tests, those marked `one_version` (and all of tests/house) run on one interpreter;
those marked `timing` run last and alone, one interpreter after the other. Two jobs at most run at a time.
The closing line `N passed, N failed, N skipped` is alone on its line and is the last; the exit status is 1 if
anything failed or nothing ran.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import envs
from envs import BUILD, ROOT, Interpreter, SetupError, say

LOGS = BUILD / "test-logs"
# tests/house/test_runner.py sees to it that no folder is forgotten here.
SUITES = ["house", "docs", "python", "lines", "processes", "faults", "cli", "field", "spec", "pages"]
# Minutes, far above what a run takes; it ends one that hangs so that the log says where.
SUITE_LIMIT = 25
# How many times longer anything may take under a sanitizer.
SANITIZED_SLOWER = 4
TIMED_OUT = -1000  # no signal


@dataclass
class Result:
    """Counts of one run of a test runner, and where its output lies."""

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    log: Path | None = None
    failures: list[str] = field(default_factory=list)
    skips: dict[str, int] = field(default_factory=dict)

    def fail(self, message: str) -> None:
        self.failed += 1
        self.failures.append(message)


def count_junit(result: Result, path: Path, excused: Callable[[str], str] = lambda name: "") -> None:
    """Adds the test cases of a JUnit file (pytest's or Meson's: no counters of the suite element are trusted).

    `excused` gives the reason why a failed case counts as skipped, "" if it does not.
    """
    for case in ET.parse(path).getroot().iter("testcase"):
        name = "::".join(filter(None, (case.get("classname"), case.get("name"))))
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            if reason := excused(name):
                result.skipped += 1
                result.skips[reason] = result.skips.get(reason, 0) + 1
            else:
                result.fail(name)
        elif skipped is not None:
            result.skipped += 1
            reason = skipped.get("message") or (skipped.text or "").strip() or f"{name} (its log says why)"
            result.skips[reason] = result.skips.get(reason, 0) + 1
        else:
            result.passed += 1


def how_it_ended(status: int, limit: int) -> str:
    """`status` as run_logged gives it, `limit` in minutes."""
    if status == TIMED_OUT:
        return f"was ended after {limit} minutes"
    if status < 0:
        return f"ended with signal {-status} ({signal.Signals(-status).name})"
    return f"ended with exit {status}"


def run_logged(command: list[object], log: Path, env: dict[str, str], limit_s: float) -> int:
    """Runs a test runner in a process group of its own; after the limit the whole group ends (TIMED_OUT)."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        child = subprocess.Popen(
            [str(c) for c in command],
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return child.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGABRT)
            time.sleep(2)
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return TIMED_OUT
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            raise


def finish(result: Result, started: float) -> Result:
    result.seconds = time.monotonic() - started
    counts = f"{result.passed} passed, {result.failed} failed, {result.skipped} skipped"
    say(f"  {result.name}: {counts} in {result.seconds:.0f} s")
    if result.failed and result.log is not None and result.log.exists():
        text = result.log.read_text(errors="replace")
        if len(text) > 60_000:
            text = text[:20_000] + "\n[…]\n" + text[-40_000:]
        # Indented, so that no runner's own closing line can be taken for ours.
        say("\n".join("    | " + line for line in text.splitlines()))
    for failure in result.failures:
        say(f"    FAILED {result.name} {failure}")
    for reason, count in sorted(result.skips.items()):
        say(f"    skipped {count}: {reason}")
    return result


def c_tests(
    venv: Path,
    build: Path,
    options: list[str],
    env: dict[str, str],
    layers: tuple[str, ...] = (),
    slower: int = 1,
    excused: Callable[[str], str] | None = None,
) -> Result:
    """All of them, or those whose names begin with one of `layers`.

    `slower`: how many times longer a test may take than on the machine itself. `excused`: see count_junit.
    """
    result = Result(f"C tests ({build.name})", log=LOGS / f"{build.name}.txt")
    started = time.monotonic()
    try:
        envs.c_build(venv, build, *options)
        junit = build / "meson-logs" / "testlog.junit.xml"
        junit.unlink(missing_ok=True)
        command = [
            venv / "bin" / "meson",
            "test",
            "-C",
            build,
            "--no-rebuild",
            "--num-processes",
            "1",
            "--print-errorlogs",
            f"--timeout-multiplier={slower}",
        ]
        if layers:
            names = (p.stem.removeprefix("test_") for p in sorted((ROOT / "tests" / "c").glob("test_*.c")))
            command += [name for name in names if name.startswith(layers)]
        full = {**envs.clean_environment(PATH=envs.tool_path(venv)), **env}
        status = run_logged(command, result.log, full, SUITE_LIMIT * 60 * slower)
        if junit.exists():
            count_junit(result, junit, excused or (lambda name: ""))
        # A test that crashed after its last printed line has no failed case of its own.
        if status != 0 and result.failed == 0 and not (excused and result.skips):
            result.fail(f"meson test {how_it_ended(status, SUITE_LIMIT * slower)}")
        if result.passed + result.failed == 0:
            result.fail("no C test ran")
    except SetupError as error:
        result.log.parent.mkdir(parents=True, exist_ok=True)
        result.log.write_text(str(error))
        result.fail("build")
    return finish(result, started)


def pytest_run(
    tag: str, venv: Path, label: str, marker: str, paths: list[Path], args: argparse.Namespace, env: dict[str, str]
) -> Result:
    name = f"{tag} {label}"
    log = LOGS / f"{tag}-{label}.txt"
    junit = LOGS / f"{tag}-{label}.xml"
    junit.unlink(missing_ok=True)
    result = Result(name, log=log)
    started = time.monotonic()
    command: list[object] = [
        envs.python_of(venv),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--continue-on-collection-errors",
        f"--junitxml={junit}",
        "-m",
        marker,
    ]
    if args.k:
        command += ["-k", args.k]
    command += paths
    full = {**envs.clean_environment(PATH=envs.tool_path(venv), PYTHONDONTWRITEBYTECODE="1"), **env}
    limit = args.limit * (SANITIZED_SLOWER if "TESTS_SANITIZED" in env else 1)
    status = run_logged(command, log, full, limit * 60)
    if junit.exists():
        count_junit(result, junit)
    # 0: all passed; 1: failures, already counted; 5: nothing matched the marker. All else killed the runner itself,
    # a crash of the extension most likely, and whatever it had not reported yet is lost.
    if status not in (0, 1, 5) or (status == 1 and result.failed == 0):
        result.fail(f"pytest {how_it_ended(status, limit)}")
    elif status == 0 and not junit.exists():
        result.fail("pytest left no results")
    return finish(result, started)


def prepare(interpreter: Interpreter, sanitize: list[str]) -> tuple[Path, str]:
    """Environment with tools, clients and this tree's wheel."""
    tag = f"{interpreter}-san" if sanitize else str(interpreter)
    requirements = [envs.BUILD_REQUIREMENTS, envs.TEST_REQUIREMENTS]
    if interpreter.minor == envs.MAIN_VERSION and not interpreter.free_threaded and not sanitize:
        requirements.append(envs.HEAVY_REQUIREMENTS)
    venv = envs.environment(interpreter, tag, requirements, envs.CLIENT_REQUIREMENTS)
    envs.install_wheel(venv, envs.build_wheel(venv, tag, sanitize or None))
    return venv, tag


def sanitizer_environment() -> dict[str, str]:
    """An interpreter that is not instrumented needs the runtime loaded before anything else. Python's own leaks at
    exit are not ours to report; its allocator hides use after free from ASan, so malloc is used."""
    runtimes = [
        subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    return {
        "LD_PRELOAD": " ".join(runtimes),
        "ASAN_OPTIONS": ":".join(
            [
                "detect_leaks=0",
                "abort_on_error=1",
                "allocator_may_return_null=1",
                # Programs of the tests die by these on purpose; one of ours that does still ends its test.
                *(f"handle_{name}=0" for name in ("segv", "sigbus", "sigill", "sigfpe", "abort")),
            ]
        ),
        "UBSAN_OPTIONS": "halt_on_error=1:abort_on_error=1:print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "TESTS_SANITIZED": "1",
    }


ADDRESSES = ["-Db_sanitize=address,undefined", "-Db_lundef=false"]
THREADS = ["-Db_sanitize=thread", "-Db_lundef=false"]
# Where threads share anything. Analysis and render are called by one at a time.
THREADED_LAYERS = ("core_", "collector_", "store_", "sample_")


def with_each_compiler(test: Callable[[], Result], *flags: str) -> list[Result]:
    """By gcc and by clang; one that cannot be had has failed, by its name."""
    results = []
    for compiler in envs.COMPILERS:
        os.environ["CC"] = compiler  # Meson takes it when a build directory is first made
        try:
            envs.require_named_compiler(compiler, *flags)
            results.append(test())
        except SetupError as error:
            lost = Result(f"C tests ({compiler})")
            lost.fail(f"did not run: {error}")
            results.append(finish(lost, time.monotonic()))
        finally:
            del os.environ["CC"]
    return results


def sanitized_c_tests(tools: Path) -> list[Result]:
    """Under gcc's and clang's sanitizers: addresses, undefined behaviour and leaks; then threads."""
    env = {
        "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=1",
        "UBSAN_OPTIONS": "halt_on_error=1:abort_on_error=1:print_stacktrace=1",
        # The collector's start forks beside threads, which the runtime only tries if it is told to.
        "TSAN_OPTIONS": "halt_on_error=1:exitcode=66:die_after_fork=0",
    }

    def addresses() -> Result:
        build = BUILD / f"c-san-{os.environ['CC']}"
        return c_tests(tools, build, ADDRESSES, env, slower=SANITIZED_SLOWER)

    def threads() -> Result:
        build = BUILD / f"c-tsan-{os.environ['CC']}"
        return c_tests(tools, build, THREADS, env, THREADED_LAYERS, SANITIZED_SLOWER)

    results = with_each_compiler(addresses, "-fsanitize=address,undefined")
    return results + with_each_compiler(threads, "-fsanitize=thread")


def select(interpreters: list[Interpreter], wanted: str) -> list[Interpreter]:
    if not wanted:
        return interpreters
    names = wanted.split(",")
    chosen = [i for i in interpreters if str(i) in names or f"{i.version[0]}.{i.version[1]}" in names]
    if not chosen:
        raise SetupError(f"--python {wanted}: none of these is here; found {', '.join(map(str, interpreters))}")
    return chosen


def python_tests(
    interpreters: list[Interpreter],
    main: Interpreter,
    args: argparse.Namespace,
    sanitize: list[str],
    env: dict[str, str],
) -> list[Result]:
    paths = list(map(Path, args.paths)) or [ROOT / "tests" / s for s in SUITES if (ROOT / "tests" / s).is_dir()]
    ready: dict[str, tuple[Path, str]] = {}

    def marker(interpreter: Interpreter, timing: bool) -> str:
        parts = ["timing" if timing else "not timing"]
        if interpreter != main or args.secondary:
            parts.append("not one_version")
        return " and ".join(parts)

    def everything_else(interpreter: Interpreter) -> Result:
        started = time.monotonic()
        try:
            venv, tag = ready[str(interpreter.path)] = prepare(interpreter, sanitize)
        except SetupError as error:
            failed = Result(f"{interpreter} build", log=LOGS / f"{interpreter}-build.txt")
            failed.log.parent.mkdir(parents=True, exist_ok=True)
            failed.log.write_text(str(error))
            failed.fail("could not be built or installed")
            return finish(failed, started)
        return pytest_run(tag, venv, "tests", marker(interpreter, False), paths, args, env)

    results = parallel(everything_else, interpreters, args.jobs)
    if args.timing:
        for interpreter in interpreters:
            if str(interpreter.path) in ready:
                venv, tag = ready[str(interpreter.path)]
                results.append(pytest_run(tag, venv, "timing", marker(interpreter, True), paths, args, env))
    return results


def parallel(work: Callable[[Interpreter], Result], items: list[Interpreter], jobs: int) -> list[Result]:
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(work, items))


def main() -> int:
    global LOGS
    parser = argparse.ArgumentParser(prog="make test", description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="*", help="test files or folders (default: all)")
    parser.add_argument(
        "--python", default="", metavar="3.11,3.13", help="only these versions (default: each one found)"
    )
    parser.add_argument(
        "--all", action="store_true", help="every interpreter found, free-threaded ones too; C tests by gcc and clang"
    )
    parser.add_argument(
        "--sanitize", action="store_true", help="address and undefined-behaviour sanitizers, one version"
    )
    parser.add_argument("--no-c", dest="c", action="store_false", help="leave out the C tests")
    parser.add_argument("--no-python", dest="with_python", action="store_false", help="only the C tests")
    parser.add_argument(
        "--secondary", action="store_true", help="leave out on all what is the same on every interpreter (one_version)"
    )
    parser.add_argument(
        "--tag",
        default="",
        metavar="NAME",
        help="keep logs and C builds apart from those of runs without, or elsewhere",
    )
    parser.add_argument(
        "--limit",
        type=int,
        default=SUITE_LIMIT,
        metavar="MINUTES",
        help="after which the tests of one version are ended, a guard against hanging (default: %(default)s)",
    )
    parser.add_argument("--no-timing", dest="timing", action="store_false", help="leave out tests marked timing")
    parser.add_argument(
        "--jobs", type=int, default=min(2, os.cpu_count() or 1), metavar="N", help="versions tested at once"
    )
    parser.add_argument("-k", default="", metavar="EXPRESSION", help="as pytest's")
    args = parser.parse_args()

    started = time.monotonic()
    tag = f"-{args.tag}" if args.tag else ""
    LOGS = BUILD / f"test-logs{tag}"
    shutil.rmtree(LOGS, ignore_errors=True)
    results: list[Result] = []
    try:
        envs.require_compiler()
        found = envs.find_interpreters(args.all)
        main_one = envs.main_interpreter(found)
        if args.sanitize:
            found = [main_one]
        chosen = select(found, args.python)
        if main_one not in chosen:
            main_one = envs.main_interpreter(chosen)
        say("Pythons: " + ", ".join(f"{i}" for i in chosen))

        sanitize, env = [], {}
        if args.sanitize:
            sanitize = [*ADDRESSES, "-Dbuildtype=debugoptimized"]
            env = sanitizer_environment()
            # Durations under a sanitizer are its own.
            args.timing = False
        if args.c and not args.paths:
            tools = envs.environment(main_one, f"tools{tag}", [envs.BUILD_REQUIREMENTS])
            if args.sanitize:
                results += sanitized_c_tests(tools)
            else:
                results += every_c_test(tools, tag, args.all)
        if args.with_python:
            if not args.secondary:
                envs.require_client_commands()
            results += python_tests(chosen, main_one, args, sanitize, env)
    except SetupError as error:
        setup = Result("setup")
        setup.fail(str(error))
        results.append(finish(setup, started))

    if sum(r.passed + r.failed for r in results) == 0:
        say("  no test ran")
    # For tools/matrix.py.
    LOGS.mkdir(parents=True, exist_ok=True)
    (LOGS / "results.json").write_text(json.dumps([{**vars(r), "log": str(r.log)} for r in results]))
    return close(results, started)


def close(results: list[Result], started: float) -> int:
    """Says what failed, then the closing line; returns the exit status."""
    failures = [f"  {r.name}: {f}" for r in results for f in r.failures]
    if failures:
        say("\nFailed:\n" + "\n".join(failures))
    where = LOGS.relative_to(ROOT) if LOGS.is_relative_to(ROOT) else LOGS
    say(f"\n{len(results)} runs in {time.monotonic() - started:.0f} s; logs in {where}/")
    passed, failed, skipped = (sum(getattr(r, key) for r in results) for key in ("passed", "failed", "skipped"))
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""), flush=True)
    return 0 if passed and not failed else 1


def every_c_test(tools: Path, tag: str, by_each: bool) -> list[Result]:
    if not by_each:
        return [c_tests(tools, BUILD / f"c{tag}", [], {})]
    return with_each_compiler(lambda: c_tests(tools, BUILD / f"c-{os.environ['CC']}{tag}", [], {}))


if __name__ == "__main__":
    sys.exit(main())
