"""How often would every method make a GPU wait, and what would it hold at its peak?"""

import gc
from dataclasses import dataclass
from functools import partial

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache

from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.models import Model
from analysis.seam.arguments import as_past
from analysis.seam.attention import apply, ran
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import Setting, Study, option
from analysis.timing.memory import model_bytes
from lab.rehearsal.device import NAME, Crossings, Device, fake_device
from lab.rehearsal.shapes import LAYERS, LONGEST, SHAPES, methods, on_devices

# From here on some methods are left out.
LONG = LONGEST
PIECES = "takes the text in so many pieces that their shapes alone take minutes"
LEFT_OUT = dict.fromkeys(("oracle_topp", "skip_softmax", "xattention"), PIECES)
LEFT_OUT["kvzip_plus"] = "repeats the text behind itself, and these models have no position after 131,072"
# Tokens written after the prompt.
WRITTEN = 2
SAMPLE = 256  # tokens
# Of the peak: a price that helps.
NEAR = 0.25
SAMPLED = {"dense", "focus", "quest"}


@dataclass(frozen=True)
class Rehearsed:
    """A prompt and the tokens after it on the fake device: how often the host asked it in each, the most bytes that the
    prompt held beside the model, and (phase, kernel) of what ran."""

    asked_in_prompt: int
    asked_in_steps: int
    peak: int
    kernels: set[tuple[str, str]]

    @property
    def of_prompt(self) -> list[str]:
        """The kernels of the prompt."""
        return sorted(kernel for phase, kernel in self.kernels if phase == "prefill")


def read_and_write(lm: PreTrainedModel, method: Method, device: Device, length: int, kernels: bool) -> Rehearsed:
    """Read a prompt of `length` tokens and write some, the likeliest each."""
    ids = torch.zeros(1, length, dtype=torch.long, device=f"{NAME}:0")
    device.tokens = length
    with apply(lm, method, kernels=kernels), Crossings():
        device.asked.clear()
        before = device.held.peak = device.held.now
        cache = (method.cache(lm) if kernels else None) or DynamicCache(config=lm.config)
        read = lm(ids, **as_past(lm, cache), use_cache=True, logits_to_keep=1)
        peak, in_prompt = device.held.peak - before, device.asked.total()
        device.asked.clear()
        for _ in range(WRITTEN):
            token = read.logits[:, -1:].argmax(-1).to(ids.device)
            read = lm(token, **as_past(lm, cache), use_cache=True)
        return Rehearsed(in_prompt, device.asked.total(), peak, {(call.phase, call.kernel) for call in ran(lm)})


class Rehearsal(Study):
    """Every method reads a prompt and writes two tokens on an accelerator that computes shapes alone, in two layers of
    the shapes of Llama 3.1 8B, Qwen 2.5 0.5B and gpt-oss-20b in bfloat16. Nothing is timed and no number is computed
    but how often the host waited for an answer, and the peak beside the weights, with what pages say before."""

    whole = "they take minutes, so that three methods are read again at 256 tokens"

    lengths: str = option("4096", "lengths of the prompt in tokens")

    def check(self, lm: Model) -> None:
        if any(not SAMPLE <= length <= LONGEST for length in self.every_length):
            raise BadSetting(f"Lengths lie between {SAMPLE} and {LONGEST:,} tokens, not {self.lengths[:40]}.")

    @property
    def every_length(self) -> list[int]:
        """The lengths in order. Errors: BadSetting."""
        try:
            return sorted({int(length) for length in self.lengths.split(",")})
        except ValueError:
            raise BadSetting(f"{self.lengths[:40]!r} is no list of lengths, such as 4096,32768.") from None

    def measure(self, run: Setting) -> dict:
        cases = [(shape, length) for length in self.every_length for shape in SHAPES]
        rows = []
        for place, (shape, length) in enumerate(cases):
            run.context.progress(place / len(cases), f"{shape}, {length:,} tokens")
            rows += run.part("rehearsal", [shape, length, *METHODS], partial(rehearsed, shape, length))["rows"]
        about = {"text": None, "tokens": max(self.every_length), "window": None, "dtype": "bfloat16"}
        return {"rows": rows, "protocol": about | {"kernel": "see the rows", "device": "shapes alone"}}

    def sample(self, run: Setting, numbers: dict) -> dict:
        return {"peak": [row["peak_bytes"] for row in rehearsed("qwen", SAMPLE, SAMPLED)["rows"]]}

    @staticmethod
    def shown(numbers: dict) -> dict:
        tried = [row for row in numbers["rows"] if not row["refused"]]
        near = [row for row in tried if abs(row["peak_bytes"] / row["said_bytes"] - 1) <= NEAR]
        after = max(row["asked_in_step"] for row in tried)
        lengths = ", ".join(f"{length:,}" for length in sorted({row["length"] for row in tried}))
        sentence = (
            f"Rehearsed on shapes alone, without a GPU ({len({row['method'] for row in tried})} methods, "
            f"{len({row['shape'] for row in tried})} shapes of {LAYERS} layers, {lengths} tokens, bfloat16): waits of "
            f"a prompt per layer, at most {max(row['asked_in_prompt'] for row in tried):g}; of a token after it, at "
            f"most {after:g}; the memory predicted before lies within {NEAR:.0%} of the peak in {len(near)} of "
            f"{len(tried)} rows."
        )
        return presented("rehearsal", sentence, None)


def rehearsed(shape: str, length: int, chosen: set[str] | None = None) -> dict[str, list[dict]]:
    """`rows`: one for every method, or these, at one shape and length."""
    config = SHAPES[shape]()
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    with fake_device() as device, device.held:
        lm = on_devices(config, f"{NAME}:0")
        model = Model(lm, None, shape, "none", LAYERS, heads, kv_heads, dim, LONGEST)
        rows = []
        for name, made in methods(config).items():
            if chosen is None or name in chosen:
                row = {"shape": shape, "length": length, "method": name, "kernel": None, "asked_in_prompt": None}
                row |= {"asked_in_step": None, "peak_bytes": None, "said_bytes": None, "refused": None}
                if length >= LONG and name in LEFT_OUT:
                    row["refused"] = LEFT_OUT[name]
                else:
                    method = made()
                    # what an earlier method left would be given back while this one reads, and hide what it takes
                    gc.collect()
                    about = read_and_write(lm, method, device, length, kernels=True)
                    row |= {"kernel": ", ".join(about.of_prompt), "peak_bytes": about.peak}
                    row |= {"asked_in_prompt": about.asked_in_prompt / LAYERS}
                    row |= {"asked_in_step": about.asked_in_steps / WRITTEN}
                    row["said_bytes"] = model_bytes(model, length, method, about.of_prompt)
                rows.append(row)
    return {"rows": rows}
