"""Long-context probes: can a model find and use one thing in a long text, and can it still when it reads less?"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pandas import DataFrame

from ...answer import Answer, doc, frame, record
from ...commands.probes import Probe
from ...corpus import sample_texts
from ...errors import BadSetting, TooLarge
from ...models import Model
from ...probes import from_files
from ...probes.pieces import Pieces, cut
from ...probes.prompts import Ask, Task
from ...probes.rotary import base_for, reach, rotary_base
from ...probes.scoring import TURNS, answer_logs, answer_written, chosen, control, margin
from ...probes.tasks import TASKS
from ...probes.written import budget, graded
from ..context import Context, protocol
from ..ready.candidates import FAMILIES, beside_dense
from .rows import (
    AXES,
    TITLES,
    Cell,
    ProbeRow,
    ShownPrompt,
    Truncated,
    Way,
    rows_by,
    sentences,
    shown,
    table_by,
    truncated,
    ways,
)

DEPTHS, EXAMPLES = (0.0, 0.25, 0.5, 0.75, 1.0), (4, 16, 64)
# Tokens, as far as the model reads them.
USUAL = (256, 512, 1024)
# Of one request from a page.
MOST_PROMPTS = 8192
# Tokens for another question and its answer.
ROOM = 64
KERNEL = "each method's own kernel where it has one, else masked blocks"
EXTENDED = {"longer": "with the model's own base", "dynamic_ntk": "with dynamic NTK"}


@record
class TaskFacts:
    """One of the tasks."""

    title: str
    about: str = doc("what is asked")
    axis: str | None = doc("what its map has beside the length: depth, examples or nothing")


@record
class Probed(Answer):
    """What a model answers to long-context questions under several methods."""

    rows: list[ProbeRow] = doc("one per task, cell and method", row=ProbeRow)
    sentences: list[str] = doc("the result in words, one per task and method")
    sentence: str = doc("all of them")
    able: dict[str, bool] = doc("task -> whether dense attention is above chance")
    truncated: Truncated = doc("prompts whose beginning was cut off")
    tasks: dict[str, TaskFacts] = doc("every task by its name")
    labels: list[str] = doc("the methods, dense first")
    limit: int = doc("tokens that are read at once")
    notes: list[str] = doc("empty cells, and what a reader must know of the prompts")
    lengths: DataFrame = doc("the rows by length alone, pooled", row=ProbeRow)
    summary: DataFrame = doc("one row per task and method", row=ProbeRow)
    shown: DataFrame = doc("one prompt of each task in parts", row=ShownPrompt)


def probe(request: Probe, *, context: Context) -> Probed:
    """Forced choice between answers, in each cell of depth x length or examples x length, under methods as in
    `evaluate`, dense always first.

    A method that decides at the end of a prompt, over its KV cache or its blocks, is asked three times: it decides
    before it has seen the question, with it in sight, and with another question and its answer in sight, after which
    the real one is asked. Answers are compared by the log-probability that the prompt adds to what each scores after
    the same question alone; a written answer, the likeliest token each time, is right where the true one stands in it
    (`probes.written`). Errors: BadSetting, BadText, BadModel, TooLarge, NotFitted, all before a pass.
    """
    if context.browser and request.data:
        raise BadSetting("In a browser no folder can be named: the files lie in models_cache/benchmarks.")
    names = list(TASKS) if request.probes is None else list(dict.fromkeys(request.probes))
    if unknown := [name for name in names or [""] if name not in TITLES]:
        raise BadSetting(f"There is no task {unknown[0][:40]!r}; there are: {', '.join(TITLES)}.")
    data = Path(request.data) if request.data else None
    tasks = {name: TASKS[name] if name in TASKS else from_files.task(name, data) for name in names}
    lm = context.model(request.model)
    candidates = beside_dense(context, lm, request.methods, FAMILIES)
    if ahead := next((candidate.label for candidate in candidates if candidate.method.reads_future), None):
        raise BadSetting(
            f"{ahead} lets later tokens decide over earlier ones, so it cannot go on from a prompt to its answer: "
            "choose the causal rule."
        )
    limit = reach(lm, request.rope, request.factor)
    lengths = _lengths(request, limit)
    second_fits = lengths[-1] + ROOM <= limit
    listed = ways(candidates, TURNS if second_fits else TURNS[:2])
    text = request.text or context.add_text(*next(iter(sample_texts().values())))
    pieces = Pieces(lm.tokenizer, context.text(text)[1])
    grid = {name: _grid(request, task, lengths) for name, task in tasks.items()}
    prompts = request.items * sum(map(len, grid.values())) * len(listed)
    if context.browser and prompts > MOST_PROMPTS:
        raise TooLarge(
            f"{prompts:,} prompts were asked for and a page reads at most {MOST_PROMPTS:,}: choose fewer lengths, "
            "depths, questions or methods, or use the command line."
        )
    cells, notes = _cells(request, pieces, tasks, grid, limit, len(listed))
    if len(listed) > len(candidates) and not second_fits:
        notes.append(f"There is no room for a second question behind {lengths[-1]:,} tokens, so none was asked.")
    _ask(context, lm, request, listed, pieces, cells, limit)
    lines, able = sentences(cells, listed)
    tokens = sum(len(cell.items) * cell.ask.length for cell in cells)
    settings = {"seed": request.seed, "kernel": KERNEL, "window": limit, "items": request.items}
    settings |= {"candidates": request.choices, "rope": request.rope}
    settings |= {"base": request.base if request.rope == "base" else None}
    settings |= {"factor": None if request.rope == "as_trained" else request.factor}
    return Probed(
        rows=rows_by(cells, listed, *AXES),
        sentences=lines,
        sentence=" ".join(lines),
        able=able,
        truncated=truncated(cells),
        tasks={name: TaskFacts(task.title, task.about, task.axis) for name, task in (TASKS | tasks).items()},
        labels=[way.label for way in listed],
        limit=limit,
        notes=[*notes, *_notes(lm, request, pieces, lengths, truncated(cells))],
        lengths=table_by(cells, listed, "length"),
        summary=table_by(cells, listed),
        shown=frame(ShownPrompt, shown(pieces, cells)),
        protocol=protocol("probe", lm, text, tokens * len(listed), **settings),
    )


def _lengths(request: Probe, limit: int) -> list[int]:
    """Lengths of the prompts in tokens, the longest last. Errors: TooLarge."""
    if request.lengths is None:
        return [length for length in USUAL if length <= limit] or [limit]
    longest = max(request.lengths)
    if longest > limit and request.too_long == "refuse":
        raise TooLarge(
            f"A prompt of {longest:,} tokens was asked for and {limit:,} are read at once: choose a shorter one, "
            "extend the positions, or let its beginning be cut off."
        )
    return sorted(set(request.lengths))


def _grid(request: Probe, task: Task, lengths: list[int]) -> list[Ask]:
    """The cells of a task's map."""
    depths = sorted(set(map(float, request.depths or DEPTHS)))
    examples = sorted(set(request.examples or EXAMPLES))
    if task.axis == "depth":
        return [Ask(length, request.choices, depth=depth) for length in lengths for depth in depths]
    if task.axis == "examples":
        return [Ask(length, request.choices, examples=count) for length in lengths for count in examples]
    return [Ask(length, request.choices) for length in lengths]


