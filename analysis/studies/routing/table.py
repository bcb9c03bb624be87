"""The table of the router lab, stored with the program: every router in every setting, and a part that comes again."""

import numpy as np

from analysis.corpus import sample_texts, tokenize
from analysis.models import Model
from analysis.runs import Result
from analysis.studies.context import Context
from analysis.studies.routing.cells import Cell
from analysis.studies.routing.live import from_state
from analysis.studies.routing.route import route
from analysis.studies.routing.rows import at_budget
from analysis.studies.routing.score import score_routers
from analysis.studies.routing.states import state_at
from analysis.studies.routing.texts import Prompt
from analysis.studies.text.held_out import places, write

SAMPLE_TOKENS = 768  # of the bundled story


def routing(
    corpus: str = "",
    model: str = "demo",
    prompts: int = 12,
    seed: int = 0,
    output: str | None = None,
    work: str | None = None,
    *,
    context: Context,
) -> Result:
    """`route` on a folder of texts, all heads, with the grid of distances and sinks and with routers' own buckets.

    Its training documents calibrate and its held-out ones test. Buckets, routers and curves go to `routing/` of the
    fitted state, the tables to `output` (default `<state>/studies/routing.json`) without the rows of single heads at
    every budget, which the curves hold. Learned routers that are trained stay in `work` until all is done, so a study
    that was stopped goes on from them. numbers: those of `route`, and `path`. Errors: as `route`.
    """
    lm = context.model(model)
    path, folder = places(context, lm, "routing", output, work)
    given = {"corpus": corpus, "prompts": prompts, "seed": seed, "grid": True, "own": True, "store": True}
    result = route(model, **given, work=str(folder), context=context)
    numbers = {key: value for key, value in result.numbers.items() if key not in ("rows", "meaning")}
    command = f"python -m analysis study routing --corpus DIR --model {lm.name} --prompts {prompts} --seed {seed}"
    numbers["protocol"] = numbers["protocol"] | {"verb": "study routing", "command": command}
    distance = numbers["protocol"]["min_distance"], numbers["protocol"]["sinks"]
    check = sample_recall(lm, *distance, numbers["l"], context)
    write(path, _rounded(numbers) | {"check": check})
    return Result(numbers | {"path": str(path)}, result.tables)


def sample_recall(lm: Model, min_distance: int, sinks: int, visited: float, context: Context) -> dict[str, float]:
    """Mean recall of the stored routers on the bundled story: what can be computed without the corpus."""
    cell = Cell(min_distance, sinks)
    fitted = from_state(lm, state_at(context, lm, min_distance, sinks), cell)
    ids = tokenize(lm.tokenizer, sample_texts()["story"][1], min(SAMPLE_TOKENS, lm.max_positions), 1).ids
    curves, _, _ = score_routers(context, lm, [Prompt(0, ids)], fitted)
    return {
        kind: float(np.nanmean(at_budget(values, curves.points, visited)))
        for kind, values in curves.recall[cell].items()
    }


def recheck(stored: dict, *, context: Context) -> dict[str, tuple]:
    """The `check` of a stored study, router -> (what is stored, what comes out now)."""
    told = stored["protocol"]
    lm = context.model(told["model"])
    again = sample_recall(lm, told["min_distance"], told["sinks"], stored["l"], context)
    return {kind: (recall, again[kind]) for kind, recall in stored["check"].items()}


def _rounded(value):
    """Plain data with five digits, so that the file stays small."""
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(inner) for inner in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value
