"""Monte-Carlo tree search as it is usually written first: one long loop. A line profile shows where its seams are.

    lineprofiler run --functions examples/mcts_loop.py        or: python examples/mcts_loop.py

Lines that are hit equally often belong to one of the four parts: the loop over the children, the new leaf (once per
iteration), the random game, the way back to the root. `examples/mcts.py` is the same search, cut along these seams.
"""

from __future__ import annotations

import argparse
import math
import random

from lineprofiler import LineProfiler
from mcts import Game, Node


def uct_search(iterations: int, c: float = 1.4) -> Node:
    """The best child of the root."""
    root = Node(Game())
    for _ in range(iterations):
        node, state = root, root.state
        while not node.untried and node.children:  # down the tree
            best, best_score = node.children[0], -1e30
            for child in node.children:
                exploit = child.value / child.visits
                explore = c * math.sqrt(math.log(node.visits) / child.visits)
                score = exploit + explore
                if score > best_score:
                    best, best_score = child, score
            node = best
            state = node.state
        if node.untried:  # a new leaf
            move = node.untried.pop(random.randrange(len(node.untried)))
            state = state.play(move)
            leaf = Node(state, node)
            node.children.append(leaf)
            node = leaf
        while not state.is_terminal():  # a random game to its end
            state = state.play(random.choice(state.moves()))
        reward = state.reward()
        above: Node | None = node
        while above is not None:  # what came of it, up to the root
            above.visits += 1
            above.value += reward
            above = above.parent
    return max(root.children, key=lambda child: child.visits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()
    random.seed(args.seed)
    profiler = LineProfiler(uct_search)
    best = profiler.runcall(uct_search, args.iterations)
    print(f"best first move: {best.state.board[0]}\n")
    profiler.print_lines(top=12)


if __name__ == "__main__":
    main()
