"""phase(sync=True) against a stand-in torch: it waits at both ends, only where there is something to wait for."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from lptest import run_python

from lineprofiler.accounting import Profiler


class Cuda:
    """What of torch.cuda is asked."""

    def __init__(self, initialized: bool = True, available: bool = True, error: Exception | None = None) -> None:
        self.initialized, self.available, self.error = initialized, available, error
        self.waits: list[str] = []
        self.profiler: Profiler | None = None

    def is_initialized(self) -> bool:
        return self.initialized

    def is_available(self) -> bool:
        return self.available

    def synchronize(self) -> None:
        assert self.profiler is not None
        self.waits.append(self.profiler.current_phase())
        if self.error is not None:
            raise self.error
        time.sleep(0.01)


def run(
    cuda: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: bool | None = None, sync: bool = True
) -> Any:
    torch = ModuleType("torch")
    torch.cuda = cuda  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    with Profiler(tmp_path, cuda_sync=policy, snapshot_interval_s=None) as profiler:
        if isinstance(cuda, Cuda):
            cuda.profiler = profiler
        with profiler.phase("step"):
            with profiler.phase("forward", sync=sync):
                pass
    return profiler.merged_tree()[("step", "forward")]


def test_waits_at_both_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda()
    stats = run(cuda, tmp_path, monkeypatch)
    # Before the phase begins (what an earlier one queued is not its own) and before it ends.
    assert cuda.waits == ["step", "step/forward"]
    assert stats.wall_ns >= 10_000_000, "the wait at the end is in it"
    assert stats.calls == 1


@pytest.mark.parametrize(
    ("policy", "initialized", "available", "waits"),
    [
        (None, True, True, 2),
        (None, False, True, 0),
        (False, True, True, 0),
        (True, True, True, 2),
        (True, False, True, 2),
        (True, False, False, 0),
    ],
)
def test_policy(
    policy: bool | None,
    initialized: bool,
    available: bool,
    waits: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = Cuda(initialized, available)
    assert run(cuda, tmp_path, monkeypatch, policy).calls == 1
    assert len(cuda.waits) == waits


def test_only_where_it_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda()
    run(cuda, tmp_path, monkeypatch, sync=False)
    assert cuda.waits == []


def test_errors_of_torch_stay_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lineprofiler.accounting import _cuda

    before = _cuda.failures
    assert run(Cuda(error=RuntimeError("device lost")), tmp_path / "a", monkeypatch).calls == 1
    assert _cuda.failures == before + 2
    # A torch that is being imported, or no torch at all.
    assert run(SimpleNamespace(), tmp_path / "b", monkeypatch).calls == 1
    assert _cuda.failures == before + 4


def test_an_exception_of_the_body_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = ModuleType("torch")
    cuda = Cuda()
    torch.cuda = cuda  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    with Profiler(tmp_path, snapshot_interval_s=None) as profiler:
        cuda.profiler = profiler
        with pytest.raises(KeyError, match="mine"), profiler.phase("forward", sync=True):
            raise KeyError("mine")
    assert len(cuda.waits) == 2
    assert profiler.merged_tree()[("forward",)].errors == 1


def test_never_imports_torch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    run_python(
        """
        import sys
        sys.path.insert(0, ".")
        from lineprofiler.accounting import Profiler
        for policy in (None, True, False):
            with Profiler(run_dir="run", cuda_sync=policy) as profiler, profiler.phase("a", sync=True):
                pass
        assert "torch" not in sys.modules
        """,
        cwd=tmp_path,
    ).expect()


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit(3), Interrupted, TimeoutError("out of time")])
@pytest.mark.parametrize("end", ["enter", "leave"])
def test_a_signal_during_the_wait_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Any, end: str
) -> None:
    """A program that waits for its GPU most of the time gets its Ctrl-C there, or what another handler raises."""

    class Signalled(Cuda):
        def synchronize(self) -> None:
            self.waits.append("")
            if len(self.waits) == (1 if end == "enter" else 2):
                signal.raise_signal(signal.SIGUSR1)

    def handler(*_: object) -> None:
        raise raised

    torch = ModuleType("torch")
    torch.cuda = Signalled()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    before = signal.signal(signal.SIGUSR1, handler)
    body = False
    try:
        with Profiler(tmp_path, snapshot_interval_s=None) as profiler, profiler.phase("step"):
            with pytest.raises(raised if isinstance(raised, type) else type(raised)):
                with profiler.phase("forward", sync=True):
                    body = True
            assert profiler.current_phase() == "step"
        tree = profiler.merged_tree()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert body is (end == "leave")
    assert tree[("step",)].calls == 1
    if end == "enter":
        assert ("step", "forward") not in tree
    else:
        assert (tree[("step", "forward")].calls, tree[("step", "forward")].errors) == (1, 1)
    assert profiler._worker()["health"]["misuse"] == 0
