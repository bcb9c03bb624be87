"""Text written on from a prompt, dense beside up to two methods: tokens, times, what was held, read and gone."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from analysis.errors import BadSetting
from analysis.models import Model
from analysis.runs import Result
from analysis.seam.cache import sees_all
from analysis.studies.context import Context, protocol
from analysis.studies.generate.prompt import TAIL, pieces, prompt
from analysis.studies.generate.reading import readings
from analysis.studies.generate.writing import Written, ends, write
from analysis.studies.ready.candidates import FAMILIES, Candidate, candidates
from analysis.studies.speed.launch import first_difference
from analysis.studies.text.held_out import check_range
from analysis.studies.text.text import token_table
from analysis.timing import check_model_memory, processor

MOST_NEW, MOST_METHODS = 256, 2
TRACED = 8192  # tokens of a prompt up to which the answer is read again to see what it read
USUAL = {"name": "snapkv", "settings": {"ratio": 0.75}}


def generate(
    model: str = "demo",
    text: str = "",
    methods: list[dict] | None = None,
    question: str = "",
    new_tokens: int = 48,
    length: int | None = None,
    known: bool = True,
    chat: bool = True,
    *,
    context: Context,
) -> Result:
    """The most likely `new_tokens` after a text and a `question`, dense and under each of at most two `methods`.

    The prompt is the first `length` tokens of the text (as many as fit unless given), then the question, inside the
    tokenizer's chat template where `chat` and it has one. Methods that drop keys, or read blocks of a prompt, decide
    once: with the question in sight where it is `known`, else when the text has been read. SnapKV at a quarter of the
    keys unless methods are given. Tokens are shown as they are made.

    numbers: `rows`, dense first: `method label settings saves text tokens ended`, `ms_first`, `ms_per_token` (median),
    `kv_bytes` when the text had been read and compressed, `kv_share` of dense attention's, `kv_most_bytes` held at once
    until then, one layer at a time in full, `kept_keys` per layer and key-value head, `held_bytes` at the end,
    `first_difference` (index of the first new token unlike dense, or None),
    `kernel`, `masked` (the times say nothing about reading less); `prompt_tokens`, `cut` (tokens that were compressed),
    `layers heads kv_heads windows` (of each layer, or None), `traced`, `sentence`, `notes`.
    tables: `tokens` of the prompt; `answers`: `side step token piece start end ms`. arrays, one row for each side:
    `kept` packed bits of bool [L, G, cut]; `read read_weight gone gone_weight lost` of `Readings.arrays`, for prompts
    of at most 8,192 tokens. Errors: BadSetting, BadText, TooLarge.
    """
    check_range("The number of new tokens", new_tokens, 2, MOST_NEW)
    if methods is not None and len([one for one in methods if one.get("name") != "dense"]) > MOST_METHODS:
        raise BadSetting(f"{len(methods)} methods were asked for: choose at most {MOST_METHODS} beside dense.")
    lm = context.model(model)
    given = prompt(context, lm, text, question, length, lm.max_positions - new_tokens, chat)
    others = [one for one in ([USUAL] if methods is None else methods) if one.get("name") != "dense"]
    sides = candidates(context, lm, [{"name": "dense"}, *others], FAMILIES)
    check_model_memory(lm, len(given.ids), new_tokens, 1)
    cut = len(given.ids) if known else given.cut
    written, read, shown = [], [], Shown(context, lm, [side.label for side in sides], new_tokens)
    traced = len(given.ids) <= TRACED
    for at, side in enumerate(sides):
        context.progress(at / len(sides), f"{side.label}: reads the prompt")
        done = write(lm, side.method, given.ids, cut, new_tokens, shown.of(at, given.ids))
        written.append(done)
        if traced:
            context.progress((at + 0.8) / len(sides), f"{side.label}: what it read")
            read.append(readings(lm, side.method, given.ids, cut, done.tokens))
    rows = [_row(lm, side, own, written[0]) for side, own in zip(sides, written, strict=True)]
    about = {"question": question or None, "known": known, "new_tokens": new_tokens, "chat": given.templated}
    about |= {"processor": processor(str(lm.device)), "kernel": "each method's own kernel where it has one"}
    numbers = {
        "rows": rows,
        **{"prompt_tokens": len(given.ids), "cut": cut, "text_tokens": given.total, "traced": traced},
        **{"layers": lm.num_layers, "heads": lm.num_heads, "kv_heads": lm.num_kv_heads, "windows": _windows(lm)},
        "sentence": _sentence(rows),
        "notes": _notes(given.reading.notes, rows, traced, bool(question) and not known),
        "protocol": protocol("generate", lm, text, len(given.ids), **about),
    }
    tables = {"tokens": token_table(given.reading), "answers": _answers(lm, given.ids, written)}
    return Result(numbers, tables, {"kept": np.stack([np.packbits(own.kept) for own in written])} | _stacked(read))


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
    new = max((len(own["lost"]) for own in read), default=0)

    def padded(array: np.ndarray) -> np.ndarray:
        return np.pad(array, [(0, new - len(array)), *[(0, 0)] * (array.ndim - 1)])

    return {name: np.stack([padded(own[name]) for own in read]) for name in (read[0] if read else ())}


def _row(lm: Model, side: Candidate, own: Written, dense: Written) -> dict:
    at = first_difference(dense.tokens, own.tokens)
    return {
        **{"method": side.name, "label": side.label, "settings": side.settings, "saves": side.method.saves},
        **{"text": lm.tokenizer.decode(own.tokens), "tokens": len(own.tokens), "ended": own.tokens[-1] in ends(lm)},
        **{"ms_first": own.first * 1e3, "ms_per_token": float(np.median(own.steps)) * 1e3 if own.steps else None},
        **{"kv_bytes": own.kv_bytes, "kv_share": own.kv_bytes / dense.kv_bytes},
        **{"kv_most_bytes": own.most, "kept_keys": own.keys},
        **{"held_bytes": own.held, "first_difference": at, "kernel": own.kernels, "masked": own.masked},
    }


def _answers(lm: Model, ids: np.ndarray, written: list[Written]) -> pd.DataFrame:
    """One row for each new token of each side; `ms` of the first is the time to it."""
    parts = []
    for side, own in enumerate(written):
        times = [own.first, *own.steps]
        columns = {
            "side": side,
            "step": range(len(times)),
            "token": own.tokens,
            **pieces(lm.tokenizer, ids, own.tokens),
        }
        parts.append(pd.DataFrame(columns | {"ms": [seconds * 1e3 for seconds in times]}))
    return pd.concat(parts, ignore_index=True)


def _windows(lm: Model) -> list[int | None]:
    """The sliding window of each layer; None where it holds the whole past."""
    size = getattr(lm.lm.config.get_text_config(), "sliding_window", None)
    return [None if whole else size for whole in sees_all(lm.lm.config, lm.num_layers)]


def _sentence(rows: list[dict]) -> str:
    dense, *others = rows
    said = []
    for row in others:
        at = row["first_difference"]
        apart = (
            "writes the same as dense attention" if at is None else f"differs from dense attention at token {at + 1:,}"
        )
        said.append(f"{row['label']} {apart}, with {row['kv_share']:.0%} of its KV cache")
    return ("; ".join(said) or f"Dense attention wrote {dense['tokens']:,} tokens") + "."


def _notes(found: list[str], rows: list[dict], traced: bool, unknown: bool) -> list[str]:
    said = list(found)
    if unknown:
        said.append("The question came after the KV cache was compressed, so no method could keep keys for it.")
    for row in rows[1:]:
        if row["masked"]:
            said.append(
                f"{row['label']} ran with a mask instead of a kernel: its times say nothing about reading less."
            )
    if not traced:
        said.append(f"What each token read is kept for prompts of at most {TRACED:,} tokens.")
    return said
