"""How fast is sparse attention here? Bare attention, a token after a text, and the model, beside dense in turns."""

from pathlib import Path
from typing import Any

import torch

from analysis.commands.speed import Bench
from analysis.groups.controls import random_tokens
from analysis.kernels import plan
from analysis.studies.speed.bench import AIMED, TARGETS, bench
from analysis.studies.stored.panels import presented, series
from analysis.studies.stored.runner import TIMES, Setting, Study, option
from analysis.timing import processor
from lab.harness.telling import lines_of

# The two that programs of our own compute.
KINDS = ["bfloat16", "float32"]
# Sequences at once, and their tokens.
BATCHES, BATCHED = (2, 4, 8), 4096
# Tokens before the one that is timed.
CACHES = (2048, 8192, 32768)
WHATS = {"attention": "attention", "decode": "a token", "prompt": "the prompt", "token": "a token of the model"}


class Kernels(Study):
    """Grouped attention and steps of generation of `bench`, in both types, several sequences at once, and the model
    with its own router, prompt and tokens apart. A speed-up is the median of the rounds' ratios, beside the lowest and
    the highest."""

    whole = TIMES

    longest: int = option(
        65536,
        "the longest text, in tokens; each is four times or twice the one before",
        low=min(TARGETS["attention"]),
        high=max(TARGETS["attention"]),
    )
    repeats: int = option(5, "number of rounds, with dense and sparse in alternation", low=1, high=1000)

    def measure(self, run: Setting) -> dict:
        lengths = [length for length in TARGETS["attention"] if length <= self.longest]
        calls: list[dict[str, Any]] = [{"what": "attention", "dtype": kind, "lengths": lengths} for kind in KINDS]
        calls += [{"what": "attention", "dtype": KINDS[0], "lengths": [BATCHED], "batch": batch} for batch in BATCHES]
        caches = [length for length in CACHES if length <= self.longest]
        calls += [{"what": "decode", "dtype": kind, "lengths": caches} for kind in KINDS if caches]
        calls.append({"what": "inference", "model": self.model})
        rows = [row for number, call in enumerate(calls) for row in self._part(run, call, number / len(calls))]
        about: dict[str, Any] = {"text": None, "tokens": self.longest, "window": AIMED["window"], "dtype": "both"}
        about |= {"repeats": self.repeats, "processor": processor(str(run.lm.device)), "shape": AIMED}
        return {"rows": rows, "protocol": about | {"kernel": "see the rows"}}

    def _part(self, run: Setting, asked: dict, done: float) -> list[dict]:
        """The rows of one call of `bench`."""

        def make(doing: Path | None) -> dict:
            run.context.progress(done, f"{asked['what']} {asked.get('dtype', '')}".strip())
            request = Bench(**asked | {"repeats": self.repeats, "seed": self.seed})
            found = bench(request, context=run.context)
            return {"rows": [row for one in found.numbers["rows"] for row in _rows(asked["what"], one)]}

        decides = [run.lm.revision, repr(sorted(asked.items())), self.repeats, self.seed]
        return run.context.part(run.work, f"kernels-{asked['what']}", decides, make)["rows"]

    def sample(self, run: Setting, numbers: dict) -> dict:
        shortest = min(TARGETS["attention"])
        members = random_tokens(shortest, AIMED["groups"], AIMED["top"], 0)
        chosen = plan(members, AIMED["window"], AIMED["heads"], AIMED["head_dim"], torch.float32, "cpu")
        return {"bound": 1 / chosen.retained}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows = numbers["rows"]
        aimed = [row for row in rows if row["target"]]
        missed = [f"{_named(row)} {row['speedup']:.2f} of {row['target']:g}" for row in aimed if not row["met"]]
        bare = [row for row in rows if row["what"] == "attention" and row["batch"] == 1]
        longest = [row for row in bare if row["length"] == max(one["length"] for one in bare)]
        fastest = " and ".join(f"{row['speedup']:.2f} times in {row['dtype']}" for row in longest)
        sentence = (
            f"On the machine named below, bare attention over {longest[0]['length']:,} tokens is {fastest} as fast as "
            f"torch's fastest dense kernel. {len(aimed) - len(missed)} of {len(aimed)} aims are reached"
            + (f"; below their aim: {', '.join(missed)}." if missed else ".")
        )
        bare.sort(key=lambda row: row["length"])
        title, axes = "Attention: speed beside dense", ("length", "tokens", "times dense")
        drawn = lines_of(title, bare, "dtype", *axes, "speedup")
        bounds = [row["bound"] for row in bare if row["dtype"] == KINDS[0]]
        drawn["series"].append(series("what the pairs read allow", bounds))
        about = numbers["protocol"]
        notes = [
            f"Ratios are medians of {about['repeats']} rounds or more, with the lowest and the highest in brackets."
        ]
        notes += ["Not measured on a GPU."] if str(about.get("device", "cpu")).startswith("cpu") else []
        return presented("kernels", sentence, [drawn], *notes)


def _rows(what: str, one: dict) -> list[dict]:
    """A row of `bench` as this study has them; of a whole model, one of the prompt and one of a token after it."""
    about = {name: one[name] for name in ("dtype", "length", "batch", "dense_kernel", "kernel")}
    ends = {end: one[f"speedup{end}"] for end in ("", "_low", "_high")}
    if what != "inference":
        return [_row(what, about, one["dense_ms"], one["sparse_ms"], ends, one["bound"], one["target"])]
    of_token = {end: one[f"speedup_per_token{end}"] for end in ends}
    prompt, token = (one[name] for name in ("prefill_ms", "ms_per_token"))
    return [
        _row("prompt", about, prompt["dense"], prompt["sparse"], ends, one["bound"], one["target"]),
        _row("token", about, token["dense"], token["sparse"], of_token, None, one["target"]),
    ]


def _row(
    what: str, about: dict, dense: float, sparse: float, ends: dict, bound: float | None, target: float | None
) -> dict:
    times = {"dense_ms": dense, "sparse_ms": sparse} | {f"speedup{end}": value for end, value in ends.items()}
    met = None if target is None else ends[""] >= target
    return {"what": what, **about, **times, "bound": bound, "target": target, "met": met}


def _named(row: dict) -> str:
    return f"{WHATS[row['what']]} in {row['dtype']} at {row['length']:,} tokens"
