"""What a request will cost before anybody runs it: the same prediction for pages and for `--plan`."""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import NamedTuple

from analysis.runs.memory import held
from analysis.runs.price import FIRST_SECONDS, FIRST_SECONDS_PER_TOKEN, Price, Shape, work
from analysis.runs.run import Run
from analysis.runs.store import RunStore

FIRST_GUESS = 1000  # tokens assumed for a price before the text was counted
HEADS = 48  # of the bundled model, whose readings FIRST_SECONDS_PER_TOKEN is of: what every head reads is counted


class Takes(NamedTuple):
    """What a verb does with each token: how often it reads what every head gives to which token, and how many plain
    passes of the model it makes beside, which cost a tenth of that in a small model."""

    readings: float
    passes: float = 0.0


TAKES = {
    "start": Takes(1.1),
    "pairs": Takes(1.4),
    "groups": Takes(0.5),
    "statistics": Takes(0.7),
    "head": Takes(0.6),
    "head-tokens": Takes(0.4),
    "alike": Takes(0.6),
    "temperature": Takes(0.7),
    "head-texts": Takes(0.7),
    "names": Takes(1.0, passes=15.0),  # some thirty sets of heads taken away, each on one half of the texts
    "head-split": Takes(0.0, passes=3.0),  # one pass and its gradient
    "ablate": Takes(0.0, passes=1.0),  # its work is counted in passes
    "evaluate": Takes(0.0, passes=2.0),  # masked passes: 1 to 4 plain ones on two cores
    "equal-budget": Takes(0.0, passes=3.0),  # a method is tried at several settings
    "continuation": Takes(0.0, passes=1.0),
    "generate": Takes(0.0, passes=2.0),
}
MADE = {"names": 3072}  # tokens of the texts that a verb makes itself
SERVED: dict[str, dict[str, object]] = {  # verb -> arguments with which it finds what Start's reading of the text left
    "statistics": {"mass": 0.9, "window": 128, "without_first": False},
    "head": {"part": 0},
    "head-tokens": {"part": 0},
    "alike": {"part": 0},
    "temperature": {"part": 0},
    "groups": {"shuffled": False, "seed": 0},
    "pairs": {"shuffled": False, "seed": 0, "layer": None, "group": None, "head": None, "content": True},
}
OF_START = {"text": "", "router": "k8-top1", "min_distance": 128, "long_text": "windows"}  # what decides that reading
FOUND = 0.1  # of a reading: what a request takes that finds it
QUICK = 0.3  # of the seconds of a reading: who took less had found it
WORK = {"cpu": 5e10, "cuda": 5e13}  # operations a second, until something was run here


def predicted(store: RunStore, verb: str, args: dict, tokens: int, card: Run | None = None) -> Price:
    """Seconds of a request that reads so many tokens, and memory beside the model's weights where its model was loaded
    here before. `card`: the stored one of the model, by default looked up."""
    model = str(args.get("model") or "demo")
    card, tokens = card or store.find("model", {"model": model}), MADE.get(verb, tokens)
    if card is None:
        return store.price(verb, model, tokens, None, args)
    shape = Shape(card.numbers["layers"], card.numbers["heads"])
    a_pass = _a_pass(card.numbers)
    first = partial(_guess, heads=shape.layers * shape.heads, a_pass=a_pass)
    pace = _pace(store, model, first, shape) if verb in TAKES else 1.0
    found = _is_read(store, verb, model, args)

    def guess(size: float) -> float:
        return (FOUND if found else 1.0) * pace * first(verb, size)

    def alike(took: float, size: float) -> bool:
        return verb not in SERVED or (took < QUICK * pace * first(verb, size)) == found

    needed = held(verb, args, tokens, card.numbers, found)
    return store.price(verb, model, tokens, needed, args, guess, alike, shape)


def _a_pass(card: dict) -> float:
    """Seconds of one token in a plain pass: as measured when the model was compared with the stock one, or as its size
    says where a card of an earlier version does not tell."""
    parity = card.get("parity") or {}
    if parity.get("seconds"):
        return parity["seconds"] / parity["tokens"]
    return 2 * card["parameters"] / WORK[card["device"].partition(":")[0]]


def _is_read(store: RunStore, verb: str, model: str, args: dict) -> bool:
    """Whether Start has read the text of a request and left what it asks for."""
    given = {"shuffled": True} | args
    if verb not in SERVED or any(given.get(name, usual) != usual for name, usual in SERVED[verb].items()):
        return False
    wanted = {name: given[name] for name in OF_START if name in given}
    return any(
        wanted.items() <= (OF_START | asked).items() for _, _, asked in store.past("start", model) if wanted.get("text")
    )


def _guess(verb: str, size: float, *, heads: int, a_pass: float) -> float:
    """Seconds of a verb that was never run here, on a machine as fast as WORK says, by a model of so many heads in all;
    `a_pass`: those of one token in one plain pass of it."""
    takes, reading = TAKES.get(verb, Takes(1.0)), FIRST_SECONDS_PER_TOKEN * min(1.0, heads / HEADS)
    return FIRST_SECONDS + size * (takes.readings * (reading + 3 * a_pass) + takes.passes * a_pass)


def _pace(store: RunStore, model: str, first: Callable[[str, float], float], shape: Shape) -> float:
    """How many times as long as guessed the verbs of TAKES took here with this model: what one of them took tells the
    first price of the others. Those that found a reading tell nothing."""
    took = [
        seconds / first(verb, work(verb, asked, tokens, shape))
        for verb in TAKES
        for seconds, tokens, asked in store.past(verb, model)[:3]
    ]
    return median(share for share in took if share >= QUICK * max(took)) if took else 1.0


def counted(store: RunStore, args: dict) -> tuple[int, int | None]:
    """(tokens, most the model reads at once) of the texts that a request names, as far as they were counted; `most` is
    None where they were not."""
    keys = [args["text"]] if args.get("text") else args.get("texts") or []
    found = []
    for key in keys:
        asked = {"model": args.get("model"), "text": key, "long_text": args.get("long_text", "windows")}
        found.append(store.find("inspect", asked))
    known = [run.numbers for run in found if run is not None]
    tokens = sum(numbers["tokens"] for numbers in known) or FIRST_GUESS
    if isinstance(args.get("tokens"), int):
        tokens = min(tokens, args["tokens"]) if known else args["tokens"]
    return tokens, known[0]["max_positions"] if known else None
