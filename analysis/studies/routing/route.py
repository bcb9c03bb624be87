"""The router lab: how much of the far attention bucket routers find, calibrated on some documents, tested on others."""

from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from ...commands import commandline
from ...commands.routing import LENGTH, Route
from ...corpus import text_hash
from ...declaration.command import Shape
from ...errors import BadSetting
from ...files import clear
from ...indexers.sizes import Sizes
from ...metrics.intervals import DOCUMENTS, state
from ...metrics.routing import budgets
from ...models import Model
from ...routers import MEANING
from ...routers.buckets import buckets_for
from ...routers.mlp import MOST
from ...routers.routing_state import FOLDER
from ..context import STREAMED, Context, protocol
from ..text.held_out import check_range, make_folder, storing
from .cells import FAR, RAW, SINKS, Cell
from .fit import ABLATIONS, OWN, Fitted, calibrate, queries_of
from .indexers import TRAINING, IndexerRow, fit_indexers, indexer_rows, keep_indexers, score_indexers
from .passes import rotated_layers
from .results import Beside, Routed, RoutedCell, Tables, tables_of
from .rows import CellRows, paper_rows, sentence
from .score import Curves, RouterTiming, score_routers
from .starved import StarvedRow, starved_rows
from .states import Kept, keep, state_of
from .texts import Prompt, heads_of, prompts_of, sides_of

GRID = (16, 64, 256, 1024)  # minimum distances
USUAL = (Route.recall_of, Route.optimiser)


