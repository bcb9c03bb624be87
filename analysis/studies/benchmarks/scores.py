"""What a model says to a benchmark's items under a method: log-probabilities of answers, and generated ones."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ...errors import BadText
from ...methods.base import Method
from ...models import Model
from ...seam.attention import Block, apply
from ...seam.calls import Prompt
from ...seam.vocabulary import next_tokens
from .tasks import Item

# Tokens of a generated answer, at most.
NEW = 256


@dataclass
class DenseQuestion(Method):
    """A method for everything but the question: its tokens, `first` to `last`, read all that is before them, as in the
    set-up where the question is not known when the context is made sparse. It runs on masked blocks."""

    inner: Method = field(default_factory=Method)
    first: int = 0
    last: int = 0

    def _dense(self, rows: torch.Tensor) -> torch.Tensor:
        return ((rows >= self.first) & (rows < self.last))[:, None]

    def check(self, lm: Any) -> None:
        self.inner.check(lm)

    def prefill(self, prompt: Prompt) -> None:
        self.inner.prefill(prompt)

    def token_features(self, layer: int, hidden: torch.Tensor, real: torch.Tensor | None) -> torch.Tensor | None:
        return self.inner.token_features(layer, hidden, real)

    def encode_tokens(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, past: int, module: Any, tables: Any
    ) -> None:
        self.inner.encode_tokens(layer, query, key, past, module, tables)

    def scale_queries(self, layer: int, query: torch.Tensor, of_tokens: torch.Tensor | None) -> torch.Tensor:
        sharper = self.inner.scale_queries(layer, query, of_tokens)
        # A step of generation, behind the question.
        if query.shape[2] == 1:
            return sharper
        rows = torch.arange(query.shape[2], device=query.device)
        return torch.where(self._dense(rows), query, sharper)

    def scores(self, block: Block) -> torch.Tensor:
        return torch.where(self._dense(block.rows), block.scores, self.inner.scores(block))

    def mask(self, block: Block) -> torch.Tensor | None:
        mask = self.inner.mask(block)
        return None if mask is None else mask | self._dense(block.rows)

    def reweight(self, block: Block, probabilities: torch.Tensor) -> torch.Tensor:
        return torch.where(self._dense(block.rows), probabilities, self.inner.reweight(block, probabilities))


@dataclass(frozen=True)
class Coded:
    """An item as tokens: of each answer the whole text and how many of its tokens are the answer's; where the question
    stands, `first` to `last` token."""

    texts: tuple[tuple[int, ...], ...]
    answers: tuple[int, ...]
    first: int
    last: int

    @property
    def longest(self) -> int:
        """Tokens that its longest text takes."""
        return max(map(len, self.texts))


def code(tokenizer: Any, item: Item) -> Coded:
    """Tokens of an item. A space that ends the prompt belongs to the answer, as the harness has it; an answer's tokens
    are those behind the prompt's own in the tokens of both together."""
    texts, answers = [], []
    prompts = item.prompts * (len(item.answers) if len(item.prompts) == 1 else 1)
    for prompt, answer in zip(prompts, item.answers, strict=True):
        stripped = prompt.rstrip()
        answer = prompt[len(stripped) :] + answer
        before, together = (_ids(tokenizer, text) for text in (stripped, stripped + answer))
        if len(together) <= len(before) and item.until is None:
            raise BadText(
                f"The answer {answer.strip()[:40]!r} adds no token to its prompt with this tokenizer, so it has no "
                "log-probability: leave the question out, or choose another task."
            )
        texts.append(tuple(together))
        answers.append(len(together) - len(before))
    prompt = prompts[0]
    first = len(_ids(tokenizer, prompt[: len(prompt) - item.question])) if item.question < len(prompt) else 0
    return Coded(tuple(texts), tuple(answers), first, len(texts[0]) - answers[0])


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids = tokenizer(text, verbose=False).input_ids
    if ids:
        return ids
    begin = next((token for token in (tokenizer.bos_token_id, tokenizer.eos_token_id) if token is not None), 0)
    return [begin]


def answers(lm: Model, method: Method, coded: Coded, dense_question: bool = False) -> list[tuple[float, bool]]:
    """(log-probability in nats, whether it is what greedy decoding would say) of every answer, each in one pass."""
    used = DenseQuestion(method, coded.first, coded.last) if dense_question and not method.dense else method
    results = []
    with torch.no_grad(), apply(lm, used, kernels=not dense_question):
        for ids, count in zip(coded.texts, coded.answers, strict=True):
            row = torch.as_tensor(ids, device=lm.device)[None]
            said, target = next_tokens(lm.lm, row).last(count + 1), row[:, -count:]
            logs = -said.losses(lm.lm, target)
            greedy = torch.cat([logits.argmax(-1) for _, logits in said.chunks(lm.lm)], 1)[:, :-1]
            results.append((float(logs.double().sum()), bool((greedy == target).all())))
    return results


def generated(lm: Model, method: Method, coded: Coded, until: tuple[str, ...], dense_question: bool = False) -> str:
    """What the model says after the prompt, greedily, until one of `until` or its context is full."""
    used = DenseQuestion(method, coded.first, coded.last) if dense_question and not method.dense else method
    prompt = torch.as_tensor(coded.texts[0][: coded.last], device=lm.device)[None]
    room = min(NEW, lm.max_positions - prompt.shape[1])
    stops = {"stop_strings": list(until), "tokenizer": lm.tokenizer} if until else {}
    with torch.no_grad(), apply(lm, used, kernels=not dense_question):
        tokens = lm.lm.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=room,
            do_sample=False,
            pad_token_id=lm.tokenizer.pad_token_id or lm.tokenizer.eos_token_id or 0,
            **stops,
        )
    text = lm.tokenizer.decode(tokens[0, prompt.shape[1] :], skip_special_tokens=True)
    ends = [text.find(word) for word in until if word in text]
    return text[: min(ends)] if ends else text


def width(method: Method) -> int | None:
    """The most tokens at which a method reads all there is, where a setting of it says so: its window with its first
    tokens, or its number of keys."""
    near = getattr(method, "window", None)
    if near is not None:
        return near + sum(getattr(method, name, 0) for name in ("n_sink", "n_global"))
    return next((getattr(method, name) for name in ("k", "budget") if getattr(method, name, None)), None)


def gold(results: list[list[tuple[float, bool]]], items: list[Item]) -> np.ndarray:
    """Log-probability of the right answer of every item, nats [n]."""
    return np.array([logs[item.gold][0] for logs, item in zip(results, items, strict=True)])
