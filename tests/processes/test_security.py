"""Another user of the machine can neither read, change, remove nor forge what is recorded in shared memory, nor make us
write where he likes; names from a program do nothing to a terminal, to JSON or to the file system.

The victim is root (these tests' interpreter) and `nobody` (the system's Python, with a copy of the package where all
may read it); the other user is always one of the others. Shared memory is as in `/dev/shm`: world-writable and sticky.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from lpstage import Report, Stage, collectors_below, wait_for
from lptest import LIMIT_S, environment

NOBODY, STRANGER = 65534, 65533
SYSTEM_PYTHON = "/usr/bin/python3"

VICTIM = """
import os, sys, time
from lineprofiler.accounting import Profiler
os.umask(int(sys.argv[1], 8))
profiler = Profiler("run", role="victim", run_id="known", snapshot_interval_s=0.05)
with profiler.phase("a"):
    profiler.count("n", 7)
if "wait" in sys.argv:
    with profiler.phase("open"):
        print(os.getpid(), flush=True)
        sys.stdin.read()
profiler.close()
print("the end")
"""


def needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("two users are needed: only root can be both")


@dataclass
class Place:
    """A folder that everybody may enter, and shared memory as the system has it."""

    folder: Path
    shm: Path
    uid: int
    python: list[str]
    package: Path | None  # on the path of the victim

    @property
    def ours(self) -> Path:
        return self.shm / f"lineprofiler-{self.uid}"

    def environment(self, **extra: str) -> dict[str, str]:
        paths = {"PYTHONPATH": str(self.package)} if self.package else {}
        return environment(**{"LINEPROFILER_SHM_DIR": str(self.shm), "HOME": str(self.folder), **paths, **extra})

    def start(self, code: str, *args: object, **extra: str) -> subprocess.Popen[str]:
        (self.folder / "program.py").write_text(code)
        return subprocess.Popen(
            [*self.python, str(self.folder / "program.py"), *map(str, args)],
            cwd=self.folder,
            env=self.environment(**extra),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            user=self.uid,
            group=self.uid,
            extra_groups=[],
        )

    def run(self, code: str, *args: object, **extra: str) -> str:
        process = self.start(code, *args, **extra)
        out, err = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, err) == (0, "")
        return out

    def report(self, **extra: str) -> Report:
        code = "import sys\nfrom lineprofiler.accounting.cli import main\nsys.exit(main(['report', 'run', '--json']))"
        return Report(json.loads(self.run(code, **extra)))

    def text(self) -> str:
        return self.run("import sys\nfrom lineprofiler.accounting.cli import main\nsys.exit(main(['report', 'run']))")


def as_user(uid: int, act: Callable[[], object]) -> Any:
    """What `act` returns in a child of that user (a literal), or the error that it met, as text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            answer = repr(act())
        except BaseException as error:
            answer = repr(f"{type(error).__name__}: {error}")
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return ast.literal_eval(text)


def system_copy(folder: Path) -> tuple[list[str], Path]:
    """The installed package for the system's interpreter, which nobody else's home folder is in the way of."""
    if not os.access(SYSTEM_PYTHON, os.X_OK):
        pytest.skip(f"no {SYSTEM_PYTHON}, which another user could run")
    probe = "import sys, sysconfig; print(sys.version_info[:2], sysconfig.get_config_var('Py_GIL_DISABLED'))"
    one, two = (
        subprocess.run([python, "-Ic", probe], capture_output=True, text=True, check=True).stdout
        for python in (SYSTEM_PYTHON, sys.executable)
    )
    if one != two:
        pytest.skip(f"{SYSTEM_PYTHON} is of another version: it cannot load this one's extension")
    import lineprofiler

    package = folder / "package"
    shutil.copytree(Path(lineprofiler.__file__).parent, package / "lineprofiler")
    for path in package.rglob("*"):
        path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
    return [SYSTEM_PYTHON, "-B"], package


