"""The search of examples/mcts.py three times: bare, with four phases an iteration, and nested with counters.

The game is as lean as Python allows, so that a profiler's share of the time is as large as it can be.
"""

from __future__ import annotations

import math
import random

from lineprofiler import accounting

BRANCHING = 8
PLIES = 6


class Game:
    __slots__ = ("board",)

    def __init__(self, board=()):
        self.board = board

    def moves(self):
        return range(BRANCHING) if len(self.board) < PLIES else ()

    def play(self, move):
        return Game((*self.board, move))

    def is_terminal(self):
        return len(self.board) == PLIES

    def reward(self):
        board = self.board
        return float(sum(a < b for a, b in zip(board, board[1:])) >= 3)  # noqa: B905, RUF007 (pairwise would be a faster game than people write)


class Node:
    __slots__ = ("children", "parent", "state", "untried", "value", "visits")

    def __init__(self, state, parent=None):
        self.state = state
        self.parent = parent
        self.children = []
        self.visits = 0
        self.value = 0.0
        self.untried = list(state.moves())


def select(root, root_state, c=1.4):
    node, state = root, root_state
    while not node.untried and node.children:
        best, best_score = None, -1e30
        for child in node.children:
            score = child.value / child.visits + c * math.sqrt(math.log(node.visits) / child.visits)
            if score > best_score:
                best, best_score = child, score
        node = best
        state = state.play(node.state.board[-1])
    return node, state


def select_nested(root, root_state, c=1.4):
    node, state = root, root_state
    depth = 0
    while not node.untried and node.children:
        with accounting.phase("score_children"):
            best, best_score = None, -1e30
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


def expand(node, state):
    if node.untried:
        move = node.untried.pop(random.randrange(len(node.untried)))
        state = state.play(move)
        child = Node(state, node)
        node.children.append(child)
        node = child
    return node, state


def rollout(state):
    while not state.is_terminal():
        state = state.play(random.choice(state.moves()))
    return state.reward()


def rollout_counted(state):
    plies = 0
    while not state.is_terminal():
        state = state.play(random.choice(state.moves()))
        plies += 1
    accounting.count("rollout_plies", plies)
    return state.reward()


def backpropagate(node, reward):
    while node is not None:
        node.visits += 1
        node.value += reward
        node = node.parent


def bare(root_state, iterations):
    root = Node(root_state)
    for _ in range(iterations):
        node, state = select(root, root_state)
        node, state = expand(node, state)
        reward = rollout(state)
        backpropagate(node, reward)
    return max(root.children, key=lambda n: n.visits)


def four(root_state, iterations):
    root = Node(root_state)
    for _ in range(iterations):
        with accounting.phase("select"):
            node, state = select(root, root_state)
        with accounting.phase("expand"):
            node, state = expand(node, state)
        with accounting.phase("rollout"):
            reward = rollout(state)
        with accounting.phase("backpropagate"):
            backpropagate(node, reward)
    return max(root.children, key=lambda n: n.visits)


def nested(root_state, iterations):
    root = Node(root_state)
    for _ in range(iterations):
        with accounting.phase("iteration"):
            with accounting.phase("select"):
                node, state = select_nested(root, root_state)
            with accounting.phase("expand"):
                node, state = expand(node, state)
            with accounting.phase("rollout"):
                reward = rollout_counted(state)
            with accounting.phase("backpropagate"):
                backpropagate(node, reward)
    return max(root.children, key=lambda n: n.visits)


VARIANTS = {"bare": bare, "four": four, "nested": nested}
