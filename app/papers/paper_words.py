"""Printed and measured numbers in words."""

from typing import Any

from analysis.claims import signed
from analysis.papers.cells import Cell
from analysis.papers.ours import ALIKE, CANNOT_HOLD, DAMAGED, MEASURED, NOT_MEASURED, RELATED, SHAPES, Reading
from app.ui import spelled
from app.ui.charts import GROUPS, RANDOM

SHORT = {  # what a reader calls a paper
    "focus": "Focus",
    "focal_attention": "Focal Attention",
    "calibrated_sparse_attention": "CSA",
    "gwr_linear_routing": "GWR Linear",
    "focal_summary_zh": "Focal summary (Chinese)",
}
LOOK: dict[str, tuple[str, Any, str]] = {  # state -> icon and colour of its badge, colour of its bars
    MEASURED: (":material/check:", "green", GROUPS[2]),
    ALIKE: (":material/check:", "blue", GROUPS[4]),
    RELATED: (":material/compare_arrows:", "blue", GROUPS[0]),
    NOT_MEASURED: (":material/hourglass_empty:", "gray", RANDOM),
    CANNOT_HOLD: (":material/block:", "orange", GROUPS[1]),
    DAMAGED: (":material/broken_image:", "gray", GROUPS[3]),
}
# Units that stand at their number without a space.
ATTACHED = ("%", "K", "M", "B", "x")


def printed(cell: Cell) -> str:
    """A printed number with its unit."""
    value = f"{cell.value:,g}" if isinstance(cell.value, float) else cell.value
    return f"{value}{cell.unit}" if cell.unit in ATTACHED else f"{value} {cell.unit}".strip()


def doubtful(cell: Cell) -> bool:
    """Whether a cell is in doubt; one that only says how it was read is not."""
    return bool(cell.note) and not cell.note.startswith("read")


def value(number: float, unit: str) -> str:
    """A number of ours as it is read, in one of `ours.UNITS`."""
    match unit:
        case "share":
            # what is less than a tenth of a per cent keeps two digits
            return f"{100 * number:.2g}%" if 0 < number < 1e-3 else f"{number:.1%}"
        case "change":
            return signed(number, ".1%")
        case "nats":
            return f"{signed(number)} nats"
        case "points":
            return f"{signed(100 * number, '.1f')} points"
        case "x":
            return f"{number:.2f} times"
        case "tokens" | "keys":
            return f"{number:,.0f} {unit}"
        case "ppl":
            return f"{number:.2f}"
        case _:
            return f"{number:,.3g}"


def measured(reading: Reading) -> str:
    """A number of ours with its 95% interval, its standard error and its items, where they are stored."""
    unit = reading.number.unit
    words = value(reading.value, unit)
    if reading.low is not None and reading.high is not None:
        words += f" ({value(reading.low, unit)} to {value(reading.high, unit)})"
    if reading.stderr is not None:
        words += f", standard error {value(reading.stderr, unit)}"
    return words if reading.items is None else f"{words}, {reading.items:,} items"


def one_line(words: list[str], most: int) -> str:
    """The first of some numbers in words, and how many more there are."""
    return "; ".join(words[:most] + ([f"{len(words) - most} more"] if len(words) > most else []))


def size(protocol: dict[str, Any], parameters: int | None) -> str:
    """How large that was which numbers were measured on: parameters, of a model unless the study trained others; steps
    and trainings, documents; of a timing its longest text and its device. `parameters`: of the model in use."""
    if protocol["verb"].split(" ")[-1] in (*SHAPES, "gpu-check", "kernels"):
        longest = protocol.get("tokens")
        return ", ".join(filter(None, [longest and f"{longest:,} tokens", protocol.get("processor")]))
    counts = protocol.get("parameters") or [parameters] * (parameters is not None)
    ends = dict.fromkeys(spelled.parameters(count) for count in (*counts[:1], *counts[-1:]))
    facts = [f"{' to '.join(ends)} parameters"] if ends else []
    for name, unit in (("steps", "step"), ("seeds", "training"), ("units", str(protocol.get("unit", "")).rstrip("s"))):
        if count := protocol.get(name):
            facts.append(f"{count:,} {unit}{'s' * (count > 1)}")
    return ", ".join(facts)


def made(protocol: dict[str, Any]) -> str:
    """On what and when numbers were measured."""
    window, torch = protocol.get("window"), protocol.get("versions", {}).get("torch")
    facts = [
        protocol.get("model") and f"model {protocol['model']}",
        protocol.get("corpus"),
        window and f"windows of {window:,} tokens",
        protocol.get("device") and f"device {protocol['device']}",
        protocol.get("dtype"),
        # Its numbers are about torch's own kernels.
        f"torch {torch}" if protocol.get("verb") == "pitfalls" and torch else None,
        str(protocol.get("date", ""))[:10],
    ]
    return " · ".join(fact for fact in facts if fact)