@pytest.fixture(params=["root", "nobody"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    needs_root()
    folder = Path(tempfile.mkdtemp(prefix="lptest-", dir="/tmp"))
    shm = Path(tempfile.mkdtemp(prefix="lptest-", dir="/dev/shm"))
    try:
        shm.chmod(0o1777)
        python, package, uid = [sys.executable], None, 0
        if request.param == "nobody":
            python, package = system_copy(folder)
            uid = NOBODY
        folder.chmod(0o755)
        os.chown(folder, uid, uid)
        yield Place(folder, shm, uid, python, package)
    finally:
        settled = lambda: not list(shm.glob("lineprofiler-*/known/*.seg"))  # noqa: E731
        with contextlib.suppress(AssertionError):
            wait_for(settled, "the collector ends", 5)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(shm, ignore_errors=True)


def modes(top: Path) -> dict[str, tuple[int, int]]:
    """(owner, mode) of everything below, by relative path."""
    found = {}
    for path in [top, *top.rglob("*")]:
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            found[str(path.relative_to(top))] = (status.st_uid, stat.S_IMODE(status.st_mode))
    return found


# ---- shared memory ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", ["0", "077", "0777"])
def test_segments_are_private_whatever_the_umask(place: Place, umask: str) -> None:
    """Folders 0700, files 0600; also the collector's lock and the folder in the same moment in which it is made."""
    # The run directory is an ordinary one, and under a umask of 0777 nobody could use it.
    (place.folder / "run").mkdir()
    os.chown(place.folder / "run", place.uid, place.uid)
    process = place.start(VICTIM, umask, "wait")
    assert process.stdout is not None
    process.stdout.readline()
    seen = modes(place.ours)
    assert len([name for name in seen if name.endswith(".seg")]) == 1
    for name, (owner, mode) in seen.items():
        assert owner == place.uid, name
        assert mode == (0o700 if (place.ours / name).is_dir() else 0o600), f"{name} {mode:o}"
    out, err = process.communicate("", timeout=LIMIT_S)
    assert (process.returncode, out, err) == (0, "the end\n", "")
    if umask != "0777" or place.uid == 0:
        assert place.report().calls() == {"a": 1, "open": 1}


def test_another_user_can_do_nothing_to_a_segment(place: Place) -> None:
    process = place.start(VICTIM, "0", "wait")
    assert process.stdout is not None
    process.stdout.readline()
    (segment,) = place.ours.glob("known/*.seg")
    locks = list(place.ours.glob("known/.collector*"))
    assert locks, "a collector is there"
    # The collector may be putting the answer of git beside it.
    before = {name: each for name, each in modes(place.ours).items() if not name.startswith("known/.source")}

    def tries() -> dict[str, str]:
        run = segment.parent
        acts: dict[str, Callable[[], object]] = {
            "list": lambda: os.listdir(place.ours),
            "list the run": lambda: os.listdir(run),
            "read": lambda: os.open(segment, os.O_RDONLY),
            "write": lambda: os.open(segment, os.O_RDWR),
            "truncate": lambda: os.truncate(segment, 0),
            "remove": lambda: os.unlink(segment),
            "rename": lambda: os.rename(segment, place.shm / "stolen"),
            "link": lambda: os.link(segment, place.shm / "linked"),
            "put": lambda: os.open(run / "forged.seg", os.O_CREAT | os.O_WRONLY),
            "lock": lambda: os.open(locks[0], os.O_RDONLY),
            "remove the folder": lambda: os.rename(place.ours, place.shm / "away"),
            "chmod": lambda: os.chmod(place.ours, 0o777),
        }
        answers = {}
        for what, act in acts.items():
            try:
                act()
                answers[what] = "done"
            except OSError as error:
                answers[what] = type(error).__name__
        return answers

    answers = as_user(STRANGER, tries)
    assert set(answers.values()) == {"PermissionError"}, answers
    assert {name: each for name, each in modes(place.ours).items() if name in before} == before
    assert not list(place.ours.glob("**/forged*"))
    out, err = process.communicate("", timeout=LIMIT_S)
    assert (process.returncode, out, err) == (0, "the end\n", "")
    report = place.report()
    report.healthy()
    assert report.calls() == {"a": 1, "open": 1}


def refused(report: Report) -> None:
    """The report names the place that was not taken, and nothing else went wrong."""
    trouble = {k: v for k, v in report.caveats["health"].items() if v not in (0, "")}
    assert list(trouble) == ["last_error"], trouble
    assert "belongs to another user or can be written by others" in trouble["last_error"]


def folder(path: Path) -> None:
    path.mkdir(mode=0o700)


def open_folder(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def empty_file(path: Path) -> None:
    path.write_bytes(b"x")


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def link_out(path: Path) -> None:
    target = path.parent / "target"
    target.mkdir()
    target.chmod(0o777)
    path.symlink_to(target)


def hard_link(path: Path) -> None:
    target = path.parent / "file"
    target.write_bytes(b"x")
    os.link(target, path)


IN_OUR_PLACE = {
    "folder": folder,
    "open folder": open_folder,
    "link to a folder": link_out,
    "link to nothing": lambda path: path.symlink_to(path.parent / "nothing"),
    "link to itself": lambda path: path.symlink_to(path),
    "file": empty_file,
    "hard link": hard_link,
    "fifo": os.mkfifo,
    "socket": unix_socket,
}


@pytest.mark.parametrize("what", IN_OUR_PLACE)
def test_names_taken_by_another_user(place: Place, what: str) -> None:
    """Private memory then, as the report says; nothing is made, changed or waited for where the other one wants it."""
    made = as_user(STRANGER, lambda: IN_OUR_PLACE[what](place.ours))
    assert made is None, made
    before = modes(place.shm)
    assert place.run(VICTIM, "022") == "the end\n"
    assert modes(place.shm) == before
    report = place.report()
    assert report.calls() == {"a": 1}
    refused(report)
    assert len(report.caveats["private_memory"]) == 1
    assert "private memory" in place.text()
    assert modes(place.shm) == before


@pytest.mark.parametrize("mode", [0o701, 0o710, 0o755, 0o777])
def test_our_own_folder_that_others_may_enter(place: Place, mode: int) -> None:
    """Whoever opened it, files in it may be another's: it is not used."""
    place.ours.mkdir()
    place.ours.chmod(mode)
    os.chown(place.ours, place.uid, place.uid)
    assert place.run(VICTIM, "022") == "the end\n"
    assert list(place.ours.iterdir()) == []
    assert len(place.report().caveats["private_memory"]) == 1


NAMESPACE = """
mount -t tmpfs -o mode=1777 none /dev/shm || exit 77
mkdir -p "$XDG_RUNTIME_DIR" && chmod 700 "$XDG_RUNTIME_DIR" && chown "$1" "$XDG_RUNTIME_DIR"
mkdir -m 700 "/dev/shm/lineprofiler-$1" && chown "$2" "/dev/shm/lineprofiler-$1"
uid=$1; shift 2
setpriv --reuid="$uid" --regid="$uid" --clear-groups "$@" || exit 1
find /dev/shm -type f
"""


def test_the_next_place_is_taken(place: Place) -> None:
    """`/dev/shm/lineprofiler-<uid>` is another user's: `XDG_RUNTIME_DIR` has the segment, which survives a kill."""
    if shutil.which("unshare") is None or shutil.which("setpriv") is None:
        pytest.skip("no unshare or setpriv (Debian: util-linux)")
    code = VICTIM.replace('if "wait" in sys.argv:', "import signal\nos.kill(os.getpid(), signal.SIGKILL)\nif 0:")
    # A parent of the killed one that reads its run; no collector, which would have written the snapshot meanwhile.
    (place.folder / "victim.py").write_text(code)
    (place.folder / "parent.py").write_text(
        "import os, subprocess, sys\n"
        "assert subprocess.run([sys.executable, '-B', 'victim.py', '022']).returncode == -9\n"
        "top = os.environ['XDG_RUNTIME_DIR'] + '/lineprofiler'\n"
        "print([oct(os.stat(top).st_mode & 0o777)] + sorted(os.listdir(top + '/known')), file=sys.stderr)\n"
        "from lineprofiler.accounting.cli import main\n"
        "sys.exit(main(['report', 'run', '--json']))\n"
    )
    env = place.environment(XDG_RUNTIME_DIR=str(place.folder / "runtime"), LINEPROFILER_COLLECTOR="0")
    del env["LINEPROFILER_SHM_DIR"]
    done = subprocess.run(
        [
            *("unshare", "--mount", "sh", "-c", NAMESPACE, "sh", str(place.uid), str(STRANGER)),
            *(*place.python, str(place.folder / "parent.py")),
        ],
        cwd=place.folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()[:100]}")
    assert done.returncode == 0, done.stderr
    document, files = json.loads(done.stdout[: done.stdout.rindex("}") + 1]), done.stdout[done.stdout.rindex("}") + 1 :]
    assert files.strip() == "", "nothing lies in the other one's folder"
    listing = ast.literal_eval(done.stderr.strip().splitlines()[-1])
    assert listing[0] == oct(0o700)
    assert len(listing) == 2
    report = Report(document)
    refused(report)
    assert report.calls() == {"a": 1}
    assert report.states() == ["died"]
    assert report.caveats["private_memory"] == []


# ---- what another user leaves ----------------------------------------------------------------------------------------


def test_segments_of_another_user_are_not_taken(place: Place) -> None:
    """A segment that he forged, of a process that is gone, under the names that we look at: it is neither read nor
    removed, nor written as a snapshot."""
    process = place.start(VICTIM, "0", "wait")
    assert process.stdout is not None
    process.stdout.readline()
    (segment,) = place.ours.glob("known/*.seg")
    content = segment.read_bytes()
    process.communicate("", timeout=LIMIT_S)
    # The same bytes, of a process that is gone: in his own folder, and (had he found a way) in ours.
    forged = []
    for top, owner in ((place.shm / f"lineprofiler-{STRANGER}", STRANGER), (place.ours, place.uid)):
        run = top / "known"
        run.mkdir(parents=True, exist_ok=True)
        for each in (top, run):
            each.chmod(0o700)
            os.chown(each, owner, owner)
        path = run / "1_00000000.seg"
        path.write_bytes(content[:200] + content[200:].replace(b"victim", b"forged"))
        path.chmod(0o600)
        os.chown(path, STRANGER, STRANGER)
        forged.append(path)
    for _ in range(2):
        report = place.report()
        assert {w["role"] for w in report.workers} == {"victim"}
        assert report.calls() == {"a": 1, "open": 1}
    # A second recorded process and its collector take them neither.
    assert place.run(VICTIM, "022") == "the end\n"
    assert {w["role"] for w in place.report().workers} == {"victim"}
    assert all(path.exists() for path in forged)


def test_links_in_a_run_directory_that_is_shared(place: Place) -> None:
    """Everybody may write into the run directory (a scratch folder): names that lead out of it are not followed, and
    what lies under our own names is replaced, not written through."""
    run = place.folder / "run"
    run.mkdir()
    run.chmod(0o1777)
    os.chown(run, place.uid, place.uid)
    target = place.folder / "target"
    target.mkdir()
    (target / "precious").write_text("precious")
    os.chown(target, place.uid, place.uid)
    os.chown(target / "precious", place.uid, place.uid)
    host = socket.gethostname()

    def workers_is_a_link() -> None:
        (run / "workers").symlink_to(target)

    def host_is_a_link() -> None:
        (run / "workers").mkdir()
        (run / "workers").chmod(0o777)
        (run / "workers" / host).symlink_to(target)

    def files_are_links() -> None:
        here = run / "workers" / host
        here.mkdir(parents=True)
        (run / "workers").chmod(0o777)
        here.chmod(0o777)
        for number in range(1, 4):
            for end in (".snap", ".final.snap"):
                (here / f"w_known_1_00000000.{number}{end}").symlink_to(target / "precious")
        os.mkfifo(here / "w_known_2_00000000.1.snap")

    for prepare in (workers_is_a_link, host_is_a_link, files_are_links):
        made = as_user(STRANGER, prepare)
        assert made is None, made
        assert place.run(VICTIM, "022") == "the end\n"
        assert [p.name for p in target.iterdir()] == ["precious"], prepare.__name__
        assert (target / "precious").read_text() == "precious"
        # What could not be written is read where it lies, in shared memory.
        assert place.report().calls() == {"a": 1}
        assert len(list(place.ours.glob("known/*.seg"))) == (prepare is not files_are_links)
        assert [p.name for p in target.iterdir()] == ["precious"], prepare.__name__
        assert (target / "precious").read_text() == "precious"
        wait_for(lambda: not collectors_below(place.shm), "its collector has ended")
        if (run / "workers").is_symlink():
            (run / "workers").unlink()
        else:
            shutil.rmtree(run / "workers")
        shutil.rmtree(place.ours, ignore_errors=True)


# ---- names -----------------------------------------------------------------------------------------------------------

HOSTILE = {
    "escape": "\x1b[2J\x1b]0;title\x07",
    "c1": "a\x9b31m\x90q\x9c",
    "bidi": "safe\u202egpj.exe\u2066x\u2069",
    "lines": "a\nb\r\n\x0b\x0c\u2028c\u2029\x85",
    "surrogates": "\ud800 \udcff \udfff",
    "nothing to see": "\u200b\u2060\ufeff\U000e0041\u3164",
    "markup": "</script><script>alert(1)</script><!--",
    "json": '"],"x":{"\\u0000',
    "path": "../../../etc/passwd",
    "dots": "..",
    "shell": "$(touch x); `id` | *",
    "percent": "%s%n%99999999d",
    "marks": "e" + "\u0301" * 5000,
    "long": "x" * (1 << 20),
}
NAMES = """
import sys, threading
from lineprofiler.accounting import Profiler
names = [*eval(open("names").read()).values()]
for number, name in enumerate(names):
    role = name if len(name) <= 300 and "\\0" not in name else "long"
    with Profiler(sys.argv[1], role=role, run_id="same", thread_names=number % 2 == 1) as profiler:
        with profiler.phase(name):
            profiler.count(name, number)
            with profiler.phase(name):
                pass
        def work():
            with profiler.phase("in a thread"):
                pass
        thread = threading.Thread(target=work, name=name)
        thread.start()
        thread.join()
"""


def inert(text: str) -> None:
    """Nothing but printable characters and line feeds; no character without a width but marks and joiners."""
    for character in set(text):
        kind = unicodedata.category(character)
        fine = character == "\n" or character in "\u200c\u200d" or kind not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
        assert fine, f"U+{ord(character):04X} {kind}"
        assert character not in "\u115f\u1160\u3164\uffa0", "a letter that nobody sees"


def test_hostile_names_on_every_face(stage: Stage) -> None:
    names = stage.folder / "names"
    names.write_text(ascii(HOSTILE))
    for run in ("run", "other"):
        stage.python(
            NAMES.replace("names = eval(sys.argv[1]) if len(sys.argv[1]) < 1000 else None\n", ""), run
        ).expect()
    for arguments in (
        ["report", "run"],
        ["report", "run", "--all"],
        ["top", "run", "--once"],
        ["compare", "run", "other"],
        ["compare", "run", "other", "--all"],
        *(["dump", path] for path in stage.snapshots()),
    ):
        for locale in ("C", "C.UTF-8"):
            done = stage.command(*arguments, LC_ALL=locale, COLUMNS="80", PYTHONUTF8="0").expect()
            inert(done.stdout)
            assert done.stderr == ""
            if arguments[0] != "dump":
                assert max(map(len, done.stdout.splitlines())) < 4000, "a name of a megabyte is cut"
    for arguments in (["report", "run"], ["compare", "run", "other"]):
        raw = stage.command(*arguments, "--json").expect().stdout
        assert json.loads(raw)
        assert raw.isascii()
        assert not set(raw) & set("<>&\x7f"), "safe inside of HTML, too"
    document = stage.report().document
    # Every name is told by its parts, whole or cut with a hash, so none is lost or two become one.
    shown = {tuple(p["path"]) for r in document["roles"] for p in r["phases"]}
    for what, name in HOSTILE.items():
        whole = [path for path in shown if path[-1] == name]
        cut = [path for path in shown if path[-1] != name and path[-1].startswith(name[:500])]
        assert whole or (len(name.encode("utf-8", "surrogatepass")) > 1024 and cut), what
    assert {p.name for p in stage.folder.iterdir()} <= {"run", "other", "names", "program1.py", "program2.py"}


def test_hostile_file_names(stage: Stage) -> None:
    """Names of the run directory, of a host's folder, of files in it, of the argument: shown, never obeyed."""
    stage.python(VICTIM, "022").expect()
    (snapshot,) = stage.snapshots()
    weird = "\x1b]0;x\x07\u202e\n"
    for name in (f"w_{weird}_1_00000000.1.snap", f"w_known_1_0000000{weird}.2.final.snap"):
        (snapshot.parent / name).write_bytes(b"\x1b[2J" * 50)
    (snapshot.parent.parent / weird).mkdir()
    shutil.copy(snapshot, snapshot.parent.parent / weird / snapshot.name)
    hostile = stage.folder / weird
    (stage.folder / "run").rename(hostile)
    for arguments in (["report", hostile], ["report", hostile, "--all"], ["compare", hostile, hostile]):
        done = stage.command(*arguments, LC_ALL="C.UTF-8")
        assert done.returncode == 0, done.stderr
        inert(done.stdout + done.stderr)
    raw = stage.command("report", hostile, "--json").expect().stdout
    assert raw.isascii()
    assert len(json.loads(raw)["caveats"]["unreadable"]) == 2
    overview = stage.command("--help").expect().stdout.splitlines()
    for arguments in (
        ["report", hostile / "none"],
        ["dump", hostile],
        ["dump", hostile / "none"],
        ["dump", snapshot.parent.parent],
        [f"re\x1b[2Jport{weird}"],
        ["report", f"--{weird}", "x"],
        ["report", hostile, "-o", stage.folder / "no folder" / weird],
        ["report", hostile, "--format", weird],
    ):
        done = stage.command(*arguments, LC_ALL="C.UTF-8")
        assert done.returncode == 2, arguments
        inert(done.stdout + done.stderr)
        *usage, complaint = done.stderr.splitlines()
        assert complaint.startswith("lineprofiler: "), "one line of complaint"
        assert usage == [] or usage == overview or (len(usage) == 1 and usage[0].startswith("usage: "))


WRITES = """
import sys
from lineprofiler.accounting.cli import main
sys.exit(main(["report", "run", "-o", sys.argv[1]]))
"""


def test_output_into_places_of_others(place: Place) -> None:
    """`-o` in a folder in which everybody writes: a link that somebody else has put there is refused, as the kernel
    refuses it to `>` where fs.protected_symlinks is set; a link of his own is followed, and names are only names."""
    assert place.run(VICTIM, "022") == "the end\n"
    shared = place.folder / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    precious = place.folder / "precious"
    precious.write_text("precious")
    os.chown(precious, place.uid, place.uid)

    def plant() -> None:
        for name, target in (("file.txt", precious), ("none.txt", place.folder / "none"), ("deep", place.folder)):
            (shared / name).symlink_to(target)

    assert as_user(STRANGER, plant) is None
    for name in ("file.txt", "none.txt"):
        process = place.start(WRITES, shared / name)
        out, err = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, out) == (2, "")
        assert len(err.splitlines()) == 1
        assert f"{name}: a link of another user, in a folder where everybody may write" in err
        assert (shared / name).is_symlink()
    assert precious.read_text() == "precious"
    assert not (place.folder / "none").exists()
    own = shared / "own.txt"
    own.symlink_to(precious)
    os.lchown(own, place.uid, place.uid)
    place.run(WRITES, own)
    assert own.is_symlink()
    assert "DOMINANT PHASES" in precious.read_text()
    for name in ("\x1b]0;x\x07", "new\nline", "\u202e", "-rf"):
        place.run(WRITES, shared / name)
        assert "DOMINANT PHASES" in (shared / name).read_text()
    assert not list(shared.glob("*.tmp"))
