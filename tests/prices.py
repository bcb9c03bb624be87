"""What was predicted and what it took, of every command in a run store: `python -m tests.prices [FOLDER]`.

Each run is priced as a page would have done it just before, from the runs that were there by then; of every command
and model the last ten count. Done well the middle of predicted / taken lies between 0.7 and 1.4.
"""

import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from analysis.commands import COMMANDS
from analysis.commands.text import Model
from analysis.errors import BadSetting
from analysis.runs import Run, RunStore
from analysis.runs.price import predicted

LAST = 10
EVERY = 10_000
# Seconds; longer ones are jobs with a price of their own page.
LONGEST = 300
BOUNDS = (0.7, 1.4)


class Before:
    """A store as it was before a run: `runs` are the older ones, the newest first."""

    def __init__(self, runs: list[Run], cards: dict[str, Run]):
        self.runs, self.cards = runs, cards

    def find(self, request: Model) -> Run | None:
        return self.cards.get(request.model)

    def past(self, verb: str, model: str | None = None) -> list[tuple[float, int, Any]]:
        """As `RunStore.past`."""
        wanted = (run for run in self.runs if run.verb == verb and model in (None, run.request.get("model", "demo")))
        return [(run.seconds, run.protocol.get("tokens") or 0, run.request) for run in wanted]


def ratios(stores: list[RunStore]) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """(command, model) -> (predicted, taken) of its runs, the newest first."""
    pairs = defaultdict(list)
    for store in stores:
        computed = (run for run in store.list(limit=EVERY) if not run.example and not run.marks.imported)
        runs = sorted(computed, key=lambda run: run.created, reverse=True)
        cards = {run.request.get("model", "demo"): run for run in runs if run.verb == "model"}
        # The card of the bundled model is an example.
        bundled = RunStore().find(Model(model="demo"))
        cards = ({"demo": bundled} if bundled else {}) | cards
        for place, run in enumerate(runs):
            if run.verb in COMMANDS and run.verb != "model":
                try:
                    request = COMMANDS[run.verb].from_arguments(run.request)
                except BadSetting:
                    # Of an earlier version, with other arguments.
                    continue
                tokens = run.protocol.get("tokens") or 0
                price = predicted(Before(runs[place + 1 :], cards), request, tokens)
                pairs[run.verb, run.request.get("model", "demo")].append((price.seconds, run.seconds))
    return dict(pairs)


def main(folders: list[str]) -> int:
    stores = [RunStore(Path(folder)) for folder in folders] or [RunStore()]
    outside = 0
    for (verb, model), pairs in sorted(ratios(stores).items()):
        last = [(predicted, took) for predicted, took in pairs if predicted < LONGEST][:LAST]
        if last:
            middle = median(predicted / took for predicted, took in last)
            within = BOUNDS[0] <= middle <= BOUNDS[1]
            outside += not within
            print(f"{verb:20} {model[:24]:24} {len(last):3} runs  {middle:6.2f} {'' if within else '  outside'}")
            print("   ", "  ".join(f"{predicted:.2f}/{took:.2f}" for predicted, took in last))
    print(f"{outside} outside {BOUNDS[0]} to {BOUNDS[1]}")
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
