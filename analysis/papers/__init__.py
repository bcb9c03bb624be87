"""What the papers print, as data: every table, and every figure or sentence that names its numbers.

`find("focus", "table 6", column="1M")` gives cells; each says what it was measured on and what is doubtful about it.
"""

from functools import cache
from pathlib import Path

from ..errors import BadSetting
from .cells import Cell, parse

__all__ = ["PAPERS", "Cell", "find", "tables"]

# One CSV file per paper.
FOLDER = Path(__file__).parent
# Name of a paper -> its title.
PAPERS = {
    "focus": "Focus",
    "focal_attention": "Learning to Focus: Focal Attention for Selective and Scalable Transformers",
    "calibrated_sparse_attention": "90% of attention is slack in pretrained transformers",
    "gwr_linear_routing": "Training-Free Linear Routing for Sparse Attention via Attention-Mass Prediction",
    "focal_summary_zh": "Focal Attention, a summary in Chinese",
}


@cache
def _cells(paper: str) -> tuple[Cell, ...]:
    if paper not in PAPERS:
        raise BadSetting(f"There is no paper {paper!r} here: choose one of {', '.join(PAPERS)}.")
    with open(FOLDER / f"{paper}.csv", encoding="utf-8", newline="") as lines:
        return tuple(parse(paper, lines))


def tables(paper: str) -> list[str]:
    """The tables of a paper in its order: `table 6`, `figure 2`, and `section 3.5` for what stands there without a
    number. Raises BadSetting for a paper that is not in `PAPERS`."""
    return list(dict.fromkeys(cell.table for cell in _cells(paper)))


def find(
    paper: str | None = None, table: str | None = None, row: str | None = None, column: str | None = None
) -> list[Cell]:
    """The cells whose names are exactly these, in the paper's order; None is any. Empty when no row or column fits.

    Raises BadSetting for a paper that is not in `PAPERS`, and for a table that the named paper does not have.
    """
    if paper is not None and table is not None and table not in tables(paper):
        raise BadSetting(f"The paper {paper!r} has no {table!r} here: choose one of {', '.join(tables(paper))}.")
    wanted = (table, row, column)
    return [
        cell
        for name in (PAPERS if paper is None else [paper])
        for cell in _cells(name)
        if all(want in (None, has) for want, has in zip(wanted, (cell.table, cell.row, cell.column), strict=True))
    ]