def _cells(
    request: Probe, pieces: Pieces, tasks: dict[str, Task], grid: dict[str, list[Ask]], limit: int, methods: int
) -> tuple[list[Cell], list[str]]:
    """(the cells with their questions, notes on those that cannot be made). Errors: BadSetting where none can."""
    cells: list[Cell] = []
    notes: list[str] = []
    impossible: BadSetting | None = None
    for task, asks in grid.items():
        before = len(cells)
        for ask in asks:
            place = [list(TITLES).index(task), ask.length, round(1000 * (ask.depth or 0)), ask.examples or 0]
            draws = [np.random.default_rng([request.seed, *place, number]) for number in range(request.items)]
            try:
                questions = [tasks[task].make(pieces, ask, draw) for draw in draws]
                items = [cut(question, limit, len(pieces.begin)) for question in questions]
            except BadSetting as error:
                impossible = error
            else:
                cells.append(Cell.of(task, ask, items, methods, request.write))
        if empty := len(asks) - len(cells) + before:
            notes.append(f"{TITLES[task]}: {empty} of {len(asks)} cells are empty. {impossible}")
    if impossible is not None and not cells:
        raise impossible
    return cells, notes


def _ask(
    context: Context,
    lm: Model,
    request: Probe,
    listed: Sequence[Way],
    pieces: Pieces,
    cells: Sequence[Cell],
    limit: int,
) -> None:
    """Put every question to every method and write down its scores."""
    done, total = 0, sum(len(cell.items) for cell in cells) * len(listed)
    for cell in cells:
        title = f"{TITLES[cell.probe]}, {cell.ask.length:,} tokens"
        for number, question in enumerate(cell.items):
            item, right = question.item, question.item.right
            alone = control(pieces, item, np.random.default_rng([request.seed, number]))
            other = cell.items[(number + 1) % len(cell.items)].item
            length = len(item.ids) + item.candidates.shape[1]
            with rotary_base(lm, base_for(lm, request.rope, request.factor, request.base, length)):
                for place, way in enumerate(listed):
                    context.progress(done / total, f"{title}, {way.label}")
                    logs = answer_logs(lm, way.method, item, way.turn, other)
                    gain = logs - answer_logs(lm, way.method, alone, way.turn, other)
                    cell.right[place, number] = chosen(gain, right)
                    cell.plain[place, number] = chosen(logs, right)
                    cell.margin[place, number] = margin(gain, right)
                    if cell.written is not None:
                        text = answer_written(lm, way.method, item, budget(item, limit), way.turn, other)
                        cell.written[place, number] = graded(pieces, item, text)
                    done += 1


def _notes(lm: Model, request: Probe, pieces: Pieces, lengths: list[int], cuts: Truncated) -> list[str]:
    notes = []
    if cuts.prompts:
        notes.append(
            f"{cuts.prompts:,} of {cuts.of:,} prompts were longer than can be read at once: their beginning was "
            f"cut off, and in {cuts.lost:,} of them the answer was in that part."
        )
    if lengths[-1] > len(pieces.filler):
        notes.append(f"The text has {len(pieces.filler):,} tokens, so prompts of {lengths[-1]:,} repeat it.")
    if request.rope == "base":
        notes.append(f"Positions turn with base {request.base:,.0f}, which the model was not trained with.")
    elif how := EXTENDED.get(request.rope):
        notes.append(
            f"Up to {request.factor:g} times the {lm.max_positions:,} tokens of the model's context are read, {how}."
        )
    return notes
