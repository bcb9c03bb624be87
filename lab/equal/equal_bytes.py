"""At equal bytes, what loses least: dropping keys, storing them in fewer bits, or both? Every rule of eviction at the
bytes of three quantised caches, alone and packed.

The nulls are what drops nothing (8, 4 or 2 bits for all), what needs no rule (random keys; sinks and the newest) and
dense attention over a shorter context. A question quotes the context, and the answer is how the context went on;
whether the question was known when keys were chosen stands apart. The ladder asks what a rule is worth where a serving
stack lets it choose less freely.
"""

from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.methods.evicting import Evicting
from analysis.methods.eviction import KINDS
from analysis.metrics.sparsity import union
from analysis.models import Model
from analysis.seam.attention import apply
from analysis.seam.calls import Block
from analysis.studies.quality.continuation import KNOWN, UNKNOWN
from analysis.studies.quality.trial import Newest, calibration_windows
from analysis.studies.stored.runner import Setting, Windows, option
from analysis.studies.text.held_out import check_range, domains, held_out_windows, ids_hash, sample_windows
from lab.equal import bytes_rows
from lab.equal.bytes_rows import HALF, LEVELS, NOTHING, best_of, rows_of, rungs_of
from lab.equal.held import FULL, Kept, Read, Scored
from lab.equal.rungs import RUNGS, on_rung

RULES = [name for name, method in METHODS.items() if method.saves == "memory" and "ratio" in method.budget_steps]
FITTED = ("duo_attention", "triattention", "kvzap")
LADDER = tuple(name for name in RULES if name != "duo_attention")
RANDOM, NEWEST, SHORTER = "random", "newest", "shorter"
SETTINGS = UNKNOWN, KNOWN
STORED = ("int8", "fp8", "int4", "4bit_nc", "3bit_nc", "int2", "2bit_nc")
# What reads less than it holds: method -> its budgets of keys; Quest chooses in every layer, SparQ adds no mean.
READING: dict[str, dict[str, Any]] = {"quest": {"dense_layers": 0}, "sparq": {"reallocate": "none"}}
BUDGETS = (64, 128, 256)
# Of the keys: three of eight pages of the largest size in a prompt of 1,024 tokens.
RUNG_SHARE = 3 / 8
# Texts of a domain that calibrate; the last tokens that KVzap always keeps.
CALIBRATE, RECENT = 4, 64
# Of the tokens of an answer: those that lose most.
WORST = 0.1


@dataclass
class Random(Evicting):
    """The null that looks at nothing: keys by chance."""

    title = "Random keys"
    seed: int = 0

    def key_scores(self, prompt: Any) -> Tensor:
        """Drawn anew for every layer."""
        draws = torch.Generator().manual_seed(1000 * self.seed + prompt.layer)
        return torch.rand(prompt.key.shape[:3], generator=draws)


