"""One self-contained HTML page for what leaves the program: it loads nothing, and every word in it is escaped."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

STYLE = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")


def sheet(title: str, body: str) -> str:
    """A whole page around `body`, which is HTML already; `title` is text."""
    return (
        f"<!doctype html><html lang=en><head><meta charset=utf-8><title>{html.escape(title)} - Focuscope</title>"
        f"<style>{STYLE}</style></head><body><main>\n{body}\n</main></body></html>\n"
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells of text as a table."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    cells = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def facts(entries: Mapping[str, str]) -> str:
    """The list below a picture or a table that says where it comes from, a line for each fact."""
    lines = (f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in entries.items())
    return f"<dl>{''.join(lines)}</dl>"
