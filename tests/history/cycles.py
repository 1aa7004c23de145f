"""Cycles in a graph of operations: who read whom, who wrote behind whom.

Role: pure functions over pairs of numbers. Thread: any. Lock: none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Edge = tuple[int, int]
Graph = dict[int, list[int]]


def cycles(edges: Iterable[Edge]) -> Iterator[tuple[set[int], list[int]]]:
    """For every group of nodes that can all reach each other: the group, and one cycle within it."""
    graph: Graph = {}
    for source, target in edges:
        graph.setdefault(source, []).append(target)
    for group in _strongly_connected(graph):
        if len(group) > 1:
            yield group, _walk(graph, group)


def _walk(graph: Graph, group: set[int]) -> list[int]:
    """Inside such a group every node has a successor, so that a walk comes back to where it has been."""
    path = [min(group)]
    seen = {path[0]: 0}
    while True:
        following = next(node for node in graph[path[-1]] if node in group)
        if following in seen:
            return path[seen[following] :]
        seen[following] = len(path)
        path.append(following)


def _strongly_connected(graph: Graph) -> Iterator[set[int]]:
    """Tarjan's algorithm without recursion: a history may have a chain of a million operations."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    open_nodes: list[int] = []
    is_open: set[int] = set()
    for root in graph:
        if root in order:
            continue
        work = [(root, iter(graph[root]))]
        order[root] = low[root] = len(order)
        open_nodes.append(root)
        is_open.add(root)
        while work:
            node, successors = work[-1]
            for following in successors:
                if following not in order:
                    order[following] = low[following] = len(order)
                    open_nodes.append(following)
                    is_open.add(following)
                    work.append((following, iter(graph.get(following, ()))))
                    break
                if following in is_open:
                    low[node] = min(low[node], order[following])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    yield _close(node, open_nodes, is_open)


def _close(node: int, open_nodes: list[int], is_open: set[int]) -> set[int]:
    group = set()
    while node not in group:
        last = open_nodes.pop()
        is_open.discard(last)
        group.add(last)
    return group
