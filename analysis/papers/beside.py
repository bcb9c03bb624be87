"""Every printed row with what stands beside it: one mapping, (paper, table, row) -> `Beside`."""

from functools import cache

from analysis.papers import PAPERS, find
from analysis.papers.beside_csa import PARTS_CSA
from analysis.papers.beside_focus import PARTS_ONE
from analysis.papers.beside_focus_more import PARTS_TWO
from analysis.papers.beside_others import PARTS
from analysis.papers.cells import Cell
from analysis.papers.ours import Beside

Key = tuple[str, str, str]  # paper, table, row


@cache
def printed() -> dict[Key, list[Cell]]:
    """Every row that the papers print, in their order, with its cells."""
    found: dict[Key, list[Cell]] = {}
    for paper in PAPERS:
        for cell in find(paper):
            found.setdefault((paper, cell.table, cell.row), []).append(cell)
    return found


@cache
def beside() -> dict[Key, Beside]:
    """What stands beside every printed row. A row without a place here is an error of the program: KeyError."""
    by_paper = {"focus": PARTS_ONE | PARTS_TWO, "calibrated_sparse_attention": PARTS_CSA}
    parts = {(paper, table): made for paper, tables in by_paper.items() for table, made in tables.items()} | PARTS
    return {(paper, table, row): parts[paper, table](row) for paper, table, row in printed()}
