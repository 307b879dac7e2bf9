"""Monte-Carlo tree search in several processes, with a phase around each of its four parts.

    python examples/mcts.py RUN_DIR        then: lineprofiler report RUN_DIR

Four actors (two forked, two spawned) search the same game with different seeds and send what they learn through a
queue; the learner, in the main process, waits for them. Every process makes a profiler of its own and says which
role it plays. The seeds are fixed, so the counters of two runs are equal: `iteration` and `expand` are entered once
per simulation, `score_children` and `descend` once per step down the tree, which is the sum of `tree_depth`, and each
scoring pass sees all eight children.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import multiprocessing.context
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lineprofiler import accounting
from lineprofiler.accounting import Profiler

BRANCHING = 8
PLIES = 6
ITERATIONS = 2000
BATCH = 250


@dataclass(frozen=True)
class Game:
    """Six picks out of eight digits, repetition allowed; won if at least three of the five steps climb."""

    board: tuple[int, ...] = ()

    def moves(self) -> range:
        return range(0 if self.is_terminal() else BRANCHING)

    def play(self, move: int) -> Game:
        return Game((*self.board, move))

    def is_terminal(self) -> bool:
        return len(self.board) == PLIES

    def reward(self) -> float:
        climbs = sum(a < b for a, b in zip(self.board, self.board[1:], strict=False))
        return float(climbs >= 3)


@dataclass
class Node:
    state: Game
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    visits: int = 0
    value: float = 0.0
    untried: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.untried = list(self.state.moves())


def select(root: Node, root_state: Game, c: float = 1.4) -> tuple[Node, Game]:
    """Down the tree, to a node that has moves to try or is the end of a game."""
    node, state = root, root_state
    depth = 0
    while not node.untried and node.children:
        with accounting.phase("score_children"):
            best, best_score = node.children[0], -1e30
            for child in node.children:
                score = child.value / child.visits + c * math.sqrt(math.log(node.visits) / child.visits)
                if score > best_score:
                    best, best_score = child, score
            accounting.count("children_scored", len(node.children))
        with accounting.phase("descend"):
            node = best
            state = state.play(node.state.board[-1])
        depth += 1
    accounting.count("tree_depth", depth)
    return node, state


def expand(node: Node, state: Game) -> tuple[Node, Game]:
    """One new leaf, for a move that was not tried yet."""
    if node.untried:
        move = node.untried.pop(random.randrange(len(node.untried)))
        state = state.play(move)
        child = Node(state, node)
        node.children.append(child)
        node = child
    return node, state


def rollout(state: Game) -> float:
    """A random game to its end."""
    plies = 0
    while not state.is_terminal():
        state = state.play(random.choice(state.moves()))
        plies += 1
    accounting.count("rollout_plies", plies)
    return state.reward()


def backpropagate(node: Node | None, reward: float) -> None:
    while node is not None:
        node.visits += 1
        node.value += reward
        node = node.parent


def uct_search(root_state: Game, iterations: int, on_batch: Callable[[list[int]], None]) -> int:
    """The best first move. `on_batch` gets the visits of the root's children now and then."""
    root = Node(root_state)
    for done in range(1, iterations + 1):
        with accounting.phase("iteration"):
            with accounting.phase("select"):
                node, state = select(root, root_state)
            with accounting.phase("expand"):
                node, state = expand(node, state)
            with accounting.phase("rollout"):
                reward = rollout(state)
            with accounting.phase("backpropagate"):
                backpropagate(node, reward)
        if done % BATCH == 0 or done == iterations:
            on_batch([child.visits for child in root.children])
    return max(root.children, key=lambda n: n.visits).state.board[0]


def actor(run_dir: str, run_id: str, seed: int, iterations: int, queue: Any) -> None:
    # Nothing has to be closed: a forked child leaves by os._exit, and what it recorded is in the report all the same.
    Profiler(run_dir=run_dir, role="actor", run_id=run_id, install=True)
    random.seed(seed)
    move = uct_search(Game(), iterations, lambda visits: queue.put((seed, visits)))
    queue.put((seed, move))


def learn(queue: Any, actors: int) -> dict[int, int]:
    """Averages the actors' opinions of the first move until each has sent its last word, a plain move."""
    policy = [1 / BRANCHING] * BRANCHING
    answers: dict[int, int] = {}
    while len(answers) < actors:
        with accounting.phase("step"):
            with accounting.phase("queue_get"):
                seed, message = queue.get()
            if isinstance(message, int):
                answers[seed] = message
                continue
            with accounting.phase("train"):
                total = sum(message)
                for _ in range(200):
                    policy = [0.95 * p + 0.05 * v / total for p, v in zip(policy, message, strict=False)]
                accounting.count("samples", total)
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run_dir", nargs="?", default="profile")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="simulations of each actor")
    args = parser.parse_args()

    # One attempt, whoever starts first: the id is handed to everybody.
    run_id = time.strftime("mcts-%Y%m%dT%H%M%S")
    spawn = multiprocessing.get_context("spawn")
    fork = multiprocessing.get_context("fork")
    queue = spawn.SimpleQueue()
    contexts: list[multiprocessing.context.BaseContext] = [fork, fork, spawn, spawn]
    processes = [
        context.Process(target=actor, args=(args.run_dir, run_id, seed, args.iterations, queue))  # type: ignore[attr-defined]
        for seed, context in enumerate(contexts)
    ]
    for process in processes:
        process.start()
    with Profiler(run_dir=args.run_dir, role="learner", run_id=run_id, install=True):
        answers = learn(queue, len(processes))
    for process in processes:
        process.join()
    print("best first move by actor:", " ".join(str(answers[seed]) for seed in sorted(answers)))


if __name__ == "__main__":
    main()
