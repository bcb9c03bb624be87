"""Text written on from a prompt, dense beside up to two methods: tokens, times, what was held, read and gone."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from ...answer import Worded, doc, record
from ...commands.quality import Generate
from ...errors import BadSetting
from ...methods.while_decoding import WhileDecoding
from ...models import Model
from ...seam.cache_checks import sees_all
from ...timing import processor
from ...timing.memory import check_model_memory
from ..context import Context, protocol
from ..ready.candidates import FAMILIES, Candidate, Setting, candidates
from ..speed.launch import first_difference
from ..text.text import token_table
from .reading import AHEAD, HELD, Missed, agreed, checks, missed, readings
from .writing import TAIL, Written, ends, pieces, prompt, write

MAX_METHODS = 2
OWN_KERNEL = "each method's own kernel where it has one"
# Tokens of a prompt up to which the answer is read again to see what it read.
TRACED = 8192
USUAL = {"name": "snapkv", "settings": {"ratio": 0.75}}


@record
class WrittenOn(Setting):
    """The text that one method wrote, and what it held."""

    saves: str = doc("what the method saves: reads, memory or prefill")
    text: str = doc("the new text")
    tokens: int = doc("its tokens")
    ended: bool = doc("the model ended the text")
    ms_first: float = doc("milliseconds to the first new token")
    ms_per_token: float | None = doc("median milliseconds of each one after it")
    kv_bytes: int = doc("of the KV cache when the text had been read and compressed")
    kv_share: float = doc("the same as a share of dense attention's")
    kv_most_bytes: int = doc("bytes held at once until then, one layer at a time in full")
    kept_keys: float = doc("keys per layer and key-value head, then")
    held_bytes: int = doc("bytes held at the end")
    first_difference: int | None = doc("index of the first new token unlike that of dense attention")
    kernel: str = doc("what computed the prompt and the tokens after it")
    masked: bool = doc("the times say nothing about reading less")
    most_bytes: int | None = doc("bytes held at once at the most, over all of the answer", default=None)
    per_check: float | None = doc(
        f"tokens of dense attention's answer in each of its passes, were {AHEAD} drafted by this method", default=None
    )
    read_bytes: int | None = doc(
        "bytes of keys and values that its tokens after the first read from the KV cache, summed", default=None
    )


@record
class Generated(Worded):
    """Text written on from a prompt, dense beside methods. Arrays have one row for each side."""

    rows: list[WrittenOn] = doc("one per method, dense first")
    prompt_tokens: int = doc("tokens of the prompt")
    cut: int = doc("tokens of it that were compressed")
    text_tokens: int = doc("tokens of the whole text")
    traced: bool = doc("what each new token read is there: for prompts of at most 8,192 tokens")
    layers: int = doc("layers of the model")
    heads: int = doc("query heads of a layer")
    kv_heads: int = doc("key-value heads of a layer")
    windows: list[int | None] = doc("sliding window of each layer; null where it holds the whole past")
    tokens: pd.DataFrame = doc("tokens of the prompt")
    answers: pd.DataFrame = doc("one row per side and new token: its place in the new text, and milliseconds")
    kept: np.ndarray = doc("packed bits of bool [L, G, cut]: keys of the text that stayed")
    read: np.ndarray | None = doc("int32: keys that each new token read most, see `Readings`", default=None)
    read_weight: np.ndarray | None = doc("float16: what it gave them", default=None)
    gone: np.ndarray | None = doc("int32: keys that it would have read most had they been there", default=None)
    gone_weight: np.ndarray | None = doc("float16: what it would have given them", default=None)
    lost: np.ndarray | None = doc("float16: all that it would have given to what it did not read", default=None)
    left: np.ndarray | None = doc(
        "int16 [sides, L, G, tokens]: of answers that were cut to a budget, the first step that does not find a key, "
        "32767 for one that is still there",
        default=None,
    )
    missed: list[Missed] | None = doc(
        "of such answers, the keys that had left and that dense attention then reads most", default=None
    )


def generate(request: Generate, *, context: Context) -> Generated:
    """The most likely tokens after a text and a question, dense and under each of at most two methods (SnapKV at a
    quarter of the keys unless named). Methods that drop keys, or read blocks of a prompt, decide once: with the
    question in sight where it is `known`, else when the text has been read. Tokens are shown as they are made. Errors:
    BadSetting, BadText, TooLarge."""
    new_tokens = request.new_tokens
    sparse = [spec for spec in ([USUAL] if request.methods is None else request.methods) if spec.get("name") != "dense"]
    if len(sparse) > MAX_METHODS:
        raise BadSetting(f"{len(sparse)} methods were asked for: choose at most {MAX_METHODS} beside dense.")
    lm = context.model(request.model)
    prompted = prompt(context, lm, request, lm.max_positions - new_tokens)
    sides = candidates(context, lm, [{"name": "dense"}, *sparse], FAMILIES)
    if request.put_back is not None:
        sides.append(_put_back(lm, sides[-1], request.put_back))
    check_model_memory(lm, len(prompted.ids), new_tokens, 1)
    cut = len(prompted.ids) if request.known else prompted.cut
    shown = Shown(context, lm, [side.label for side in sides], new_tokens)
    written, read, film, per_check = [], [], [], []
    traced = len(prompted.ids) <= TRACED
    for index, side in enumerate(sides):
        context.progress(index / len(sides), f"{side.label}: reads the prompt")
        answer = write(lm, side.method, prompted.ids, cut, new_tokens, shown.of(index, prompted.ids))
        written.append(answer)
        if answer.left is not None and traced:
            apart = first_difference(written[0].tokens, answer.tokens)
            astray = answer.tokens if apart is None else answer.tokens[: apart + 1]
            film += missed(lm, index, prompted.ids, astray, answer.left)
        if traced:
            context.progress((index + 0.8) / len(sides), f"{side.label}: what it read")
            read.append(readings(lm, side.method, prompted.ids, cut, answer.tokens))
        dense = written[0].tokens
        drafts = index > 0 and traced and type(side.method).saves == "reads"
        agrees = agreed(lm, side.method, prompted.ids, cut, dense) if drafts else None
        per_check.append(None if agrees is None else len(dense) / checks(agrees))
    left, cuts = None, {index: answer.left for index, answer in enumerate(written) if answer.left is not None}
    if cuts:
        longest = max(steps.shape[2] for steps in cuts.values())
        left = np.full((len(written), lm.num_layers, lm.num_kv_heads, longest), HELD, np.int16)
        for index, steps in cuts.items():
            left[index, :, :, : steps.shape[2]] = steps
    rows = [_row(lm, *one, written[0]) for one in zip(sides, written, per_check, strict=True)]
    window = getattr(lm.lm.config.get_text_config(), "sliding_window", None)
    about = {"question": request.question or None, "known": request.known, "new_tokens": new_tokens}
    about |= {"chat": prompted.templated, "processor": processor(str(lm.device))}
    return Generated(
        rows=rows,
        prompt_tokens=len(prompted.ids),
        cut=cut,
        text_tokens=prompted.total,
        traced=traced,
        layers=lm.num_layers,
        heads=lm.num_heads,
        kv_heads=lm.num_kv_heads,
        windows=[None if whole else window for whole in sees_all(lm.lm)],
        sentence=_sentence(rows),
        notes=_notes(prompted.reading.notes, rows, traced, bool(request.question) and not request.known),
        tokens=token_table(prompted.reading),
        answers=_answers(lm, prompted.ids, written),
        kept=np.stack([np.packbits(answer.kept_keys) for answer in written]),
        **_stacked(read),
        left=left,
        missed=film or None,
        protocol=protocol("generate", lm, request.text, len(prompted.ids), **about, kernel=OWN_KERNEL),
    )


def _put_back(lm: Model, side: Candidate, key: list[int]) -> Candidate:
    """The last method once more, which keeps a key (layer, key-value head, place). Errors: BadSetting."""
    if not (isinstance(side.method, WhileDecoding) and side.method.budget) or len(key) != 3:
        raise BadSetting(
            "A key is put back by its layer, key-value head and place, where the last method drops keys under a "
            "budget: name three numbers, and give that method a budget."
        )
    layer, head, place = key
    if layer not in lm.layer_numbers or not 0 <= head < lm.num_kv_heads:
        raise BadSetting(f"There is no key-value head {layer}.{head} in {lm.name}: choose another key.")
    chosen = lm.layer_numbers.index(layer), head, place
    label = f"with key {place:,} of head {layer}.{head} put back"
    return replace(side, method=replace(side.method, put_back=chosen), label=label)


class Shown:
    """What can be read before the end: the answers so far, column -> values, one for each side."""

    def __init__(self, context: Context, lm: Model, labels: list[str], new: int) -> None:
        self._context, self._lm, self._new = context, lm, new
        self._curve: dict[str, list] = {"label": labels, "text": [""] * len(labels), "tokens": [0] * len(labels)}

    def of(self, side: int, ids: np.ndarray) -> Callable[[list[int]], None]:
        """`tell` of one side, to be called with its tokens so far."""
        tail, labels = ids[-TAIL:].tolist(), self._curve["label"]
        skip = len(self._lm.tokenizer.decode(tail))

        def tell(tokens: list[int]) -> None:
            self._curve["text"][side] = self._lm.tokenizer.decode([*tail, *tokens])[skip:]
            self._curve["tokens"][side] = len(tokens)
            self._context.show({name: list(values) for name, values in self._curve.items()})
            done = (side + 0.8 * len(tokens) / self._new) / len(labels)
            self._context.at(done, f"{labels[side]}: token {len(tokens):,} of {self._new:,}")

        return tell


def _stacked(read: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays of every side as one [sides, new, ...]; of an answer that ended before the longest zeros follow."""
    if not read:
        return {}
    longest = max(len(arrays["lost"]) for arrays in read)

    def padded(array: np.ndarray) -> np.ndarray:
        return np.pad(array, [(0, longest - len(array)), *[(0, 0)] * (array.ndim - 1)])

    return {name: np.stack([padded(arrays[name]) for arrays in read]) for name in read[0]}


