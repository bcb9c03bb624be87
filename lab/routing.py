"""The table of the router lab, stored with the program: every router in every setting, and a part that comes again."""

from typing import Any

import numpy as np

from analysis.answer import plain
from analysis.commands.routing import Route
from analysis.corpus import sample_texts, tokenize
from analysis.studies.routing.cells import Cell
from analysis.studies.routing.fit import MAIN
from analysis.studies.routing.live import from_state
from analysis.studies.routing.route import of_cell, route
from analysis.studies.routing.rows import LOW, NAMES, MeanRow, at_budget, best_of, sentence
from analysis.studies.routing.score import score_routers
from analysis.studies.routing.states import state_near
from analysis.studies.routing.texts import Prompt, prompts_of, sides_of
from analysis.studies.stored.panels import columns
from analysis.studies.stored.runner import Setting, Texts, option
from analysis.studies.text.held_out import corpus_hash

SAMPLE_TOKENS = 768  # of the bundled story
# Of the answer of `route`, what is not stored: the rows of single heads, and what this study tells in its own words.
OTHERWISE = {"rows", "meaning", "lines", "sentence"}
# Of the work, what the learned routers take when SGD trains them.
OF_SGD = 0.3


class Routing(Texts):
    """`route` on a folder of texts, all heads, with the grid of distances and sinks and with routers' own buckets. Its
    training documents calibrate and its held-out ones test. Buckets, routers and curves go to `routing/` of the fitted
    state; the rows of single heads at every budget are left out, since the curves hold them. Learned routers that are
    trained stay in the folder of the work until all is done, so a study that was stopped goes on from them. The numbers
    are those of `route`, and `sgd` those of the first setting when SGD trains through 50 epochs, as the paper says of
    its MLP (GWR, section 4.1), which is then the 1 of gap closure."""

    tables = ("curve", "closures", "timings")

    prompts: int = option(16, "number of texts that calibrate, and as many that test")

    def measure(self, run: Setting) -> dict:
        options: dict[str, Any] = {"model": self.model, "corpus": self.corpus, "work": str(run.work)}
        options |= {"prompts": self.prompts, "seed": self.seed}
        decides = [corpus_hash([*run.texts[0], *run.texts[1]]), self.prompts, self.seed]
        by_sgd = run.part("routing-sgd", decides, lambda: self._printed(run, Route(**options, optimiser="sgd")))
        request = Route(**options, grid=True, own=True, store=True)
        result = route(request, context=run.context.within(OF_SGD, 1 - OF_SGD))
        numbers = {key: value for key, value in result.numbers.items() if key not in OTHERWISE}
        protocol = {
            key: value for key, value in numbers["protocol"].items() if key not in ("verb", "model", "seed", "command")
        }
        return _rounded(numbers | {"sgd": by_sgd}) | {"protocol": protocol}

    @staticmethod
    def _printed(run: Setting, request: Route) -> dict:
        """What is stored of a request whose routers SGD trains: no time, since that of Adam stands already."""
        numbers = route(request, context=run.context.within(0.0, OF_SGD)).numbers
        return plain({table: numbers[table] for table in ("curve", "closures")})

    def sample(self, run: Setting, numbers: dict) -> dict:
        lm, protocol = run.lm, numbers["protocol"]
        cell = Cell(protocol["min_distance"], protocol["sinks"])
        fitted = from_state(lm, state_near(run.context, lm, cell), cell)
        ids = tokenize(lm.tokenizer, sample_texts()["story"][1], min(SAMPLE_TOKENS, lm.max_positions), 1).ids
        curves, _, _ = score_routers(run.context, lm, [Prompt(0, ids)], fitted)
        return {
            kind: float(np.nanmean(at_budget(values, curves.points, numbers["l"])))
            for kind, values in curves.recall[cell].items()
        }

    def part(self, run: Setting, numbers: dict) -> dict:
        lm, protocol = run.lm, numbers["protocol"]
        cell = Cell(protocol["min_distance"], protocol["sinks"])
        fitted = from_state(lm, state_near(run.context, lm, cell), cell)
        held_out = sides_of(run.context, [], self.corpus)[1]
        test = prompts_of(lm, held_out, protocol["window"], self.prompts, cell.tokens_needed)
        values = plain(of_cell(score_routers(run.context, lm, test, fitted)[0], cell, numbers["l"]))
        return _rounded({name: values[name] for name in ("means", "curve", "closures")})

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows, documents = [MeanRow(**row) for row in numbers["means"]], numbers["protocol"]["documents"][-1]
        best, parts = best_of(rows), [sentence(rows, numbers["buckets"], documents)]
        low = [row for row in numbers["curve"] if row["router"] == LOW != best.router]
        if low:
            near = min(low, key=lambda row: abs(row["selectivity"] - best.selectivity))
            parts.append(
                f"As many buckets are not as many keys: visiting {near['l']:g}, {NAMES[LOW]} finds "
                f"{near['recall']:.1%}, reading {near['selectivity']:.1%}."
            )
        parts.append(_by_sgd(numbers))
        parts.append("What is learned was trained once: all of it is said of these routers.")
        return {"sentence": " ".join(parts), "columns": columns("routing")}


def _by_sgd(numbers: dict) -> str:
    """What the MLP finds when it is trained by SGD, and how near the closed form comes to it."""

    def at(rows: list[dict], router: str) -> dict:
        return next(row for row in rows if (row["router"], row["l"]) == (router, numbers["l"]))

    def closed(tables: dict) -> str:
        ratio = at(tables["closures"], "gwr_linear")["mean_of_ratios"]
        return "no head with a gap" if ratio is None else f"{ratio:.0%}"

    by_sgd, by_adam = (at(tables["curve"], MAIN)["recall"] for tables in (numbers["sgd"], numbers))
    return (
        f"Trained by SGD over 50 epochs, the MLP finds {by_sgd:.1%} (by Adam {by_adam:.1%}); GWR linear "
        f"closes {closed(numbers['sgd'])} of the way from symmetric k-means to it ({closed(numbers)})."
    )


def _rounded(value: Any) -> Any:
    """Plain data with five digits, so that the file stays small."""
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(inner) for inner in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value
