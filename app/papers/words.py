"""Printed and measured numbers in words."""

from analysis.papers.cells import Cell
from analysis.papers.ours import CANNOT_HOLD, DAMAGED, MEASURED, NOT_MEASURED, RELATED, Reading

SHORT = {  # what a reader calls a paper
    "focus": "Focus",
    "focal_attention": "Focal Attention",
    "calibrated_sparse_attention": "CSA",
    "gwr_linear_routing": "GWR Linear",
    "focal_summary_zh": "Focal summary (Chinese)",
}
LOOK = {  # state -> icon and colour of its badge
    MEASURED: (":material/check:", "green"),
    RELATED: (":material/compare_arrows:", "blue"),
    NOT_MEASURED: (":material/hourglass_empty:", "gray"),
    CANNOT_HOLD: (":material/block:", "orange"),
    DAMAGED: (":material/broken_image:", "gray"),
}
NOTHING = "–"


def printed(cell: Cell) -> str:
    """A printed number with its unit."""
    value = f"{cell.value:,g}" if isinstance(cell.value, float) else cell.value
    return f"{value}{'' if cell.unit in ('%', 'K', 'M', 'B', 'x') else ' '}{cell.unit}".strip()


def row_printed(cells: list[Cell]) -> str:
    """All printed numbers of a row in one line; those in doubt with a mark."""
    return "; ".join(f"{cell.column} {printed(cell)}{'†' * doubtful(cell)}" for cell in cells)


def doubtful(cell: Cell) -> bool:
    """Whether a cell is in doubt; one that only says how it was read is not."""
    return bool(cell.note) and not cell.note.startswith("read")


def value(number: float, unit: str) -> str:
    """A number of ours as it is read."""
    if unit == "share":
        return f"{number:.1%}"
    if unit == "change":
        return f"{number:+.1%}".replace("-", "−")
    if unit in ("nats", "points"):
        return (f"{number:+.4f} nats" if unit == "nats" else f"{100 * number:+.1f} points").replace("-", "−")
    if unit == "x":
        return f"{number:.2f} times"
    if unit in ("tokens", "keys"):
        return f"{number:,.0f} {unit}"
    return f"{number:.2f}" if unit == "ppl" else f"{number:,.3g}"


def measured(one: Reading) -> str:
    """A number of ours with its 95% interval, its standard error and its items, where they are stored."""
    said = value(one.value, one.number.unit)
    if one.low is not None and one.high is not None:
        said = f"{said} ({value(one.low, one.number.unit)} to {value(one.high, one.number.unit)})"
    said += "" if one.stderr is None else f", standard error {value(one.stderr, one.number.unit)}"
    return said + ("" if one.items is None else f", {one.items:,} items")


def row_measured(known: list[Reading], most: int = 2) -> str:
    """The first numbers of ours in one line."""
    said = [f"{one.number.says}: {value(one.value, one.number.unit)}" for one in known[:most]]
    more = len(known) - most
    return "; ".join(said) + (f"; {more} more" if more > 0 else "")


def made(about: dict) -> str:
    """On what and when numbers were measured."""
    facts = [f"model {about['model']}" if about.get("model") else "", about.get("corpus")]
    facts += [f"windows of {about['window']:,} tokens" if about.get("window") else ""]
    facts += [f"device {about['device']}" if about.get("device") else "", about.get("dtype")]
    facts += [
        f"torch {about['versions']['torch']}" if about.get("verb") == "pitfalls" and about.get("versions") else ""
    ]
    facts += [str(about.get("date", ""))[:10]]
    return " · ".join(fact for fact in facts if fact)