class EqualBytes(Windows):
    """A prompt is read densely and its KV cache dropped or packed once; the loss is that of an answer after it."""

    tables = ("rows", "ladder")

    length: int = option(1024, "tokens of a prompt", low=16)
    windows: int = option(16, "prompts of each domain, each of a document of its own", low=2, high=4096)
    continuation: int = option(96, "tokens of an answer; its question quotes a third as many before it")
    rows: str | None = option(None, "only these domains, separated by commas (default: all)")

    def check(self, lm: Model) -> None:
        super().check(lm)
        check_range(
            "The length of the continuation", self.continuation, 6, min(self.length // 2, lm.max_positions // 8)
        )

    def measure(self, run: Setting) -> dict:
        texts = domains(self.corpus, self.rows, run.context)
        fitted = Fitted(run, texts)
        windows, places = self.prompts(run, texts)
        read = []
        for place, (name, window) in enumerate(zip(places, windows, strict=True)):
            run.context.progress(place / len(windows), f"{name}, prompt {place + 1} of {len(windows)}")
            read.append(self.window(run, fitted, window))
        about = {"continuation": self.continuation, "kernel": "compacted and packed KV caches"}
        rows = rows_of(read, SETTINGS, np.array(places), self.length)
        return {
            "means": best_of(rows),
            "rows": rows,
            "ladder": rungs_of(read, SETTINGS),
            "protocol": run.about(windows, np.arange(len(windows)), calibrated_on=fitted.hash, **about),
        }

    def prompts(self, run: Setting, texts: dict[str, tuple[list[str], list[str]]]) -> tuple[np.ndarray, list[str]]:
        """Prompts [n, T], each of a document of its own, and the domain of each."""
        windows, places = [], []
        for name, (_, held_out) in texts.items():
            found, documents = held_out_windows(run.lm, held_out, self.length, self.windows, fewest=1)
            first = np.unique(documents, return_index=True)[1]
            windows.append(found[first])
            places += [name] * len(first)
        return np.concatenate(windows), places

    def window(self, run: Setting, fitted: "Fitted", window: np.ndarray) -> dict:
        """What a prompt loses under every arm, in both settings of its question."""
        tried = cache(lambda setting: self.tried(run.lm, window, setting))
        count, decides = int(RUNG_SHARE * self.length), [self.continuation, fitted.hash]
        parts = {
            "held": lambda setting: tried(setting).arms(fitted),
            "read": lambda setting: tried(setting).reading(),
            "ladder": lambda setting: tried(setting).ladder(fitted, count),
        }

        def made_of(name: str) -> dict:
            return {setting: parts[name](setting) for setting in SETTINGS}

        made = {}
        for name in parts:
            label = f"equal-bytes-{name}-{ids_hash(window[None])}"
            made[name] = run.part(label, decides, partial(made_of, name))
        arms = {setting: made["held"][setting] | made["read"][setting] for setting in SETTINGS}
        return arms | {"ladder": made["ladder"]}

    def tried(self, lm: Model, window: np.ndarray, setting: str) -> "Tried":
        """A prompt that was read, in a setting of its question. The question quotes it before the last tokens, which
        rules keep anyway."""
        prompt = torch.as_tensor(window)
        length = self.continuation // 3
        begin = int(window.sum()) % max(1, self.length - length - self.continuation - RECENT)
        question, answer = prompt[begin : begin + length], prompt[begin + length :][: self.continuation]
        prefix = question if setting == KNOWN else question[:0]
        return Tried(Read(lm, torch.cat([prompt, prefix])), question[len(prefix) :], answer)

    def sample(self, run: Setting, numbers: dict) -> dict:
        ids = torch.as_tensor(sample_windows(run.lm, min(self.length, 256), 1)[0])
        read = Read(run.lm, ids[: len(ids) // 2])
        values = {}
        for name in ("snapkv", "keydiff"):
            stays = Scored(read, KINDS[name]()).within("int4", 0.2 * read.bytes_of(read.everything, FULL))
            with read.following():
                values[name] = float(read.losses(stays, "int4", ids[:0], ids[len(ids) // 2 :]).mean())
        return values

    def part(self, run: Setting, numbers: dict) -> dict:
        """All prompts under what drops nothing, the question unknown."""
        windows, places = self.prompts(run, domains(self.corpus, self.rows, run.context))
        read = [{UNKNOWN: self.tried(run.lm, window, UNKNOWN).stored()} for window in windows]
        rows = rows_of(read, (UNKNOWN,), np.array(places), self.length)
        columns = ("setting", "title", "held", "against_dense", "worst")
        return {"rows": [{key: row[key] for key in columns} for row in rows], "protocol": {"text": ids_hash(windows)}}

    @staticmethod
    def shown(numbers: dict) -> dict:
        return bytes_rows.shown(numbers)


class Fitted:
    """What rules need, fitted on the same training texts of all domains."""

    def __init__(self, run: Setting, texts: dict[str, tuple[list[str], list[str]]]) -> None:
        self.run = run
        named = []
        for name, (train, _) in texts.items():
            few = train[:: max(1, len(train) // CALIBRATE)][:CALIBRATE]
            named += [(f"{name} {place}", text) for place, text in enumerate(few)]
        self.windows = calibration_windows(run.lm, named)
        self.hash = ids_hash(self.windows.numpy())

    @cached_property
    def states(self) -> dict[str, Any]:
        """Rule -> its fitted state."""
        return {name: vars(METHODS[name]().fit(self.run.lm, self.windows))["fitted"] for name in FITTED}

    def rule(self, name: str, seed: int) -> Evicting:
        """A rule, or a null of this name."""
        if name in (RANDOM, NEWEST):
            return Random(seed=seed) if name == RANDOM else Newest()
        settings = {"window": RECENT} if name == "kvzap" else {}
        state: Any = self.states.get(name) if name in FITTED else (lambda other: None)
        return METHODS[name].build(state, **settings)  # type: ignore[return-value]


class Late:
    """A method from the query at place `cut` on, dense before it: `hooks` for the seam; and a watcher of what is read
    from there on, `share` of what could be, of each key-value head."""

    def __init__(self, method: Method, cut: int) -> None:
        self.hooks, self.cut = method, cut
        self.read = self.visible = 0
        mask = method.mask
        vars(method)["mask"] = lambda block: _late(mask(block), block.rows < cut)

    def __call__(self, block: Block, probabilities: Tensor) -> None:
        late = block.rows >= self.cut
        assert block.read is not None, "the seam has decided what is read"
        for name, pairs in (("read", block.read), ("visible", block.visible)):
            shape = 1, probabilities.shape[1], *pairs.shape[2:]
            shared = union(pairs.expand(shape), block.sharing)[:, :, late]
            setattr(self, name, getattr(self, name) + int(shared.count_nonzero()))

    @property
    def share(self) -> float:
        """Pairs of key and value vectors that were fetched, of those that could be."""
        return self.hooks.fetched(self.read, self.visible) / self.visible


def _late(mask: Tensor | None, early: Tensor) -> Tensor | None:
    return None if mask is None else mask | early[:, None]


@dataclass
class Tried:
    """A prompt that was read, with the question and answer that follow."""

    read: Read
    question: Tensor
    answer: Tensor

    def __post_init__(self) -> None:
        # losses of the answer behind all that was read
        with self.read.following():
            self.dense = self.read.losses(self.read.everything, FULL, self.question, self.answer)

    def target(self, level: str) -> float:
        """Bytes of a level."""
        everything = self.read.everything
        return self.read.bytes_of(everything, "int2") / 2 if level == HALF else self.read.bytes_of(everything, level)

    def measured(self, kept: Kept, storage: str, read: Read | None = None) -> dict:
        """`loss`, its rise in the tokens that lose `worst`, and bytes `held` of each token of the context."""
        losses = (read or self.read).losses(kept, storage, self.question, self.answer)
        return self.told(losses) | {"held": (read or self.read).bytes_of(kept, storage) / len(self.read.ids)}

    def told(self, losses: np.ndarray) -> dict[str, float]:
        """`loss` of an answer and its rise in the tokens that lose `worst`."""
        rise = np.sort(losses - self.dense)[::-1]
        return {"loss": float(losses.mean()), "worst": float(rise[: max(1, round(WORST * len(rise)))].mean())}

    def stored(self) -> dict[str, dict]:
        """What drops nothing."""
        with self.read.following():
            return {f"- {NOTHING} {kind}": self.measured(self.read.everything, kind) for kind in (FULL, *STORED)}

    @torch.no_grad()
    def reading(self) -> dict[str, dict]:
        """What drops nothing and reads less: the prompt is read densely, and of what follows every query chooses."""
        lm, found = self.read.lm, {}
        ids, cut = torch.cat([self.read.ids, self.question, self.answer]), len(self.read.ids)
        bytes_held = self.read.bytes_of(self.read.everything, FULL) / cut
        for name, settings in READING.items():
            for budget in BUDGETS:
                method = METHODS[name](**settings | {str(METHODS[name].budgeted): budget})
                counter = Late(method, cut)
                with apply(lm, counter.hooks, counter):
                    logits = lm.lm(ids[None, :-1], use_cache=False).logits[0, -len(self.answer) :].float()
                losses = F.cross_entropy(logits, self.answer, reduction="none").double().numpy()
                bounds = 1 / vars(method)["page"] if name == "quest" else 0.0
                measured = self.told(losses) | {"held": bytes_held * (1 + bounds), "read": bytes_held * counter.share}
                found[f"- {name}:{budget} {FULL}"] = measured
        return found

    def arms(self, fitted: Fitted) -> dict[str, dict]:
        """`level name packing` -> what is measured."""
        arms_of = self.stored()
        for name in (*RULES, RANDOM, NEWEST):
            scored = Scored(self.read, fitted.rule(name, int(self.read.ids.sum())))
            with self.read.following():
                for level, packings in LEVELS.items():
                    for packing in packings:
                        stays = scored.within(packing, self.target(level))
                        arms_of[f"{level} {name} {packing}"] = self.measured(stays, packing)
        for level, packings in LEVELS.items():
            for packing in packings:
                count = max(2, self.read.even(packing, self.target(level)))
                shorter = Read(self.read.lm, self.read.ids[-count:])
                with shorter.following():
                    arms_of[f"{level} {SHORTER} {packing}"] = self.measured(shorter.everything, packing, shorter)
        return arms_of

    def ladder(self, fitted: Fitted, count: int) -> dict[str, dict]:
        """`rule|rung` -> what is measured where every head holds `count` keys."""
        measured_on: dict[str, dict] = {}
        for name in LADDER:
            rule = fitted.rule(name, 0)
            scored = Scored(self.read, rule)
            stays_scored = scored.at(1 - (count + 0.5) / len(self.read.ids))
            on = {rung: on_rung(name, rung, self.read, rule, scored, stays_scored) for rung in RUNGS}
            with self.read.following():
                measured_on |= {f"{name}|{rung}": self.measured(stays, FULL) for rung, stays in on.items() if stays}
        return measured_on