def route(request: Route, *, context: Context) -> Routed:
    """Recall and selectivity of every bucket router. The first half of the documents calibrates, the rest tests.

    A query's mass is that of the keys at least `min_distance` back, the first `sinks` keys left out, and adds up to 1;
    with `recall_of` all it is a share of all attention, near keys too, for routers to learn as well. Buckets of `own`
    vectors stand beside their own oracle. The MLP's ablations are of the first setting and left out beside indexers,
    which are held against it. Errors: BadSetting, BadText, TooLarge, BadModel.
    """
    if request.store and request.heads != "all":
        raise BadSetting("Only routers of all heads can be stored: leave the heads out.")
    if request.kinds and (request.heads != "all" or request.recall_of != FAR):
        raise BadSetting(
            "Indexers choose for all heads and are told in shares of the far attention: leave heads and recall_of out."
        )
    if request.store and request.recall_of != FAR:
        raise BadSetting("Shares of all attention are measured and not stored: leave store or recall_of out.")
    if context.browser and (request.store or request.work):
        raise BadSetting("Routers are stored from the command line, not from a page: leave store and work out.")
    lm = context.model(request.model)
    length = request.length or min(lm.max_positions, LENGTH)
    buckets = request.buckets or buckets_for(length)
    cell = Cell(request.min_distance, request.sinks, recall_of=request.recall_of)
    _check(request, lm, length, buckets, cell)
    chosen = heads_of(lm, request.heads)
    cells = _cells(request, cell, length)
    sides = sides_of(context, request.texts, request.corpus)
    texts_hash = text_hash(" ".join(text_hash(text) for text in (*sides[0], "|", *sides[1])))
    context.progress(0.0, "cutting the texts into prompts")
    calibration, test = (prompts_of(lm, side, length, request.prompts, cell.tokens_needed) for side in sides)
    sizes = {"min_distance": request.min_distance, "sinks": request.sinks, "buckets": buckets}
    work = None
    if request.work:
        # Trained routers of other weights, texts or sizes are never taken for these.
        decides = (lm.revision, texts_hash, request.heads, *sizes.values(), length, request.prompts, request.seed)
        decides += tuple(name for name in (request.recall_of, request.optimiser) if name not in USUAL)
        work = Path(request.work) / f"routing-{text_hash(' '.join(map(str, decides)))}"
        make_folder(work.parent)
    shape, tokens = Shape(lm.num_layers, lm.num_heads), sum(len(prompt.ids) for prompt in (*calibration, *test))
    asked = request.arguments
    most, alone = (Route.workload(one, tokens, shape) for one in (asked, asked | {"kinds": None}))
    # The share of the work that is not the indexers'.
    share = alone / most
    of_buckets = context.within(0.0, share)
    fitted = calibrate(
        of_buckets,
        lm,
        calibration,
        chosen,
        rotated_layers(lm),
        cells,
        buckets,
        request.seed,
        request.mlp,
        work,
        request.optimiser,
        ablations=() if request.kinds else ABLATIONS,
    )
    curves, microseconds, balance = score_routers(of_buckets, lm, test, fitted)
    indexed = None
    if request.kinds:
        wanted = Sizes(
            index_bytes=request.index_bytes, min_distance=request.min_distance, sinks=request.sinks, **TRAINING
        )
        after = context.within(share, 1 - share)
        indexed = fit_indexers(after.within(0.0, 0.9), lm, calibration, request.kinds, wanted, request.seed)
        score_indexers(after.within(0.9, 0.1), lm, test, indexed, cell, curves)
    documents = len(curves.queries[cell])
    source: dict[str, Any] = {"texts": ["TEXT"] * len(request.texts or [])}
    if request.corpus:
        source = {"corpus": "DIR"}
    # The command names no place of this machine.
    again = request.arguments | source | {"model": lm.name, "buckets": buckets, "length": length, "work": None}
    recorded = {"window": length, "seed": request.seed, "kernel": STREAMED, "command": commandline("route", again)}
    recorded |= {"unit": "documents", "keys": [text_hash(text) for text in sides[0]]}
    recorded |= {"documents": [len({prompt.document for prompt in side}) for side in (calibration, test)]}
    about = protocol("route", lm, texts_hash, tokens, **recorded, prompts=[len(calibration), len(test)], **sizes)
    notes = _notes(calibration, test, documents, length, cell, request.mlp)
    timings = []
    for kind, route_us in microseconds.items():
        # Whitening and the gauge serve all settings, ablations are of one.
        settings = 1 if kind in (*OWN, *ABLATIONS) else len(fitted.raw_cells)
        timings.append(RouterTiming(kind, fitted.seconds.get(kind, 0.0) / settings, route_us))
    timings.append(RouterTiming("buckets", fitted.seconds["buckets"], None))
    stored = Kept(curves, about, Beside(balance, timings, notes))
    context.kept["routing"] = (stored.key, stored)
    if request.store:
        notes = [*notes, *_store(context, lm, fitted, stored, length, request.seed)]
    # What `calibrate` kept of a run that is done.
    for path in work.parent.glob(f"{work.name}-*") if work else ():
        clear(path)
    visited = request.visited or max(1, buckets // 32)
    of_indexers: list[IndexerRow] | None = None
    starved: list[StarvedRow] | None = None
    if indexed is not None:
        notes = [*notes, *keep_indexers(context, lm, indexed, about)]
        of_indexers = indexer_rows(lm, indexed, curves, cell, visited)
        starved = starved_rows(curves, cell, indexed, request.kinds or (), visited)
    main, *others = (of_cell(curves, one, visited) for one in cells)
    return Routed(
        **{table.name: getattr(main, table.name) for table in fields(Tables)},
        sentence=sentence(main.means, buckets, documents, recall_of=request.recall_of),
        rows=[row for budget in budgets(buckets) for row in CellRows(curves, cell).heads(budget)],
        lines=CellRows(curves, cell).lines(),
        cells=[main, *others],
        **vars(stored.beside) | {"notes": notes},
        indexers=of_indexers,
        starved=starved,
        paper=paper_rows(),
        meaning=MEANING,
        budgets=budgets(buckets),
        buckets=buckets,
        protocol=about,
    )


def of_cell(curves: Curves, cell: Cell, visited: float) -> RoutedCell:
    """What is told of one setting, at `visited` buckets and at every budget."""
    tables = tables_of(CellRows(curves, cell), cell, visited)
    if cell.partition != RAW:
        tables["heads"] = []
    return RoutedCell(name=cell.name, **asdict(cell), **tables)


def _cells(request: Route, cell: Cell, length: int) -> list[Cell]:
    """Every setting that is measured, `cell` first."""
    distances = [distance for distance in GRID if distance <= length // 2] if request.grid else []
    distances += request.distances or []
    cells = [cell, *(replace(cell, min_distance=far, sinks=left_out) for far in distances for left_out in (0, SINKS))]
    if request.own:
        cells += [replace(cell, partition=kind) for kind in OWN]
    return list(dict.fromkeys(cells))


def _check(request: Route, lm: Model, length: int, buckets: int, cell: Cell) -> None:
    check_range("The length of a prompt", length, 8, lm.max_positions)
    check_range("The minimum distance", request.min_distance, 1, length - 1)
    for distance in request.distances or ():
        check_range("A further minimum distance", distance, 1, length - 1 - SINKS)
    check_range("The number of sinks", request.sinks, 0, 64)
    check_range("The number of prompts", request.prompts, 1, 4096)
    check_range("The number of buckets", buckets, 2, length)
    check_range("The number of buckets to visit", request.visited, 1, buckets)
    if cell.tokens_needed > length:
        raise BadSetting(
            f"In a prompt of {length:,} tokens no key lies {cell.min_distance:,} back once {cell.sinks} sinks are left "
            f"out: make it at least {cell.tokens_needed:,} tokens long, or the minimum distance smaller."
        )


def _notes(
    calibration: list[Prompt], test: list[Prompt], documents: int, length: int, cell: Cell, mlp: bool
) -> list[str]:
    queries = queries_of(calibration, cell)
    learned = f" (those that are trained step by step from {MOST:,} of them)" if mlp and queries > MOST else ""
    notes = [
        f"{len(calibration)} prompts of at most {length:,} tokens calibrate and {len(test)} of other documents test; "
        f"{state(documents, True, documents >= DOCUMENTS, 'test documents')}.",
        f"Every router learns from the same queries, {queries:,} of each head{learned}.",
    ]
    short = sum(len(prompt.ids) < length for prompt in (*calibration, *test))
    return [*notes, f"{short} prompts are shorter than {length:,} tokens."] if short else notes


def _store(context: Context, lm: Model, fitted: Fitted, stored: Kept, length: int, seed: int) -> list[str]:
    """Buckets and routers of the first minimum distance, with sinks and without, and the curves of all cells. Returns
    sentences about the runs that used earlier ones."""
    folder = context.state_dirs(lm)[0] / FOLDER
    cells = fitted.raw_cells
    with storing("routers", folder):
        for cell in cells:
            if cell.min_distance == cells[0].min_distance:
                state_of(lm, fitted, cell, length, seed, protocol=stored.about).save(folder)
        keep(folder, stored)
    return context.forget("method", "bucket_routing", lm)
