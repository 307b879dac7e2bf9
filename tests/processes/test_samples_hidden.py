"""A /proc that is mounted with hidepid=2, for real: what a collector of an ordinary user may not see is n/a with that
reason, never zero, and comes back when it may."""

from __future__ import annotations

import os

import pytest
from lpsamples import Samples, read
from lpstage import Stage, private_mounts

HIDDEN = "/proc hides the process (hidepid)"

PROGRAM = """
import ctypes, os, sys, time
from lineprofiler.accounting import Profiler

Profiler("warm", run_id="warm", sample_interval_s=None, snapshot_interval_s=None).close()
dumpable = lambda value: ctypes.CDLL(None).prctl(4, value, 0, 0, 0)  # PR_SET_DUMPABLE, which a change of user clears
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, {saved})
dumpable(1)
os.chdir("/")
with Profiler(sys.argv[1], run_id="it", sample_interval_s=0.1) as profiler, profiler.phase("a"):
    {body}
"""


def sampled(stage: Stage, body: str, saved: int = 65534) -> tuple[Samples, str]:
    """Runs it as somebody who may not see other users' processes; its samples, and the report's text."""
    stage.shm.chmod(0o777)
    script = stage.script(PROGRAM.format(body=body, saved=saved), "program.py")
    done = private_mounts(stage, f'mount -t proc -o hidepid=2 proc /proc && "$PY" {script} "{stage.shm}/run"')
    if "hidepid" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no /proc with hidepid here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    stage.settle()
    files = sorted((stage.shm / "run").glob("workers/*/w_it_*.samples"))
    if not files:
        pytest.skip("another user may not start the collector from where this Python is installed")
    return read(stage, files[0]), stage.command("report", stage.shm / "run").expect().stdout


pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount and become somebody else")


def test_hidden_all_the_time(stage: Stage) -> None:
    """The program could become root again, so it is not quite the collector's user's."""
    seen, text = sampled(stage, "time.sleep(1)", saved=0)
    assert len(seen.times_s()) >= 3, "rows all the same: phases are known"
    assert "a" in {path for batch in seen.of() for row in batch.phases for path in row}
    for name in ("cpu", "rss", "pss", "read_chars", "threads", "children_living"):
        assert set(seen.column(name)) == {None}, name
        assert seen.reason(name) == HIDDEN, name
    words = " ".join(text.split())
    for figure in ("CPU", "RSS", "PSS", "I/O"):
        assert f"{figure} n/a: {HIDDEN}" in words


def test_hidden_for_a_while(stage: Stage) -> None:
    """What was opened before can be read on; the rest has its reason, and is there again afterwards."""
    seen, _ = sampled(stage, "time.sleep(1); dumpable(0); time.sleep(1); dumpable(1); time.sleep(1.5)")
    assert None not in seen.column("cpu")
    column = seen.column("read_chars")
    gap = [i for i, value in enumerate(column) if value is None]
    assert gap
    assert column[0] is not None
    assert any(value is not None for value in column[gap[0] :]), "there again"
    reasons = {batch.reasons["read_chars"] for batch in seen.of() if "read_chars" in batch.reasons}
    assert reasons <= {HIDDEN, "permission denied: the program has changed its user or is not dumpable"}
    assert HIDDEN in reasons


def test_hidden_until_later(stage: Stage) -> None:
    """It could not be opened at first: that is tried again."""
    seen, _ = sampled(stage, "time.sleep(1); os.setresuid(65534, 65534, 65534); dumpable(1); time.sleep(1.5)", saved=0)
    column = seen.column("cpu")
    assert column[0] is None
    assert any(value is not None for value in column)
