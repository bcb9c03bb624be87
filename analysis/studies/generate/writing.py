"""The prompt that is generated from, and one way to write on: new tokens, their times, what the KV cache held."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...commands.quality import Generate
from ...corpus import partial_bytes, tokenize
from ...errors import BadSetting, TooLarge
from ...kernels.parts import now
from ...methods.base import Method
from ...methods.evicting import Evicting
from ...methods.while_decoding import WhileDecoding
from ...models import Model
from ...seam.attention import apply, ran
from ...seam.cache import CompactLayer, GrowingCache, cache_bytes, keys_held, most_bytes
from ...seam.calls import MASKED
from ...seam.held import NEVER
from ...timing.inference import next_token
from ..context import Context, Reading
from .reading import HELD

# Stands for the text while a chat template is filled in; no text has it.
HERE = "\ue000"
# Tokens before the new ones: some tokenizers write the first token of a text without its space.
TAIL = 8
# Tokens read before the clock runs: the first pass of a process is slower.
WARM = 64


@dataclass(frozen=True)
class Prompt:
    """What the model is given."""

    # The whole as a text with its tokens.
    reading: Reading
    # Tokens of the text and of what a template puts before it.
    cut: int
    total: int  # tokens that the text has
    templated: bool

    @property
    def ids(self) -> np.ndarray:
        """Its tokens."""
        return self.reading.tokens.ids


def prompt(context: Context, model: Model, request: Generate, room: int) -> Prompt:
    """The first `length` tokens of a stored text, as many as fit unless given, with the question behind them.

    `room`: the most tokens that the whole may have. Errors: BadSetting, BadText, TooLarge.
    """
    name, text = context.text(request.text)
    length, question = request.length, request.question
    before, after, templated = _around(model.tokenizer, question, request.chat)
    beside = sum(len(model.tokenizer(part, add_special_tokens=False)["input_ids"]) for part in (before, after)) + 2
    if room - beside < 2:
        raise TooLarge(
            f"The question takes {beside:,} tokens and there is room for {max(room, 0):,}: ask a shorter one, or for "
            "fewer new tokens."
        )
    tokens_of_text = tokenize(model.tokenizer, text, model.max_positions, 1)
    if length is not None and not 2 <= length <= room - beside:
        raise BadSetting(
            f"The first {length:,} tokens of the text were asked for: choose between 2 and {room - beside:,}, which "
            "is what fits beside the question and the new tokens."
        )
    count = min(length or room - beside, len(tokens_of_text) - tokens_of_text.begin)
    excerpt = text[: int(tokens_of_text.ends[tokens_of_text.begin + count - 1])]
    if question and not templated:
        excerpt = excerpt.rstrip()
    tokens = tokenize(model.tokenizer, before + excerpt + after, model.max_positions, 1)
    cut = int((tokens.starts < len(before) + len(excerpt)).sum())
    notes = [f"The text has {tokens_of_text.total:,} tokens; the prompt holds its first {count:,}."]
    reading = Reading(name, before + excerpt + after, tokens, notes if count < tokens_of_text.total else [])
    return Prompt(reading, cut if after else len(tokens), tokens_of_text.total, templated)


def _around(tokenizer: Any, question: str, chat: bool) -> tuple[str, str, bool]:
    """What stands before and behind the text, and whether a template put it there."""
    if not (chat and tokenizer.chat_template):
        return "", f"\n\n{question}" if question else "", False
    messages = [{"role": "user", "content": f"{HERE}\n\n{question}" if question else HERE}]
    filled = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    before, _, after = filled.partition(HERE)
    # `tokenize` begins a text as the model knows it.
    return before.removeprefix(tokenizer.bos_token or ""), after, True


def pieces(tokenizer: Any, prompt_ids: np.ndarray, new: list[int]) -> dict[str, list]:
    """The new tokens as a page paints them: `piece start end` of each, places in the new text.

    Tokens that spell one character byte by byte share its place and are shown as their bytes; numbers beyond the
    tokenizer's, which a model with spare rows in its vocabulary may write, as ⟨number⟩.
    """
    tail = [int(token) for token in prompt_ids[-TAIL:]]
    skip = len(tokenizer.decode(tail))
    columns: dict[str, list] = {"piece": [], "start": [], "end": []}
    # Tokens of a character that is not whole yet, and characters that are.
    waiting, done = [], 0
    for index, token in enumerate(new):
        decoded = tokenizer.decode([*tail, *new[: index + 1]])[skip:]
        waiting.append(index)
        bytes_of = partial_bytes(tokenizer, token)
        columns["piece"].append(bytes_of or decoded[done:] or tokenizer.convert_ids_to_tokens(token) or f"⟨{token}⟩")
        complete = bytes_of is None or not decoded.endswith("\ufffd")
        columns["start"].append(done)
        columns["end"].append(len(decoded) if complete else done)
        if complete:
            for place in waiting:
                columns["end"][place] = len(decoded)
            waiting, done = [], len(decoded)
    return columns


@dataclass(frozen=True)
class Written:
    """What one method wrote."""

    tokens: list[int]
    first: float  # seconds to the first token
    steps: list[float]  # seconds of each token after it
    # When the text had been read and its cache compressed.
    kv_bytes: int
    # Most bytes that the cache held until then.
    peak_bytes: int
    # Mean per layer and key-value head, then.
    keys: float
    final_bytes: int  # of the cache at the end
    kept_keys: np.ndarray  # bool [L, G, cut]: which keys of the text stayed
    # Over all of the answer: bytes held at the most, and those of keys and values that tokens after the first read.
    most_bytes: int
    read_bytes: int
    # int16 [L, G, T]: the first step that does not find a key, HELD where there is none, of an answer cut to a budget.
    left: np.ndarray | None
    # What was not read was hidden by a mask, so that the times say nothing about reading less.
    masked: bool
    kernels: str


@torch.no_grad()
def write(
    lm: Model, method: Method, ids: np.ndarray, cut: int, new_tokens: int, tell: Callable[[list[int]], None]
) -> Written:
    """The `new_tokens` most likely tokens after a prompt `ids` [T], fewer where the text ends.

    The first `cut` tokens are read at once, after which a method that drops keys does so; the others follow. `tell` is
    called with the tokens so far, while the method is on the model; its time is not counted.
    """
    prompt = torch.as_tensor(ids).long()[None].to(lm.device)
    stops = ends(lm)
    with apply(lm, method, kernels=True):
        next_token(lm.lm, prompt[:, : min(cut, WARM)], method.cache(lm.lm) or GrowingCache(lm.lm.config))
        began, cache = now(), method.cache(lm.lm) or GrowingCache(lm.lm.config)
        token = next_token(lm.lm, prompt[:, :cut], cache)
        kv_bytes, peak_bytes, keys = cache_bytes(cache)[0], most_bytes(cache), keys_held(cache)
        kept = kept_keys(lm, method, cut)
        masked = any(isinstance(layer, CompactLayer) and not layer.is_compact for layer in cache.layers)
        if cut < len(ids):
            token = next_token(lm.lm, prompt[:, cut:], cache)
        first, steps, tokens = now() - began, [], [int(token)]
        tell(tokens)
        held, reads = cache_bytes(cache)
        most, read_bytes = max(peak_bytes, held + _remembered(method)), 0
        while len(tokens) < new_tokens and tokens[-1] not in stops:
            read_bytes += reads
            began = now()
            token = next_token(lm.lm, token, cache)
            steps.append(now() - began)
            tokens.append(int(token))
            before = reads
            held, reads = cache_bytes(cache)
            # while a layer is cut its copy stands beside it
            compacted = (layer for layer in cache.layers if isinstance(layer, CompactLayer))
            peaks = [layer.peak - layer.held.nbytes for layer in compacted if layer.held is not None]
            copies = max(peaks, default=0) if reads < before else 0
            most = max(most, held + _remembered(method) + copies)
            tell(tokens)
        entries = ran(lm)
    left = None
    if isinstance(method, WhileDecoding) and method.budget:
        left = np.full((lm.num_layers, lm.num_kv_heads, len(ids) + len(tokens)), HELD, np.int16)
        for layer, of_layer in method.left_.items():
            places = of_layer[0].cpu().numpy()  # [G, T]
            # Step 0 is that of the prompt's last token.
            later = np.maximum(places - len(ids) + 1, 0).astype(np.int16)
            left[layer, :, : places.shape[1]] = np.where(places == NEVER, HELD, later)
    return Written(
        tokens=tokens,
        first=first,
        steps=steps,
        kv_bytes=kv_bytes,
        peak_bytes=peak_bytes,
        keys=keys,
        final_bytes=cache_bytes(cache)[0] + _remembered(method),
        kept_keys=kept,
        most_bytes=most,
        read_bytes=read_bytes,
        left=left,
        masked=masked or any(entry.kernel == MASKED for entry in entries if entry.phase != "continued"),
        kernels="; ".join(dict.fromkeys(f"{entry.phase}: {entry.kernel}" for entry in entries)),
    )


def _remembered(method: Method) -> int:
    """Bytes of the last queries, which a method that cuts to a budget remembers beside the cache."""
    return method.remembered_bytes if isinstance(method, WhileDecoding) else 0


def ends(lm: Model) -> set[int]:
    """The tokens that end a text."""
    tokens = lm.lm.generation_config.eos_token_id
    return {tokens} if isinstance(tokens, int) else set(tokens or ())


def kept_keys(lm: Model, method: Method, cut: int) -> np.ndarray:
    """bool [L, G, cut]: the keys that a method left of a prompt it has just read."""
    in_cache = torch.ones(lm.num_layers, lm.num_kv_heads, cut, dtype=torch.bool)
    for layer, mask in (method.kept_ if isinstance(method, Evicting) else {}).items():
        in_cache[layer] = mask[0].cpu()
    return in_cache.numpy()
