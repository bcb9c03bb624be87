"""Tables of the README are those of the stored studies, cell by cell, with their intervals."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STUDIES = ROOT / "models_cache" / "demo" / "studies"
TEXTS = {"novels": "novels", "python": "Python", "wikitext": "WikiText-2"}
SHARES = (0.05, 0.1, 0.25, 0.5)


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def stored(name: str) -> list[dict]:
    """The rows of a stored study."""
    return json.loads((STUDIES / f"{name}.json").read_text(encoding="utf-8"))["rows"]


def printed(head: str, rows: list[list[str]]) -> str:
    """Markdown of a table whose columns `head` names, separated by bars."""
    line = "|---" * len(rows[0]) + "|"
    return "\n".join([f"| {head} |", line, *(f"| {' | '.join(cells)} |" for cells in rows)])


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
    rows = stored("equal-budget")
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


def against(row: dict) -> list[str]:
    """Perplexity of a model of the studies of Focal Attention; against dense, of both seeds and of each."""
    from_dense = [""] * 2
    if not row["arm"].startswith("dense"):
        from_dense = [apart(row, "against_dense"), f"{row['first_against']:+.4f}, {row['second_against']:+.4f}"]
    return [f"{row['perplexity']:.2f}", *from_dense]


def temperature(row: dict) -> str:
    """The temperature of a model: as it was set, or as its layers learned it."""
    return f"{row['temperature']:.2f}" if row["temperature"] else f"{row['t']:g}"


def temperatures() -> str:
    """Constant, learned and adapted temperatures."""
    rows = [
        [row["arm"], temperature(row), *against(row), "" if row["gains"] is None else f"{row['gains']:.2f}"]
        for row in stored("focal-temperatures")
    ]
    return printed("trained with | t | perplexity | minus dense | each seed | gains of the norms", rows)


def limits() -> str:
    """Temperatures that are learned within limits."""
    rows = [
        ["dense" if row["tau_min"] is None else f"{row['tau_min']:g} to {row['tau_max']:g}", temperature(row)]
        + against(row)
        for row in stored("focal-limits")
    ]
    return printed("limits of τ | t, mean | perplexity | minus dense | each seed", rows)


def scaling() -> str:
    """Three widths, and contexts at the middle one."""
    rows = [
        [f"{row['width']}", f"{row['parameters'] / 1e6:.1f} M", f"{row['context']:,}", row["arm"], *against(row)]
        for row in stored("focal-scaling")
    ]
    return printed("width | parameters | context | trained with | perplexity | minus dense | each seed", rows)


def longer() -> str:
    """Every way of reading twice the context."""
    rows = [
        [row["way"], *(f"{row[name]:.3f}" for name in ("within", "beyond", "last"))]
        + [apart(row, "against_alone"), "" if row["way"] == "own positions" else apart(row, "against_own")]
        for row in stored("length-extension")
    ]
    head = (
        "positions | within the context | beyond | last quarter | minus its second half alone | within, minus as it is"
    )
    return printed(head, rows)


def apart(row: dict, key: str) -> str:
    """A difference in nats with its 95 % interval."""
    return f"{row[key]:+.4f} ({row[f'{key}_low']:+.4f} to {row[f'{key}_high']:+.4f})"


def baselines() -> str:
    """Every way to train, at the rate that its own windows chose."""
    rows, made = stored("baselines"), []
    for line in dict.fromkeys(row["line"] for row in rows):
        row = min((row for row in rows if row["line"] == line), key=lambda row: row["choosing"])
        changes = [apart(row, key) for key in ("new", "old")]
        changes.append(
            "{:+.1f} ({:+.1f} to {:+.1f})".format(*(100 * row[f"tasks{end}"] for end in ("", "_low", "_high")))
        )
        cells = [line, f"{row['rate']:g}" if row["rate"] else "", f"{row['trained_parameters']:,}"]
        numbers = [
            f"{row['new_domain']:.2f}",
            f"{row['old_domain']:.2f}",
            f"{row['task_score']:.0%}".replace("%", " %"),
        ]
        pairs = zip(numbers, changes, strict=True)
        made.append(cells + [f"{number}" if line == "base" else f"{number}: {change}" for number, change in pairs])
    return printed("trained | rate | parameters | Python | novels and WikiText-2 | tasks right", made)


@pytest.mark.parametrize("at", range(8))
def test_the_readme_prints_what_is_stored(at):
    assert tables()[at] in readme(), f"the README lacks\n{tables()[at]}"


@pytest.mark.parametrize("made", [temperatures, limits, scaling, longer, baselines])
def test_the_readme_prints_the_trained_studies(made):
    assert made() in readme(), f"the README lacks\n{made()}"
