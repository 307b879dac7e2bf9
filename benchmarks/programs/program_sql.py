"""A compiler: sqlglot parses, optimises and writes SQL. Short calls, recursion, generators."""

from __future__ import annotations

import hashlib
from typing import Any

import sqlglot
from sqlglot.optimizer import optimize, scope

PACKAGE = "sqlglot"
# Every rule of the optimiser walks through it: a generator.
HOT = (scope, "walk_in_scope")
SCHEMA = {
    "orders": {"customer_id": "int", "total": "double", "day": "text", "state": "text"},
    "customers": {"id": "int", "name": "text", "region": "text"},
    "regions": {"name": "text"},
}
QUERY = """
WITH recent AS (
  SELECT o.customer_id, o.total, o.day, ROW_NUMBER() OVER (PARTITION BY o.customer_id ORDER BY o.day DESC) AS place
  FROM orders AS o WHERE o.day >= '2024-01-{day:02d}' AND o.state IN ('paid', 'sent')
)
SELECT c.name, c.region, SUM(r.total) AS spent, COUNT(*) AS orders,
  CASE WHEN SUM(r.total) > {large} THEN 'large' WHEN SUM(r.total) > {middle} THEN 'middle' ELSE 'small' END AS kind
FROM customers AS c JOIN recent AS r ON r.customer_id = c.id LEFT JOIN regions AS g ON g.name = c.region
WHERE r.place <= {places} AND (c.region = 'north' OR c.region = 'south') AND c.name LIKE 'a%'
GROUP BY c.name, c.region HAVING SUM(r.total) > 5 ORDER BY spent DESC LIMIT {limit}
"""


def inputs(size: float) -> list[str]:
    return [
        QUERY.format(day=1 + n % 28, large=1000 + n, middle=100 + n, places=1 + n % 20, limit=10 + n)
        for n in range(max(1, round(13 * size)))
    ]


def bare(queries: list[str]) -> str:
    digest = hashlib.sha256()
    for query in queries:
        tree = sqlglot.parse_one(query, dialect="duckdb")
        best = optimize(tree, schema=SCHEMA)
        digest.update(best.sql("spark").encode())
    return digest.hexdigest()


def phased(queries: list[str], accounting: Any) -> str:
    digest = hashlib.sha256()
    for query in queries:
        with accounting.phase("query"):
            with accounting.phase("parse"):
                tree = sqlglot.parse_one(query, dialect="duckdb")
            with accounting.phase("optimise"):
                best = optimize(tree, schema=SCHEMA)
            with accounting.phase("write"):
                text = best.sql("spark")
            accounting.count("characters", len(text))
        digest.update(text.encode())
    return digest.hexdigest()
