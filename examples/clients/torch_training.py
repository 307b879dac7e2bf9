"""PyTorch: a training loop whose DataLoader has worker processes. Does the model wait for its data?

    python examples/clients/torch_training.py RUN_DIR        then: lineprofiler report RUN_DIR

The trainer's phases are those of its loop; `load` is what it waits for the DataLoader, and its `wait` says so. The
DataLoader's two workers are forked: each takes a profiler and a role of its own in `worker_init_fn`, and its `item`
is the time that one sample costs. On a GPU `phase("forward", sync=True)` waits for the device at both ends. The data
are made, the model is small, and how often everything runs is known before.
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from lineprofiler import accounting
from lineprofiler.accounting import Profiler, merge_run

SAMPLES, BATCH, EPOCHS, LOADERS = 256, 16, 3, 2


class Circles(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Points of the plane, and whether they lie within a circle."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        with accounting.phase("item"):
            point = torch.randn(2, generator=torch.Generator().manual_seed(index))
            return point, (point.norm() < 1.0).float()


def begin_worker(number: int) -> None:
    accounting.start(role="loader")


def main(run_dir: str) -> None:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss_of = nn.BCEWithLogitsLoss()
    loader = DataLoader(
        Circles(), BATCH, num_workers=LOADERS, worker_init_fn=begin_worker, multiprocessing_context="fork"
    )
    losses = []
    with Profiler(run_dir, role="trainer", install=True) as profiler:
        for _ in range(EPOCHS):
            with profiler.phase("epoch"):
                batches = iter(loader)
                total = 0.0
                while True:
                    with profiler.phase("load"):
                        batch = next(batches, None)
                    if batch is None:
                        break
                    with profiler.phase("step"):
                        points, inside = batch
                        with profiler.phase("forward", sync=True):
                            loss = loss_of(model(points).squeeze(1), inside)
                        with profiler.phase("backward", sync=True):
                            optimizer.zero_grad()
                            loss.backward()
                        with profiler.phase("optimizer", sync=True):
                            optimizer.step()
                        profiler.count("samples", len(points))
                        total += loss.item()
                losses.append(total)
    print("loss by epoch:", ", ".join(f"{loss:.3f}" for loss in losses))
    assert losses[-1] < losses[0]

    run = merge_run(run_dir)
    batches_seen = EPOCHS * SAMPLES // BATCH
    tree = run.tree_of("trainer")
    assert tree[("epoch",)].calls == EPOCHS
    assert tree[("epoch", "load")].calls == batches_seen + EPOCHS  # and once an epoch to find the end
    for name in ("forward", "backward", "optimizer"):
        assert tree[("epoch", "step", name)].calls == batches_seen
    assert tree[("epoch", "step")].counters == {"samples": EPOCHS * SAMPLES}
    assert len(run.workers_of("loader")) == EPOCHS * LOADERS  # without persistent_workers, new ones each epoch
    assert run.tree_of("loader")[("item",)].calls == EPOCHS * SAMPLES


if __name__ == "__main__":
    main(sys.argv[1])
