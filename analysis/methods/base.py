"""What a method is: one dataclass whose fields are its settings, and up to three functions that say what is read."""

import inspect
from dataclasses import dataclass, field, fields
from typing import ClassVar

import torch
import torch.nn.functional as F

from analysis.attention import Block
from analysis.cache import GroupedCache
from analysis.calls import MASKED, Attended, Call, Prompt
from analysis.errors import BadSetting

PRICES = ("live", "refit", "retrain")  # what a new value of a field costs: one forward pass, calibration, training


def setting(
    default, help: str, price: str, low=None, high=None, step=None, options: tuple | None = None, future: tuple = ()
):
    """A dataclass field with all that a page needs to draw its control; ranges are checked by `Method`.

    `future`: the options that let later tokens decide over what earlier ones read.
    """
    assert price in PRICES
    about = {"help": help, "price": price, "low": low, "high": high, "step": step, "options": options}
    return field(default=default, metadata=about | {"future": future})


@dataclass
class Method:
    """A way to read the context. The base class reads everything; a method overrides what it changes."""

    title: ClassVar[str] = ""  # its name in words, the same on every page, table and chart
    paper: ClassVar[str] = ""
    needs: ClassVar[str] = ""  # the fitted state that `build` takes: a word of `studies.ready.candidates.FIND`, or none
    saves: ClassVar[str] = "reads"  # of "reads" of each query, "memory" after the prompt, time of its "prefill"
    dense: ClassVar[bool] = False  # reads every visible key with unchanged scores: the fastest dense kernel may run
    extra_vectors: ClassVar[float] = 0.0  # key and value vectors, halved, that a query reads beside its keys
    kernels: ClassVar[tuple[str, ...]] = ()  # what `attend` computes itself, of "prompt" and "token"
    budgeted: ClassVar[str | None] = None  # the setting that counts keys: more of it reads more
    competing: ClassVar[tuple[str, ...]] = ()  # settings that count them another way: as by default under a budget
    block_bytes: ClassVar[int | None] = None  # of scores that are made at once on a processor; None: as is quickest
    ceiling: ClassVar[bool] = False  # looks at every key to choose: a bound on others, never a faster model itself

    def __post_init__(self):
        for item in fields(self):
            about, value = item.metadata, getattr(self, item.name)
            if not about:
                continue
            if about["options"] is not None and value not in about["options"]:
                raise BadSetting(
                    f"{item.name} is {value!r} and must be one of {', '.join(map(str, about['options']))}."
                )
            if about["low"] is not None and not _in_range(value, type(item.default), about["low"], about["high"]):
                raise BadSetting(f"{item.name} is {value!r} and must lie between {about['low']} and {about['high']}.")

    @classmethod
    def build(cls, state=None, **settings) -> "Method":
        """The method with the fitted state that it `needs`; settings that are not given are those it was fitted for."""
        return cls(**{"fitted": state} if cls.needs == "calibration" else {}, **settings)

    @property
    def reads_future(self) -> bool:
        """Whether these settings let later tokens decide over what earlier ones read: a leak to measure, not to use."""
        return any(getattr(self, item.name) in item.metadata["future"] for item in fields(self) if item.metadata)

    def budget_range(self, length: int, target: float) -> tuple[int, int, int]:
        """Least and largest value of the setting that is `budgeted` in texts of `length` tokens, and one to try first
        when a query is to read `target` keys."""
        about = next(item.metadata for item in fields(self) if item.name == self.budgeted)
        return about["low"], min(about["high"], length), round(target)

    @classmethod
    def at_step(cls, step: int) -> dict:
        """Of a method that decides at the end of a prompt, the settings that give it a budget, at a step of 0 to 100:
        more keeps more keys, or reads more blocks."""
        return {}

    def check(self, lm) -> None:
        """Refuse a transformers model this method cannot run on. Called by `apply` before anything is changed."""

    def fit(self, model, windows: torch.Tensor) -> "Method":
        """Calibrate on token windows [n, T] of this model and return self; a method that needs a `calibration` leaves
        what it found in `fitted` (`analysis.fitted.Fitted`), which `build` is given the next time."""
        return self

    def first_layer(self) -> int:
        """The first layer that a pass computes: what the layers before it give is known from an earlier pass."""
        return 0

    def prefill(self, prompt: Prompt) -> None:
        """See the first call of a layer before anything attends: for methods that decide once about a whole prompt."""

    def observe(self, layer: int, hidden: torch.Tensor, real: torch.Tensor | None) -> torch.Tensor | None:
        """What to remember of the tokens entering a layer: hidden [B, T, d] -> [B, T, ...] or None.

        `real` bool [B, T] marks what is no padding; None at a decode step, where earlier tokens are in the KV cache.
        """
        return None

    def file(self, layer: int, query: torch.Tensor, key: torch.Tensor, past, module, tables) -> torch.Tensor | None:
        """What to remember of the same tokens, from their query [B, H, T, D] and key [B, G, T, D]: [B, T, ...] or None.

        A method has this or `observe`. `past` tokens lie before them; `module` is the attention layer, and `tables`
        (cos, sin) rotated both, or None.
        """
        return None

    def sharpen(self, layer: int, query: torch.Tensor, of_tokens: torch.Tensor | None) -> torch.Tensor:
        """The queries [B, H, n, D] as they meet the keys, before any scaling and soft cap: where a temperature acts.

        `of_tokens` [B, past + n, ...] what `observe` or `file` returned for all tokens up to the last of them.
        """
        return query

    def scores(self, block: Block) -> torch.Tensor:
        """The logits the softmax sees, [B, H, n, Tk]."""
        return block.scores

    def keep(self, block: Block) -> torch.Tensor | None:
        """bool, broadcastable to [B, H, n, Tk], True = read; None reads all. Causality is applied by the seam."""
        return None

    def weigh(self, block: Block, probabilities: torch.Tensor) -> torch.Tensor:
        """What values are multiplied with, float32 [B, H, n, Tk], of the softmax of what is read (`block.read`).

        Where a method gives a share of it to what it did not read, such as to the mean of all values before a query.
        """
        return probabilities

    def leave(self, layer: int, out: torch.Tensor) -> torch.Tensor:
        """What leaves the heads of a layer, [B, n, H, D], before the output projection: where a head is ablated."""
        return out

    def fetched(self, attended: float, visible: float) -> float:
        """How many keys with their values are read from memory, of counts summed over queries: K and V vectors / 2.

        `attended` keys stood in the softmax, `visible` ones could have (definitions 2.14). Linear in both.
        """
        return attended

    def attend(self, call: Call) -> Attended | None:
        """This call by a kernel of the method's own, exactly what `scores` and `keep` say; None without a kernel."""
        return None

    def cache(self, lm) -> GroupedCache | None:
        """A KV cache of the method's own for `generate` with kernels; None takes transformers' own."""
        return None

    def addon(self) -> torch.nn.Module | None:
        """The trained part, if there is one."""
        return None

    @classmethod
    def describe(cls) -> dict:
        """The method as plain data, from which a page builds its text and its controls."""
        return {
            "doc": inspect.getdoc(cls),
            "paper": cls.paper,
            "title": cls.title,
            "needs": cls.needs,
            "ceiling": cls.ceiling,
            "saves": cls.saves,
            "kernels": list(cls.kernels),
            "budget": cls.budgeted,
            "competing": [*cls.competing, *cls.at_step(50)],
            "fields": [
                {"name": f.name, "type": type(f.default).__name__, "default": f.default, **f.metadata}
                for f in fields(cls)
                if f.metadata
            ],
        }


def read_all(call: Call) -> Attended:
    """Every key up to the query by torch's own kernel, with gradients: for methods that only change the queries."""
    length = call.query.shape[2]
    if call.past and length > 1:
        return Attended(None, MASKED, "Several tokens follow a past, and torch's causal kernel begins at the first.")
    grouped = call.query.shape[1] != call.key.shape[1]
    out = F.scaled_dot_product_attention(
        call.query, call.key, call.value, is_causal=length > 1, scale=call.scaling, enable_gqa=grouped
    )
    return Attended(out, "torch dense", "Every key is read.")


def _in_range(value, kind: type, low, high) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else int):
        return False
    return low <= value <= high
