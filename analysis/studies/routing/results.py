"""What the commands of the router lab return."""

from typing import Any

from pandas import DataFrame

from ...answer import Answer, doc, record
from .cells import Cell
from .indexers import IndexerRow
from .rows import CellRows, ClosureRow, HeadRow, Line, MeanRow, PaperRow
from .score import BucketBalance, RouterTiming
from .starved import StarvedRow


@record
class Tables:
    """What is told of one setting at one budget and at every budget of the paper."""

    means: list[MeanRow] = doc("one row per router, mean over heads, at `l` buckets")
    closure: list[ClosureRow] = doc("gap closure, one row per router")
    heads: list[dict[str, Any]] = doc("the paper's table 2: recalls of every head")
    curve: list[MeanRow] = doc("`means` at every budget")
    closures: list[ClosureRow] = doc("`closure` at every budget")
    l: float = doc("buckets that a query visits")  # noqa: E741
    queries: int = doc("queries with any far attention")


def tables_of(rows: CellRows, cell: Cell, visited: float, at_budgets: tuple | None = None) -> dict[str, Any]:
    """The fields of Tables; `at_budgets`: those of all budgets, where they are known already."""
    curve, closures = at_budgets or rows.at_budgets()
    return {
        "means": rows.means(visited),
        "closure": rows.closure(visited),
        "heads": rows.head_table(visited),
        "curve": curve,
        "closures": closures,
        "l": visited,
        "queries": int(rows.curves.queries[cell].sum()),
    }


@record
class Beside:
    """What was found beside curves."""

    balance: list[BucketBalance] = doc("how evenly the keys of each head lie in its buckets")
    timings: list[RouterTiming] = doc("what each router costs")
    notes: list[str] = doc("what a reader must know of texts and routers")


@record
class NamedCell:
    """A setting of which there are curves."""

    name: str
    min_distance: int
    sinks: int = doc("first keys that are left out")
    partition: str = doc("which vectors the buckets are of")
    recall_of: str = doc("what recall is a share of: the far attention, or all")


@record
class RoutedCell(Tables, NamedCell):
    """One setting: its tables at one budget and at every budget."""


@record
class Routed(Beside, Tables, Answer):
    """How much of the far attention bucket routers find."""

    sentence: str = doc("the result in words")
    means: list[MeanRow] = doc("one row per router, mean over heads, at `l` buckets", row=MeanRow)
    rows: list[HeadRow] = doc("one row per head, router and budget, C/256 to C/8", row=HeadRow)
    lines: dict[str, Line] = doc("router -> its curve at every kept budget, in the first setting")
    cells: list[RoutedCell] = doc("every setting with its own tables")
    paper: list[PaperRow] = doc("what the paper prints")
    meaning: dict[str, str | None] = doc("router -> what it does")
    budgets: list[int] = doc("the paper's budgets that C allows")
    buckets: int = doc("C")
    indexers: list[IndexerRow] | None = doc("one row per fitted indexer, the one that finds most first", default=None)
    starved: list[StarvedRow] | None = doc(
        "every head under the selection that it shares, the hungriest first", default=None
    )


@record
class RoutedAt(Beside, Tables, Answer):
    """Recall of every router at one number of visited buckets, and at every other."""

    sentence: str = doc("the result in words")
    lines: dict[str, Line] = doc("router -> its curve at every kept budget")
    cells: list[NamedCell] = doc("the settings there are")
    min_distance: int = doc("of the setting that is shown")
    sinks: int = doc("first keys that are left out")
    partition: str = doc("which vectors the buckets are of")
    recall_of: str = doc("what recall is a share of: the far attention, or all")
    buckets: int = doc("C")
    documents: int = doc("documents, or windows of the text")
    paper: list[PaperRow] = doc("what the paper prints")
    rows: DataFrame = doc("one row per head and router", row=HeadRow)


@record
class VisitedQuery:
    """The query whose buckets are shown."""

    position: int
    word: str
    layer: int
    head: int
    router: str


@record
class VisitedBucket:
    """A bucket of one query."""

    bucket: int
    score: float = doc("the router's")
    rank: int = doc("0 for the bucket that is visited first")
    visited: bool
    keys: int = doc("far keys in it")
    mass: float = doc("share of the far attention that they hold")


@record
class VisitedBuckets(Answer):
    """The buckets that one query visits, with its real attention."""

    recall: float = doc("share of the far attention in the visited buckets")
    best: float = doc("what as many buckets could hold")
    far_mass: float = doc("far share of all attention")
    selectivity: float = doc("share of the far keys in the visited buckets")
    query: VisitedQuery = doc("the query")
    sentence: str = doc("the result in words")
    buckets: int = doc("C")
    start: int = doc("first token of the query's window")
    notes: list[str] = doc("what a reader must know of text and routers")
    tokens: DataFrame = doc("the tokens with bucket (-1: not in reach), visited, far and their real attention")
    bucket_table: DataFrame = doc("one row per bucket", row=VisitedBucket, name="buckets")
