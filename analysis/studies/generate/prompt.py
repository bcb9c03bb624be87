"""The prompt that is generated from: a text, a question behind it, and what a chat template puts around both."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...corpus import partial_bytes, tokenize
from ...errors import BadSetting, TooLarge
from ...models import Model
from ..context import Context, Reading

HERE = "\ue000"  # stands for the text while a chat template is filled in; no text has it
TAIL = 8  # tokens before the new ones: some tokenizers write the first token of a text without its space


@dataclass(frozen=True)
class Prompt:
    """What the model is given."""

    reading: Reading  # the whole as a text with its tokens
    cut: int  # tokens of the text and of what a template puts before it
    total: int  # tokens that the text has
    templated: bool

    @property
    def ids(self) -> np.ndarray:
        """Its tokens."""
        return self.reading.tokens.ids


def prompt(
    context: Context, model: Model, key: str, question: str, length: int | None, room: int, chat: bool
) -> Prompt:
    """The first `length` tokens of a stored text, as many as fit unless given, with a `question` behind them.

    `room`: the most tokens that the whole may have. `chat`: inside the tokenizer's own template, where it has one.
    Errors: BadSetting, BadText, TooLarge.
    """
    name, text = context.text(key)
    before, after, templated = _around(model.tokenizer, question, chat)
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
    return before.removeprefix(tokenizer.bos_token or ""), after, True  # `tokenize` begins a text as the model knows it


def pieces(tokenizer: Any, prompt_ids: np.ndarray, new: list[int]) -> dict[str, list]:
    """The new tokens as a page paints them: `piece start end` of each, places in the new text.

    Tokens that spell one character byte by byte share its place and are shown as their bytes; numbers beyond the
    tokenizer's, which a model with spare rows in its vocabulary may write, as ⟨number⟩.
    """
    tail = [int(token) for token in prompt_ids[-TAIL:]]
    skip = len(tokenizer.decode(tail))
    columns: dict[str, list] = {"piece": [], "start": [], "end": []}
    waiting, done = [], 0  # tokens of a character that is not whole yet, and characters that are
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
