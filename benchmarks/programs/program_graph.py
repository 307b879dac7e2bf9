"""A computation: betweenness and communities of graphs by networkx. Few functions, short lines, run a million times."""

from __future__ import annotations

import hashlib
from typing import Any

import networkx as nx
from networkx.algorithms.centrality import betweenness

PACKAGE = "networkx"
HOT = (betweenness, "_single_source_shortest_path_basic")


def inputs(size: float) -> list[tuple[int, int, int]]:
    nodes = max(20, round(190 * size**0.5))
    return [(nodes, 5 * nodes, seed) for seed in range(4)]


def bare(wanted: list[tuple[int, int, int]]) -> str:
    digest = hashlib.sha256()
    for nodes, edges, seed in wanted:
        graph = nx.gnm_random_graph(nodes, edges, seed=seed)
        between = nx.betweenness_centrality(graph)
        groups = nx.community.greedy_modularity_communities(graph)
        digest.update(repr((sorted(between.items()), [sorted(g) for g in groups])).encode())
    return digest.hexdigest()


def phased(wanted: list[tuple[int, int, int]], accounting: Any) -> str:
    digest = hashlib.sha256()
    for nodes, edges, seed in wanted:
        with accounting.phase("graph"):
            with accounting.phase("make"):
                graph = nx.gnm_random_graph(nodes, edges, seed=seed)
            with accounting.phase("betweenness"):
                between = nx.betweenness_centrality(graph)
            with accounting.phase("communities"):
                groups = nx.community.greedy_modularity_communities(graph)
            accounting.count("groups", len(groups))
        digest.update(repr((sorted(between.items()), [sorted(g) for g in groups])).encode())
    return digest.hexdigest()
