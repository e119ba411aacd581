"""Impossible questions, hostile names and hostile content."""

from __future__ import annotations

import csv
import html
import io
import re
from pathlib import Path
from typing import Any

import pytest

from tests.dag.pages.site import HOSTILE, PAGES, a_run, get

BAD_QUERIES = [
    "?days=31", "?days=-1", "?days=x", "?page=0", "?page=-1", "?page=x", f"?page={10**30}", "?format=exe",
    f"?gpu={'x' * 301}", "?model=%00", "runs?page=-7", "notices/x",
    "dags/page_nodes/runs/r/tasks/t?map_index=-2", f"dags/page_nodes/runs/r/tasks/t?map_index={10**20}",
]  # fmt: skip


NOT_THERE = [
    "notices/0", "notices/-1", f"notices/{10**30}", "notices/999", "nodes/nobody", "nodes/%00",
    "nodes/..%2f..%2fetc",
    "nodes/a%2Fb", "results/..%2f..%2fetc/passwd", "results/%2e%2e/%2e%2e", "results/last/..%2f..%2fsummary",
    "results/last/nobody", "runs/last/%00", "static/..%2frender.py", "static/render.py", "static/%2e%2e%2frender.py",
    "static/%2fetc%2fpasswd", "nodes/node-3?format=csv&table=..%2f", "dags/page_nodes/runs/nobody",
    "?format=csv&table=users",
    "dags/page_nodes/runs/r/tasks/publish?map_index=3",
    "dags/page_nodes/runs/r/tasks/plan?map_index={MAP_INDEX}", "nowhere", f"nodes/{'x' * 3000}",
]  # fmt: skip


@pytest.mark.parametrize("path", BAD_QUERIES)
def test_impossible_questions_are_answered_with_a_sentence(client: Any, pages: Path, path: str) -> None:
    reply = get(client, path, "ada")

    assert reply.status_code == 422
    assert "Invalid address" in reply.text


@pytest.mark.parametrize("path", NOT_THERE, ids=lambda path: path[:40])
def test_unknown_and_hostile_names_open_nothing(client: Any, pages: Path, path: str) -> None:
    reply = get(client, path, "ada")

    assert reply.status_code == 404
    if "text/html" in reply.headers["content-type"]:
        assert "root:" not in reply.text
        assert re.search(r"<h1>[^<]{8,}</h1>\s*<p>[^<]{15,}</p>", reply.text)


@pytest.mark.parametrize(
    "path",
    [
        f"?gpu={HOSTILE}",
        f"runs?model={HOSTILE}",
        f"nodes/{HOSTILE.replace('/', '%2F')}",
        f"nodes/node-3?strategy={HOSTILE}",
        f"?days={HOSTILE}",
        f"?format={HOSTILE}",
        f"notices/{HOSTILE}",
        f"dags/page_nodes/runs/{HOSTILE}",
        "?gpu=%22%3E%3Cimg%20src=x%20onerror=alert(1)%3E",
    ],
)
def test_the_request_is_never_a_tag_of_the_response(client: Any, pages: Path, path: str) -> None:
    text = get(client, path, "ada").text

    assert HOSTILE not in text
    assert "<img" not in text
    assert 'href="javascript' not in text


def test_hostile_content_of_the_history_stays_text(client: Any, own_pages: Path) -> None:
    import sqlite3

    marked = f"\"><img src=x onerror=alert(1)>{HOSTILE}'="
    with sqlite3.connect(own_pages / "history.db") as database:
        for table, names in {
            "notices": ("reason", "gpu_name", "dag_run_id", "model"),
            "works": ("label", "gpu_name", "model", "recipe", "strategy", "preset"),
            "node_verdicts": ("reason",),
            "runs": ("gpu_name", "driver", "image", "model"),
            "campaigns": ("title", "dag_run_id"),
        }.items():
            database.execute(f"UPDATE {table} SET {', '.join(f'{name} = ?' for name in names)}", [marked] * len(names))
        for field in ("cause", "resolution", "summary", "measured", "expected", "nodes[0]"):
            database.execute("UPDATE notices SET finding = json_set(finding, ?, ?)", [f"$.{field}", marked])
        database.execute("UPDATE notices SET node = node || ?", [marked])
        database.execute("UPDATE node_verdicts SET node = node || ?", [marked])
    for path in PAGES:
        text = get(client, path.format(run=a_run(own_pages)), "ada").text
        if not path.startswith("results"):
            assert HOSTILE not in text, path
            assert "<img" not in text, path
    assert html.escape(HOSTILE) in get(client, "").text


def test_a_name_in_a_csv_is_no_formula(client: Any, own_pages: Path) -> None:
    import sqlite3

    with sqlite3.connect(own_pages / "history.db") as database:
        database.execute(
            "UPDATE notices SET finding = json_set(finding, '$.resolution', '=HYPERLINK(\"http://evil\")')"
        )
    rows = {row["node"]: row for row in csv.DictReader(io.StringIO(get(client, "?table=nodes&format=csv").text))}

    assert rows["node-3"]["next"].startswith("'=")