def _row(lm: Model, side: Candidate, answer: Written, per_check: float | None, dense: Written) -> WrittenOn:
    return WrittenOn(
        **side.setting,
        saves=side.method.saves,
        text=lm.tokenizer.decode(answer.tokens),
        tokens=len(answer.tokens),
        ended=answer.tokens[-1] in ends(lm),
        ms_first=answer.first * 1e3,
        ms_per_token=float(np.median(answer.steps)) * 1e3 if answer.steps else None,
        kv_bytes=answer.kv_bytes,
        kv_share=answer.kv_bytes / dense.kv_bytes,
        kv_most_bytes=answer.peak_bytes,
        kept_keys=answer.keys,
        held_bytes=answer.final_bytes,
        first_difference=first_difference(dense.tokens, answer.tokens),
        kernel=answer.kernels,
        masked=answer.masked,
        most_bytes=answer.most_bytes,
        per_check=per_check,
        read_bytes=answer.read_bytes,
    )


def _answers(lm: Model, ids: np.ndarray, written: list[Written]) -> pd.DataFrame:
    """One row for each new token of each side; `ms` of the first is the time to it."""
    parts = []
    for side, answer in enumerate(written):
        times = np.array([answer.first, *answer.steps])
        columns = {"side": side, "step": range(len(times)), "token": answer.tokens}
        parts.append(pd.DataFrame({**columns, **pieces(lm.tokenizer, ids, answer.tokens), "ms": times * 1e3}))
    return pd.concat(parts, ignore_index=True)


def _sentence(rows: list[WrittenOn]) -> str:
    dense, *sparse = rows
    parts = []
    for row in sparse:
        difference = "writes the same as dense attention"
        if row.first_difference is not None:
            difference = f"differs from dense attention at token {row.first_difference + 1:,}"
        parts.append(f"{row.label} {difference}, with {row.kv_share:.0%} of its KV cache")
    return ("; ".join(parts) or f"Dense attention wrote {dense.tokens:,} tokens") + "."


def _notes(prompt_notes: list[str], rows: list[WrittenOn], traced: bool, unknown: bool) -> list[str]:
    notes = list(prompt_notes)
    if unknown:
        notes.append("The question came after the KV cache was compressed, so no method could keep keys for it.")
    for row in rows[1:]:
        if row.masked:
            notes.append(f"{row.label} ran with a mask instead of a kernel: its times say nothing about reading less.")
    if not traced:
        notes.append(f"What each token read is kept for prompts of at most {TRACED:,} tokens.")
    return notes
