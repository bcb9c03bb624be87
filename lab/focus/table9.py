"""Table 9's grid: its factors, the plan of every cell, and what the paper prints for it."""

from dataclasses import replace

from analysis.errors import BadSetting
from analysis.models import Model
from analysis.studies.stored.panels import printed
from analysis.training.settings import RouterTraining

FACTORS: dict[str, tuple] = {
    "groups": (2, 4, 8, 16, 32),
    "window": (16, 64, 128, 256, 512),
    "window_of_two": (16, 128, 512),
    "temperature": (0.05, 0.1, 0.2, 0.5),
    "iterations": (3, 5, 10, 20),
    "dimensions": ("full", 128, 32, 16),
    "similarity": ("dot", "cosine"),
}
LABELS = {  # factor -> (label of its axis, its name in table 9)
    "groups": ("groups, K", "K"),
    "window": ("window, tokens", "w"),
    "window_of_two": ("window of two groups, tokens", ""),
    "temperature": ("temperature", "τ"),
    "iterations": ("Sinkhorn iterations", "Sinkhorn iters"),
    "dimensions": ("dimensions of routing vectors", "d_s"),
    "similarity": ("similarity of a token and a centroid", ""),
}
PRINTED = {  # key of a row -> column of table 9, and what it is divided by
    "paper_centroid": ("Centroid PPL", 1),
    "paper_tuned": ("Fine-tuned PPL", 1),
    "paper_share_centroid": ("Dominance (centroid)", 100),
    "paper_share_tuned": ("Dominance (full FT)", 100),
}
Cell = tuple[str, float | str]  # factor, value
# Every factor shares a cell with the others.
CELLS = sum(map(len, FACTORS.values())) - len(FACTORS) + 1


def cells(rows: str | None, plan: RouterTraining, lm: Model) -> dict[Cell, RouterTraining]:
    """(factor, value) -> the plan of that cell, of the factors and cells named in `rows`. Errors: BadSetting."""
    changes: dict[Cell, dict] = {}
    for factor, values in FACTORS.items():
        for value in values:
            field = {"dimensions": "d_s", "window_of_two": "window"}.get(factor, factor)
            changes[factor, value] = {field: lm.width if value == "full" else value}
            if factor == "window_of_two":
                changes[factor, value]["groups"] = 2
    # Two groups have the window of appendix B, whatever the others have.
    changes["groups", 2]["window"] = 16
    names = {f"{factor}={value}": (factor, value) for factor, value in changes}
    wanted = [word.strip() for word in rows.split(",")] if rows else list(FACTORS)
    if unknown := [word for word in wanted if word not in (*FACTORS, *names)]:
        raise BadSetting(
            f"There is no row {unknown[0][:40]!r}: the rows are {', '.join(FACTORS)}, or one of their cells such as "
            f"{', '.join(list(names)[1:3])}."
        )
    return {key: replace(plan, **changes[key]) for name, key in names.items() if {name, key[0]} & set(wanted)}


def paper_numbers(factor: str, value: float | str) -> dict[str, float | None]:
    """What the paper prints for a cell (GPT-2 124M, PG-19, window 128 unless varied); None where it prints nothing."""
    row: dict[str, float | None] = dict.fromkeys(PRINTED)
    if (factor, value) in (("groups", 2), ("window_of_two", 16)):
        row["paper_centroid"] = printed("appendix B", "w=16", "PPL")
    elif factor == "dimensions":
        width = "768 (full)" if value == "full" else value
        row["paper_centroid"] = printed("section 2", f"d_s={width}", "PPL")
    elif LABELS[factor][1]:
        for key, (name, by) in PRINTED.items():
            number = printed("table 9", f"{LABELS[factor][1]}={value}", name)
            row[key] = None if number is None else number / by
    return row
