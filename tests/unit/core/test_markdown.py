from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from trainbench.core.markdown import bullets, escape, folded, table
from trainbench.core.tables import Table, text_columns, text_row

HOSTILE = (
    "<script>alert(1)</script>",
    "a | b | c",
    "`code` *bold* _it_ __b__ ~~s~~",
    "[link](javascript:alert(1)) ![image](x)",
    "two\nlines\r\n\n# heading",
    "&lt; & &amp;",
    "back\\slash \\| pipe",
    "- a list",
    "12. a list",
    "snake_case_name",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_escaped_text_shows_exactly_its_characters(text: str) -> None:
    """A CommonMark reader gives back one paragraph of plain text: no tag, no link, no emphasis."""
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(escape(text))
    inline = tokens[1].children or []
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    assert {token.type for token in inline} <= {"text", "text_special"}
    assert "".join(token.content for token in inline) == " ".join(text.split())


def test_addresses_do_not_become_links() -> None:
    assert "https://" not in escape("see https://evil.example")


def test_a_table_keeps_its_columns_whatever_its_cells_hold() -> None:
    rows = tuple(text_row(text, "1") for text in HOSTILE)
    html = MarkdownIt("gfm-like", {"linkify": False}).render(table(Table(columns=text_columns("a", "b"), rows=rows)))
    assert html.count("<td>") == 2 * len(HOSTILE)
    assert "<script" not in html


def test_rows_link_only_where_there_is_an_address() -> None:
    content = Table(columns=text_columns("run"), rows=(text_row("r1", run_id="x-r1"), text_row("r2", run_id="x-r2")))
    assert table(content, {"x-r1": "../runs/x-r1/result.json"}).splitlines()[2:] == [
        "| [r1](../runs/x-r1/result.json) |",
        "| r2 |",
    ]


def test_a_closed_table_stands_under_its_title() -> None:
    content = Table(columns=text_columns("run"), rows=(text_row("r1"), text_row("r2")), title="Runs")
    html = MarkdownIt("gfm-like", {"linkify": False}).render(folded(content))

    assert html.index("<details><summary>Runs</summary>") < html.index("<td>r1</td>") < html.index("</details>")


def test_bullets() -> None:
    assert bullets(["a", "b*"]) == "- a\n- b\\*\n"
