"""The README's tables of the equal-budget study are those of the stored study, cell by cell, with its intervals."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
STUDY = ROOT / "models_cache" / "demo" / "studies" / "equal-budget.json"
TEXTS = {"novels": "novels", "python": "Python", "wikitext": "WikiText-2"}
SHARES = (0.05, 0.1, 0.25, 0.5)


def table(head: str, rows: list[dict], cell) -> str:
    """Markdown: a row for every label, a column for every share; `cell` makes one of its rows, text -> row."""
    lines = [
        f"| {head} | " + " | ".join(f"{share:.0%}".replace("%", " %") for share in SHARES) + " |",
        "|---" * 5 + "|",
    ]
    for label in dict.fromkeys(row["label"] for row in rows):
        cells = []
        for share in SHARES:
            mine = {row["domain"]: row for row in rows if (row["label"], row["share"]) == (label, share)}
            cells.append(cell(mine))
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def change(row: dict | None) -> str:
    """A change of perplexity in per cent; a dash where the budget cannot be reached."""
    return "–" if row is None or row["difference"] is None else f"{100 * row['difference']:+.1f}"


def interval(row: dict | None) -> str:
    """The same with its 95 % interval."""
    if row is None or row["difference"] is None:
        return "–"
    return f"{change(row)} ({100 * row['difference_low']:+.1f} to {100 * row['difference_high']:+.1f})"


def tables() -> list[str]:
    """All texts in one table for each context; then one with intervals for each context and text."""
    rows = json.loads(STUDY.read_text(encoding="utf-8"))["rows"]
    contexts = sorted({row["context"] for row in rows})
    made = []
    for context in contexts:
        mine = [row for row in rows if row["context"] == context]
        made.append(
            table(f"{context:,} tokens", mine, lambda cells: " / ".join(change(cells.get(text)) for text in TEXTS))
        )
        for text, name in TEXTS.items():
            made.append(table(f"{name}, {context:,} tokens", mine, lambda cells, text=text: interval(cells.get(text))))
    return made


@pytest.mark.parametrize("at", range(8))
def test_the_readme_prints_what_is_stored(at):
    assert tables()[at] in (ROOT / "README.md").read_text(encoding="utf-8"), f"the README lacks\n{tables()[at]}"
