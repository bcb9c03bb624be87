"""What a request will cost before anybody runs it: the same prediction for pages and for `--plan`."""

from collections.abc import Callable
from functools import partial
from statistics import median

from ..command import Command, Shape
from ..commands import COMMANDS
from .memory import held
from .price import FIRST_SECONDS, FIRST_SECONDS_PER_TOKEN, Price
from .run import Run
from .store import RunStore

FIRST_GUESS = 1000  # tokens assumed for a price before the text was counted
HEADS = 48  # of the bundled model, whose readings FIRST_SECONDS_PER_TOKEN is of: what every head reads is counted
OF_START = {"text": "", "router": "k8-top1", "min_distance": 128, "long_text": "windows"}  # what decides that reading
FOUND = 0.1  # of a reading: what a request takes that finds it
QUICK = 0.3  # of the seconds of a reading: who took less had found it
WORK = {"cpu": 5e10, "cuda": 5e13}  # operations a second, until something was run here


def predicted(store: RunStore, verb: str, args: dict, tokens: int, card: Run | None = None) -> Price:
    """Seconds of a request that reads so many tokens, and memory beside the model's weights where its model was loaded
    here before. `card`: the stored one of the model, by default looked up."""
    model = str(args.get("model") or "demo")
    command = COMMANDS.get(verb, Command)
    card, tokens = card or store.find("model", {"model": model}), command.made_tokens or tokens
    if card is None:
        return store.price(verb, model, tokens, None, args)
    shape = Shape(card.numbers["layers"], card.numbers["heads"])
    a_pass = _a_pass(card.numbers)
    first = partial(_guess, heads=shape.layers * shape.heads, a_pass=a_pass)
    pace = _pace(store, model, first, shape) if command.readings is not None else 1.0
    is_read = _is_read(store, verb, model, args)

    def guess(size: float) -> float:
        return (FOUND if is_read else 1.0) * pace * first(verb, size)

    def alike(took: float, size: float) -> bool:
        return command.served is None or (took < QUICK * pace * first(verb, size)) == is_read

    needed = held(command, args, tokens, card.numbers, is_read)
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
    served = COMMANDS.get(verb, Command).served
    arguments = {"shuffled": True} | args
    if served is None or any(arguments.get(name, usual) != usual for name, usual in served.items()):
        return False
    wanted = {name: arguments[name] for name in OF_START if name in arguments}
    return any(
        wanted.items() <= (OF_START | request).items()
        for _, _, request in store.past("start", model)
        if wanted.get("text")
    )


def _guess(verb: str, size: float, *, heads: int, a_pass: float) -> float:
    """Seconds of a verb that was never run here, on a machine as fast as WORK says, by a model of so many heads in all;
    `a_pass`: those of one token in one plain pass of it."""
    command, reading = COMMANDS.get(verb, Command), FIRST_SECONDS_PER_TOKEN * min(1.0, heads / HEADS)
    readings = 1.0 if command.readings is None else command.readings
    return FIRST_SECONDS + size * (readings * (reading + 3 * a_pass) + command.passes * a_pass)


def _pace(store: RunStore, model: str, first: Callable[[str, float], float], shape: Shape) -> float:
    """How many times as long as guessed the commands that say what they read took here with this model: what one of
    them took tells the first price of the others. Those that found a reading tell nothing."""
    took = [
        seconds / first(verb, command.workload(request, tokens, shape))
        for verb, command in COMMANDS.items()
        if command.readings is not None
        for seconds, tokens, request in store.past(verb, model)[:3]
    ]
    return median(share for share in took if share >= QUICK * max(took)) if took else 1.0


def counted(store: RunStore, args: dict) -> tuple[int, int | None]:
    """(tokens, most the model reads at once) of the texts that a request names, as far as they were counted; `most` is
    None where they were not."""
    keys = [args["text"]] if args.get("text") else args.get("texts") or []
    inspected = []
    for key in keys:
        request = {"model": args.get("model"), "text": key, "long_text": args.get("long_text", "windows")}
        inspected.append(store.find("inspect", request))
    counts = [run.numbers for run in inspected if run is not None]
    tokens = sum(numbers["tokens"] for numbers in counts) or FIRST_GUESS
    if isinstance(args.get("tokens"), int):
        tokens = min(tokens, args["tokens"]) if counts else args["tokens"]
    return tokens, counts[0]["max_positions"] if counts else None
