"""Long-context probes: can a model find and use one thing in a long text, and can it still when it reads less?"""

from collections.abc import Callable
from functools import partial

import numpy as np
from pandas import DataFrame

from ...answer import Answer, doc, frame, record
from ...commands.probes import Probe
from ...corpus import sample_texts
from ...errors import BadSetting, TooLarge
from ...models import Model
from ...probes.pieces import Cut, Pieces, cut
from ...probes.rotary import base_for, reach, rotary_base
from ...probes.scoring import TURNS, answer_logs, chosen, control, margin
from ...probes.tasks import TASKS, Ask
from ..context import Context, check_seed, protocol
from ..ready.candidates import FAMILIES, beside_dense
from ..text.held_out import check_range
from .rows import (
    AXES,
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
USUAL = (256, 512, 1024)  # tokens, as far as the model reads them
MOST_PROMPTS = 8192  # of one request from a page
ROOM = 64  # tokens for another question and its answer
LEAST, MOST_ITEMS, MOST_CHOICES = 16, 512, 26
KERNEL = "each method's own kernel where it has one, else masked blocks"


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
    """Forced choice between `choices` answers, `items` questions in each cell of depth x length or examples x length.

    `probes`: names of TASKS (all); `methods` as in `evaluate`, dense is always first; `text` is what things are hidden
    in (the first sample). A method that decides at the end of a prompt, over its KV cache or its blocks, is asked three
    times: it decides before it has seen the question, with it in sight, and with another question and its answer in
    sight, after which the real one is asked. Answers are compared by the log-probability that the prompt adds to what
    each scores after the same question alone. `too_long`: `refuse` lengths beyond the model's positions, or `cut` the
    beginning of the prompt and count it. `rope`, `factor`, `base`: positions beyond the context
    (analysis/probes/rotary.py). Errors: BadSetting, BadText, BadModel, TooLarge, NotFitted, all before a pass.
    """
    check_seed(request.seed)
    lm = context.model(request.model)
    named = _tasks(request.probes)
    candidates = beside_dense(context, lm, request.methods, FAMILIES)
    if ahead := next((candidate.label for candidate in candidates if candidate.method.reads_future), None):
        raise BadSetting(
            f"{ahead} lets later tokens decide over earlier ones, so it cannot go on from a prompt to its answer: "
            "choose the causal rule."
        )
    limit = reach(lm, request.rope, request.factor)
    lengths = _lengths(request.lengths, limit, request.too_long)
    second_fits = lengths[-1] + ROOM <= limit
    listed = ways(candidates, TURNS if second_fits else TURNS[:2])
    depths, examples = _depths(request.depths), _examples(request.examples)
    check_range("The number of items", request.items, 1, MOST_ITEMS)
    check_range("The number of candidates", request.choices, 2, MOST_CHOICES)
    text = request.text or context.add_text(*next(iter(sample_texts().values())))
    pieces = Pieces(lm.tokenizer, context.text(text)[1])
    grid = {name: _grid(name, lengths, depths, examples, request.choices) for name in named}
    prompts = request.items * sum(map(len, grid.values())) * len(listed)
    if context.browser and prompts > MOST_PROMPTS:
        raise TooLarge(
            f"{prompts:,} prompts were asked for and a page reads at most {MOST_PROMPTS:,}: choose fewer lengths, "
            "depths, questions or methods, or use the command line."
        )
    questions: dict[str, list[tuple[Ask, list[Cut]]]] = {}
    notes: list[str] = []
    impossible: BadSetting | None = None
    for name, asks in grid.items():
        questions[name], error = _questions(pieces, name, asks, request.items, request.seed, limit)
        if error is not None:
            impossible, empty = error, len(asks) - len(questions[name])
            notes.append(f"{TASKS[name].title}: {empty} of {len(asks)} cells are empty. {error}")
    if impossible is not None and not any(questions.values()):
        raise impossible
    base_for(lm, request.rope, request.factor, request.base, lm.max_positions)  # refuses before a pass
    if len(listed) > len(candidates) and not second_fits:
        notes.append(f"There is no room for a second question behind {lengths[-1]:,} tokens, so none was asked.")
    cells = _ask(
        context,
        lm,
        listed,
        pieces,
        questions,
        partial(base_for, lm, request.rope, request.factor, request.base),
        request.seed,
    )
    lines, able = sentences(cells, listed, lm.name)
    cut_prompts = truncated(cells)
    tokens = sum(len(cell.items) * cell.ask.length for cell in cells)
    settings = {
        "seed": request.seed,
        "kernel": KERNEL,
        "window": limit,
        "items": request.items,
        "candidates": request.choices,
        "rope": request.rope,
    }
    settings |= {
        "base": request.base if request.rope == "base" else None,
        "factor": None if request.rope == "as_trained" else request.factor,
    }
    return Probed(
        rows=rows_by(cells, listed, *AXES),
        sentences=lines,
        sentence=" ".join(lines),
        able=able,
        truncated=cut_prompts,
        tasks={name: TaskFacts(task.title, task.about, task.axis) for name, task in TASKS.items()},
        labels=[way.label for way in listed],
        limit=limit,
        notes=[*notes, *_notes(lm, pieces, lengths, request.rope, request.factor, request.base, cut_prompts)],
        lengths=table_by(cells, listed, "length"),
        summary=table_by(cells, listed),
        shown=frame(ShownPrompt, shown(pieces, cells)),
        protocol=protocol("probe", lm, text, tokens * len(listed), **settings),
    )


def _ask(
    context: Context,
    lm: Model,
    listed: list[Way],
    pieces: Pieces,
    questions: dict[str, list[tuple[Ask, list[Cut]]]],
    base_of: Callable[[int], float | None],
    seed: int,
) -> list[Cell]:
    """Every question under every method: cells with gains and plain log-probabilities [methods, items]."""
    done, total = 0, sum(len(cuts) for cells in questions.values() for _, cuts in cells) * len(listed)
    answered = []
    for name, cells in questions.items():
        for ask, cuts in cells:
            # Right by gain, right by log-probability, margin.
            scores = np.zeros((3, len(listed), len(cuts)))
            for number, question in enumerate(cuts):
                item, right = question.item, question.item.right
                alone = control(pieces, item, np.random.default_rng([seed, number]))
                other = cuts[(number + 1) % len(cuts)].item
                with rotary_base(lm, base_of(len(item.ids) + item.candidates.shape[1])):
                    for place, way in enumerate(listed):
                        context.progress(done / total, f"{TASKS[name].title}, {ask.length:,} tokens, {way.label}")
                        logs = answer_logs(lm, way.method, item, way.turn, other)
                        gain = logs - answer_logs(lm, way.method, alone, way.turn, other)
                        scores[:, place, number] = chosen(gain, right), chosen(logs, right), margin(gain, right)
                        done += 1
            answered.append(Cell(name, ask, cuts, *scores))
    return answered


def _questions(
    pieces: Pieces, name: str, asks: list[Ask], items: int, seed: int, limit: int
) -> tuple[list[tuple[Ask, list[Cut]]], BadSetting | None]:
    """([(ask, its items)] of the cells that can be made, why one of the others cannot or None)."""
    make, cells, impossible = TASKS[name].make, [], None
    for ask in asks:
        seeds = [seed, list(TASKS).index(name), ask.length, round(1000 * (ask.depth or 0)), ask.examples or 0]
        try:
            questions = [make(pieces, ask, np.random.default_rng([*seeds, number])) for number in range(items)]
            cells.append((ask, [cut(question, limit, len(pieces.begin)) for question in questions]))
        except BadSetting as error:
            impossible = error
    return cells, impossible


def _grid(name: str, lengths: list[int], depths: list[float], examples: list[int], choices: int) -> list[Ask]:
    axis = TASKS[name].axis
    if axis == "depth":
        return [Ask(length, choices, depth=depth) for length in lengths for depth in depths]
    if axis == "examples":
        return [Ask(length, choices, examples=count) for length in lengths for count in examples]
    return [Ask(length, choices) for length in lengths]


def _tasks(probes: list[str] | None) -> list[str]:
    named = list(TASKS) if probes is None else list(dict.fromkeys(probes))
    if not named or set(named) - set(TASKS):
        strange = next((name for name in named if name not in TASKS), None)
        raise BadSetting(f"There is no task {str(strange)[:40]!r}; there are: {', '.join(TASKS)}.")
    return named


def _lengths(lengths: list[int] | None, limit: int, too_long: str) -> list[int]:
    if too_long not in ("refuse", "cut"):
        raise BadSetting(f"too_long is {too_long[:40]!r} and must be refuse or cut.")
    if lengths is None:
        return [length for length in USUAL if length <= limit] or [limit]
    lengths = sorted(set(lengths))
    if not lengths:
        raise BadSetting("No length was asked for: give at least one, such as 512.")
    if lengths[0] < LEAST:
        raise BadSetting(f"The length is {lengths[0]:,} tokens and must be at least {LEAST}.")
    if lengths[-1] > limit and too_long == "refuse":
        raise TooLarge(
            f"A prompt of {lengths[-1]:,} tokens was asked for and {limit:,} are read at once: choose a shorter one, "
            "extend the positions, or let its beginning be cut off."
        )
    return lengths


def _depths(depths: list[float] | None) -> list[float]:
    if depths is None:
        return list(DEPTHS)
    wrong = next((depth for depth in depths if not 0 <= depth <= 1), None if depths else "missing")
    if wrong is not None:
        raise BadSetting(f"A depth is {wrong} and must lie between 0 (the beginning) and 1 (next to the question).")
    return sorted(set(map(float, depths)))


def _examples(examples: list[int] | None) -> list[int]:
    counts = list(EXAMPLES) if examples is None else sorted(set(examples))
    if not counts or counts[0] < 1:
        raise BadSetting(f"The numbers of examples are {counts} and must be at least 1.")
    return counts


def _notes(
    lm: Model, pieces: Pieces, lengths: list[int], rope: str, factor: float, base: float, cuts: Truncated
) -> list[str]:
    notes = []
    if cuts.prompts:
        notes.append(
            f"{cuts.prompts:,} of {cuts.of:,} prompts were longer than can be read at once: their beginning was "
            f"cut off, and in {cuts.lost:,} of them the answer was in that part."
        )
    if lengths[-1] > len(pieces.filler):
        notes.append(f"The text has {len(pieces.filler):,} tokens, so prompts of {lengths[-1]:,} repeat it.")
    if rope == "base":
        notes.append(f"Positions turn with base {base:,.0f}, which the model was not trained with.")
    elif rope != "as_trained":
        how = {"longer": "with the model's own base", "dynamic_ntk": "with dynamic NTK"}[rope]
        notes.append(f"Up to {factor:g} times the {lm.max_positions:,} tokens of the model's context are read, {how}.")
    return notes
