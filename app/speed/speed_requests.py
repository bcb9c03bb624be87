"""What the page Speed asks for: requests, lengths as a reader types them, their price, and the bound on any gain."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from analysis.commands.speed import Bench, Launch, TimeMethod
from analysis.declaration.command import Command
from analysis.errors import BadSetting
from analysis.runs import Price, Run
from analysis.runs.price import predict
from analysis.runs.run import command as written
from app import cached
from app.selection.decide import DTYPES
from app.ui.offers import Scope

# A setting of Focus -> its control.
FIELDS = {"top": "speed_top", "window": "speed_window", "n_sink": "speed_sinks"}
ASKED = FIELDS | {"length": "speed_prompt", "new_tokens": "speed_new", "repeats": "speed_rounds"}
NAMES = ("groups per token", "window", "sinks", "prompt", "new tokens", "rounds")  # of `ASKED`, in words
MOST_LENGTHS, LONGEST = 12, 1 << 22
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}
# Seconds per pair and head dimension, both sides, on two cores; bytes and operations a second. Only until something was
# timed here.
PAIR, MEMORY_SPEED, WORK_SPEED = 3e-11, 1e10, 5e10
# Arguments that past runs share with the one that is priced.
ALIKE = ("model", "what")
# Bytes: blocks of scores, and what libraries keep.
BESIDE = 128 << 20


def lengths(words: str) -> list[int]:
    """The lengths somebody typed, such as "1024, 16K", in order; BadSetting with one sentence for anything else."""
    parsed = set()
    for word in filter(None, re.split(r"[,;\s]+", words.strip())):
        match = re.fullmatch(r"([1-9][0-9]{0,6})([KM]?)", word.upper())
        if match is None:
            raise BadSetting(
                f"“{word[:20]}” is not a length: write whole numbers with a comma between them and none inside, such "
                "as 1024, 4096, 16K."
            )
        parsed.add(int(match[1]) * UNITS[match[2]])
    if not parsed or len(parsed) > MOST_LENGTHS or max(parsed) > LONGEST:
        raise BadSetting(
            f"{len(parsed)} lengths up to {max(parsed, default=0):,} tokens were asked for: give 1 to {MOST_LENGTHS} "
            f"lengths of at most {LONGEST:,}."
        )
    return sorted(parsed)


def inherited() -> dict[str, int]:
    """The settings of Focus that were changed on Quality vs speed, of those that a launch times."""
    for part in (st.session_state["quality"] or "").split("~~"):
        name, *changed = part.split("~")
        if name == "focus":
            values = dict(pair.partition("-")[::2] for pair in changed)
            return {field: int(values[field]) for field in FIELDS if values.get(field, "").isdigit()}
    return {}


def launches() -> list[Run]:
    """The stored runs of `launch` for the model, text and groups in use, the newest first."""
    wanted = {name: st.session_state[name] for name in ("model", "text", "router")}
    return [run for run in cached.store().list("launch") if wanted.items() <= run.request.items()]


def in_words(run: Run) -> str:
    """The settings of a launch that were chosen."""
    named = zip(NAMES, map(run.request.get, ASKED), strict=True)
    return ", ".join(f"{name} {value:,}" for name, value in named if value is not None) or "as the groups were made"


def launch() -> Launch:
    """The launch of the present selection."""
    chosen, changed = st.session_state, inherited()
    args = {name: chosen[name] for name in ("model", "text", "router")}
    for field, control in FIELDS.items():
        args[field] = changed.get(field) if chosen[control] is None else chosen[control]
    sizes = {"new_tokens": chosen["speed_new"], "length": chosen["speed_prompt"]}
    return Launch(**args, **sizes, repeats=chosen["speed_rounds"])


def bench(card: Mapping[str, Any] | None, router: Mapping[str, Any] | None) -> Bench:
    """The timing by length: of the shapes that were typed, or of a model (its card) with its router.

    A router that is not used as it was made (another number of groups per token) has no real groups to time: then
    they are drawn by chance, equally many.
    """
    chosen = st.session_state
    args = {"what": chosen["speed_what"], "model": chosen["model"], "repeats": chosen["speed_rounds"]}
    shape: dict[str, Any]
    usual: Mapping[str, Any]
    if card is None or router is None:
        shape = {"heads": chosen["speed_heads"], "head_dim": chosen["speed_size"]}
        shape |= {name: chosen[f"speed_{name}"] for name in ("groups", "batch", "dtype")}
        usual, kind = {"top": 1, "window": 128}, chosen["speed_members"]
    else:
        shape = {name: card[name] for name in ("heads", "head_dim", "kv_heads")}
        shape |= {"dtype": card["dtype"] if card["dtype"] in DTYPES else "float32", "groups": router["groups"]}
        usual, kind = router, "router" if chosen["speed_top"] in (None, router["top"]) else "even"
    shape |= {name: chosen[f"speed_{name}"] or usual[name] for name in ("top", "window")}
    real = {name: chosen[name] for name in ("router", "text")}
    if args["what"] == "inference":
        return Bench(**args, **real, window=shape["window"], new_tokens=chosen["speed_new"])
    if args["what"] == "decode":
        shape.pop("batch", None)  # one sequence is timed
    members = real if kind == "router" else {"skew": kind == "skewed"}
    return Bench(**args, **members, **shape, lengths=lengths(chosen["speed_lengths"]))


def command(request: Command) -> str:
    """The command line that measures the same; a router's groups are those of the bundled story."""
    asked = request.but(text="") if isinstance(request, Bench) else request
    return written(asked.verb, asked.spelled)


