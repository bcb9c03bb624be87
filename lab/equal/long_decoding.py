"""What does eviction cost an answer that is long? Every rule that can cut the KV cache while it writes, on calculations
of hundreds of tokens whose end can be checked, from a budget that is ample to one that is far too small.

A ledger (`lab.equal.ledgers`) is written by a companion of the bundled model that was trained on such texts alone and
computes them. Every line of its trace needs what stands a lap back; one wrong digit leaves the end wrong.
The nulls are random keys, and the first four with the newest.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.methods.while_decoding import COUNTED, PROTECTED, WhileDecoding
from analysis.metrics.proportions import share, share_difference
from analysis.models import Model, load_model
from analysis.places import CACHE
from analysis.seam.attention import apply
from analysis.seam.cache import GrowingCache, cache_bytes, keys_held
from analysis.seam.calls import Prompt
from analysis.studies.quality.trial import SINKS, Newest
from analysis.studies.stored.comparisons import Row, compared, edges, holm_corrected, lowest_highest
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import Seeds, Setting, option
from analysis.studies.text.held_out import check_range, ids_hash
from analysis.timing.inference import next_token
from lab.equal.ledgers import END, LAPS, MOST, Ledgers, ledgers
from lab.harness.telling import distinct, lines_of

COMPANION = CACHE / "demo" / "ledgers"
RULES = ("h2o", "snapkv", "tova", "keydiff", "expected_attention", "triattention", "kvzap")
RANDOM, NEWEST, DENSE = "random", "newest", "dense"
SETTINGS = {COUNTED: "the prompt counts", PROTECTED: "the prompt stays beside it"}
# Ledgers that calibrate, of no seed that is asked; last tokens that a rule always keeps, which of its window is usual.
CALIBRATE, CALIBRATING, RECENT = 16, 1 << 20, 16
# Budgets, the least ones, that are tried beside a prompt that stays.
BESIDE = 2
# An answer that has not ended is stopped at so many times its length; a rule has collapsed below so much of dense.
PATIENCE, COLLAPSED = 1.5, 0.5


@dataclass
class NewestWhile(WhileDecoding):
    """The null that scores nothing: the first four keys and the newest."""

    title = Newest.title

    def key_scores(self, prompt: Prompt) -> Tensor:
        """The place of a key."""
        places = prompt.key_places.float()
        return places.masked_fill(places < SINKS, torch.inf).expand(prompt.key.shape[:3]).clone()


@dataclass
class RandomWhile(WhileDecoding):
    """The null that looks at nothing: keys by chance, drawn anew at every cut."""

    title = "Random keys"

    def key_scores(self, prompt: Prompt) -> Tensor:
        """Of a layer after so many tokens."""
        draws = torch.Generator().manual_seed(1000 * int(prompt.key_places.max()) + prompt.layer)
        return torch.rand(prompt.key.shape[:3], generator=draws)


class LongDecoding(Seeds):
    """A budget cuts the cache when the prompt was read and again and again after it; the answer is written greedily."""

    names: int = option(24, f"names of a ledger: its prompt has two tokens of each, its trace {3 * LAPS}", low=4)
    items: int = option(16, "ledgers of each seed", low=1, high=1024)
    budgets: list[int] | None = option(None, "keys of each head (default: once to five times the prompt's)")
    every: int = option(16, "tokens that are written between two cuts", low=1, high=4096)
    rows: str | None = option(None, "only these rules, separated by commas (default: all)")

    def check(self, lm: Model) -> None:
        check_range("The names of a ledger", self.names, 4, MOST)

    @property
    def every_budget(self) -> list[int]:
        """From as many keys as the prompt has to five times as many."""
        prompt = ledgers(1, self.names, np.random.default_rng(0)).prompt
        return self.budgets or [prompt * times for times in (1, 2, 3, 4, 5)]

    def measure(self, run: Setting) -> dict:
        questions = Asked(run, self)
        arms = list(questions.arms())
        answers: dict[tuple, list[dict]] = {}
        for place, key in enumerate(arms):
            for seed in self.every_seed:
                done = (place + (seed - self.seed) / self.seeds) / len(arms)
                run.context.progress(done, " ".join(map(str, key)) + f", seed {seed}")
                answers.setdefault(key, []).append(questions.answers(key, seed))
        rows = rows_of(answers, questions.expected)
        of = questions.ledgers(self.seed)
        ids = np.concatenate([questions.ledgers(seed).ids for seed in self.every_seed])
        about = {"text": ids_hash(ids), "tokens": int(ids.size), "window": ids.shape[1], "prefix": of.prompt}
        about |= {"unit": "ledgers", "units": len(ids), "companion": questions.lm.revision}
        return {"rows": rows, "protocol": about | {"kernel": "compacted KV cache"}}

    def sample(self, run: Setting, numbers: dict) -> dict:
        questions = Asked(run, self)
        key = ("snapkv", COUNTED, self.every_budget[0])
        return {"snapkv": questions.write(questions.method(*key), ledgers(1, 8, np.random.default_rng(0)))["right"][0]}

    def part(self, run: Setting, numbers: dict) -> dict:
        questions = Asked(run, self)
        answers = {(DENSE, "", 0): [questions.answers((DENSE, "", 0), seed) for seed in self.every_seed]}
        return {"rows": rows_of(answers, questions.expected)}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows = numbers["rows"]
        dense, cut = rows[0], rows[1:]
        parts = []
        for setting in distinct(cut, "setting"):
            of_setting = [row for row in cut if row["setting"] == setting]
            falls: dict[int, list[str]] = {}
            for title in distinct(of_setting, "title"):
                falls.setdefault(collapse(of_setting, title, dense), []).append(title)
            clauses = [f"{budget:,} keys and fewer with {', '.join(falls[budget])}" for budget in sorted(falls)[::-1]]
            parts.append(f"Where {SETTINGS[setting]}, less than half of that is right at {'; '.join(clauses)}.")
        keys = round(dense["keys"])
        lead = f"Dense attention ends {dense['ends']:.0%} of the ledgers right, with {keys} keys of a head in the end. "
        charts = []
        for setting in distinct(cut, "setting"):
            inside = [row for row in cut if row["setting"] == setting]
            x = "budget", "keys of a head"
            charts.append(lines_of(f"Right ends: {SETTINGS[setting]}", inside, "title", *x, "share", "ends", True))
            charts.append(lines_of(f"Right up to: {SETTINGS[setting]}", inside, "title", *x, "share", "right", True))
            charts.append(lines_of(f"Length: {SETTINGS[setting]}", inside, "title", *x, "of the right one", "length"))
        return presented("long-decoding", lead + " ".join(parts), charts)


def collapse(rows: list[Row], title: str, dense: Row) -> int:
    """The largest budget at which a rule, and at every smaller one, ends less than half as often right as dense
    attention; 0 where there is none."""
    fallen = 0
    for row in sorted((row for row in rows if row["title"] == title), key=lambda row: row["budget"]):
        if row["ends"] >= COLLAPSED * dense["ends"]:
            break
        fallen = row["budget"]
    return fallen


def rows_of(answers: dict[tuple, list[dict]], expected: int) -> list[Row]:
    """A row for every arm: shares of ledgers over all seeds with their intervals, and those of the seeds."""
    rows: list[Row] = []
    dense = np.concatenate([part_of["ends"] for part_of in answers[DENSE, "", 0]])
    for (name, setting, budget), seeds in answers.items():
        ends, right = (np.concatenate([part_of[part] for part_of in seeds]) for part in ("ends", "right"))
        row: Row = {"method": name, "title": _made(name).title, "setting": setting, "budget": budget}
        row |= edges("ends", share(ends)) | lowest_highest(
            "ends", [float(np.mean(part_of["ends"])) for part_of in seeds]
        )
        row |= edges("right", share(right))
        for part in ("tokens", "keys", "held_kib", "read_mib"):
            row[part] = float(np.mean([part_of[part] for part_of in seeds]))
        row["length"] = row["tokens"] / expected
        rows.append(row | compared("against_dense", share_difference(ends, dense)))
    return holm_corrected(rows, "against_dense")


def _made(name: str) -> type[Method]:
    return {RANDOM: RandomWhile, NEWEST: NewestWhile}.get(name) or METHODS[name]


@dataclass
class Asked:
    """The companion, the ledgers that it is asked, and its rules."""

    run: Setting
    sizes: LongDecoding

    @cached_property
    def lm(self) -> Model:
        """The companion, in float32."""
        return load_model(str(COMPANION), device=str(self.run.lm.device), dtype="float32")

    @cached_property
    def expected(self) -> int:
        """Tokens of a right answer."""
        return self.ledgers(0).trace.shape[1]

    def ledgers(self, seed: int) -> Ledgers:
        """Those of a seed."""
        return ledgers(self.sizes.items, self.sizes.names, np.random.default_rng([1, seed]))

    @cached_property
    def fitted(self) -> dict[str, Any]:
        """Rule -> what it is calibrated to, on ledgers of their own."""
        windows = torch.as_tensor(ledgers(CALIBRATE, self.sizes.names, np.random.default_rng(CALIBRATING)).ids)
        calibrated = (name for name in RULES if METHODS[name].needs == "calibration")
        return {name: vars(METHODS[name]().fit(self.lm, windows))["fitted"] for name in calibrated}

    def arms(self) -> Iterator[tuple[str, str, int]]:
        """Dense first, then every rule and null at every budget, and at the two least beside the whole prompt."""
        yield DENSE, "", 0
        wanted = self.sizes.rows.split(",") if self.sizes.rows else (*RULES, RANDOM, NEWEST)
        for setting, beside in ((COUNTED, None), (PROTECTED, BESIDE)):
            for name in wanted:
                yield from ((name, setting, budget) for budget in self.sizes.every_budget[:beside])

    def method(self, name: str, setting: str, budget: int) -> Method:
        """The rule of an arm."""
        if name == DENSE:
            return METHODS[DENSE]()
        kind = _made(name)
        settings = {"budget": budget, "every": self.sizes.every, "prompt_keys": setting}
        settings |= {"window": RECENT} if "window" in kind.__dataclass_fields__ else {}
        state: Any = self.fitted.get(name) if name in self.fitted else (lambda other: None)
        return kind.build(state, **settings)

    def answers(self, key: tuple, seed: int) -> dict:
        """What is measured of an arm on the ledgers of a seed, found again where it was."""
        decides = [self.lm.revision, self.sizes.names, self.sizes.items, self.sizes.every, seed, *key]
        label = f"long-decoding-{'-'.join(map(str, key))}-{seed}"
        return self.run.part(label, decides, lambda: self.write(self.method(*key), self.ledgers(seed)))

    @torch.no_grad()
    def write(self, method: Method, asked: Ledgers) -> dict:
        """Of every ledger whether it `ends` with the right total (by chance one in ten does), and the share of its
        trace before the first wrong token; and of their mean, over the whole answer: `tokens`, `keys` held at its end,
        `held_kib` at the most, and `read_mib`."""
        lm, trace, count = self.lm, asked.trace, len(asked.ids)
        prompt = torch.from_numpy(asked.ids[:, : asked.prompt])
        with apply(lm, method, kernels=True):
            cache = method.cache(lm.lm) or GrowingCache(lm.lm.config)
            tokens = [next_token(lm.lm, prompt, cache)]
            ended = tokens[-1][:, 0] == END
            peak, read, lengths = cache_bytes(cache)[0], np.zeros(count), np.ones(count)
            while not ended.all() and len(tokens) < PATIENCE * trace.shape[1]:
                read += cache_bytes(cache)[1] / count * ~ended.numpy()
                lengths += ~ended.numpy()
                tokens.append(next_token(lm.lm, tokens[-1], cache))
                ended |= tokens[-1][:, 0] == END
                peak = max(peak, cache_bytes(cache)[0])
            keys = keys_held(cache)
        written = torch.cat(tokens, 1).numpy()
        last = [row[max(0, int((row == END).argmax()) - 1)] for row in written]
        short = max(0, trace.shape[1] - written.shape[1])
        written = np.pad(written, ((0, 0), (0, short)), constant_values=-1)[:, : trace.shape[1]]
        as_dense = written == trace
        before = np.where(as_dense.all(1), trace.shape[1], (~as_dense).argmax(1))
        return {
            "ends": (np.array(last) == trace[:, -2]).astype(float).tolist(),
            "right": (before / trace.shape[1]).tolist(),
            "tokens": float(lengths.mean()),
            "keys": keys,
            "held_kib": peak / count / 1024,
            "read_mib": float(read.mean()) / 2**20,
        }
