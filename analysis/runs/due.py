"""What a request will cost before anybody runs it: the same prediction for pages and for `--plan`."""

from analysis.runs.price import FIRST_SECONDS, FIRST_SECONDS_PER_TOKEN, Price
from analysis.runs.run import Run
from analysis.runs.store import RunStore

BLOCKS = 256_000_000  # bytes: four float32 blocks of scores, whatever the length; the layers' inputs come on top
FIRST_GUESS = 1000  # tokens assumed for a price before the text was counted
WORK = {"cpu": 5e10, "cuda": 5e13}  # operations a second, until something was run here


def predicted(store: RunStore, verb: str, args: dict, tokens: int, card: Run | None = None) -> Price:
    """Seconds of a request that reads so many tokens, and memory beside the model's weights where its model was loaded
    here before. `card`: the stored one of the model, by default looked up."""
    model = str(args.get("model") or "demo")
    card = card or store.find("model", {"model": model})
    if card is None:
        return store.price(verb, model, tokens, None, args)
    size = card.numbers["layers"] * card.numbers["width"]
    speed = WORK[card.numbers["device"].partition(":")[0]]
    rate = FIRST_SECONDS_PER_TOKEN + 6 * card.numbers["parameters"] / speed
    held = BLOCKS + 2 * 4 * tokens * size
    return store.price(verb, model, tokens, held, args, lambda work: FIRST_SECONDS + rate * work)


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