def even_bound(length: int, groups: int, top: int, window: int, phase: str = "attention") -> float:
    """The most any exact kernel can gain if all groups were equally full by chance: causal pairs by pairs read, or (of
    one token) keys in the cache by keys read."""
    # Chance that two tokens share no group.
    apart = 1.0
    for membership in range(top):
        apart *= max(groups - top - membership, 0) / (groups - membership)
    near = min(window, length)
    if phase == "decode":
        return length / (near + (1 - apart) * (length - near))
    all_pairs, local = length * (length + 1) / 2, near * (near + 1) / 2 + (length - near) * near
    return all_pairs / (local + (1 - apart) * (all_pairs - local))


def smaller(request: Launch | TimeMethod | Bench) -> list[Scope]:
    """A measurement with less to do: without its longest prompt, in fewer rounds."""
    scopes, tried = [], sorted(request.lengths or []) if isinstance(request, Bench) else []
    if fewer := tried[:-1]:
        share = sum(length**2 for length in fewer) / sum(length**2 for length in tried)
        scopes.append(Scope(f"up to {fewer[-1]:,} tokens", {"speed_lengths": ", ".join(map(str, fewer))}, share))
    if request.repeats > 2:
        scopes.append(Scope("2 rounds", {"speed_rounds": 2}, 6 / (4 + request.repeats)))
    return scopes


def bench_price(request: Bench, card: Mapping[str, Any] | None = None, lengths: Sequence[int] = ()) -> Price:
    """What `bench` costs: every round runs both sides at every length. `lengths`: those of a whole model (its card)."""

    def guess(args: dict, _: dict) -> float:
        rounds, sizes = args["repeats"] + 4, args["lengths"] or lengths
        if card is not None and args["what"] == "inference":
            return 5.0 + 2 * rounds * sum(_passes(card, length, args["new_tokens"]) for length in sizes)
        wide = args["heads"] * args["head_dim"] * args["batch"]
        if args["what"] == "decode":
            each = 3e-8 + rounds * 4 * 8 / MEMORY_SPEED
            return float(2 + wide * each * sum(sizes))
        return 2 + PAIR * wide * rounds * sum(length * (length + 2048) for length in sizes)

    if card is not None and request.what == "inference":
        return _price(request, guess, _held(card, max(lengths), request.new_tokens, 1))
    states = 2 * (request.heads + (request.kv_heads or request.heads))
    return _price(request, guess, 4 * 4 * request.batch * max(request.lengths or [0]) * request.head_dim * states)


def launch_price(request: Launch | TimeMethod, card: Mapping[str, Any], tokens: int) -> Price:
    """What launching costs: prompt and new tokens on both sides in every round, and attention at longer prompts."""

    def guess(args: dict, about: dict) -> float:
        return 10 + 2 * (args["repeats"] + 6) * _passes(card, about.get("tokens", tokens), args["new_tokens"])

    return _price(request, guess, _held(card, tokens, request.new_tokens, getattr(request, "top", None) or 1))


def _passes(card: Mapping[str, Any], tokens: int, new: int) -> float:
    step = card["weight_bytes"] / MEMORY_SPEED + 1e-3 * card["layers"]
    return tokens * 2 * card["parameters"] / WORK_SPEED + new * step


def _held(card: Mapping[str, Any], tokens: int, new: int, top: int) -> float:
    """Bytes that a whole model takes beside its weights: both KV caches and the states of a layer."""
    of_token = 3 * card["layers"] * card["kv_heads"] * card["head_dim"] * (1 + top)
    of_token += 16 * card["width"] + 6 * (card["heads"] + card["kv_heads"]) * card["head_dim"]
    return BESIDE + (tokens + new) * of_token * (4 if card["dtype"] == "float32" else 2)


def _price(request: Command, guess: Callable[[dict, dict], float], needed: float) -> Price:
    """Seconds as `guess(arguments, protocol)` has them, corrected by how far it was off for what was timed here."""
    args = request.arguments
    past = [(run, type(request).defaults | run.request) for run in cached.store().list(request.verb, 20)]
    alike = [(run, made) for run, made in past if all(made.get(name) == args.get(name) for name in ALIKE)]
    seconds = [(run.seconds, guess(made, run.protocol)) for run, made in alike]
    return predict(seconds, guess(args, {}), int(needed), float)
