"""How likely a model finds each candidate answer, a forced choice between them, and the answer that it writes."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..methods.base import Method
from ..models import Model
from ..seam.attention import apply
from ..seam.read_on import read_on
from .pieces import NOTHING, Item, Pieces
from .written import LINE_END

# Tokens of text before the question alone.
PLAIN = 128
UNKNOWN, KNOWN, SECOND = "question unknown", "question known", "second question"
# When a method that decides at the end of a prompt sees the question.
TURNS = (UNKNOWN, KNOWN, SECOND)
# Nats; answers nearer than this to the likeliest share its place.
TIE = 1e-6


def turned(item: Item, turn: str, earlier: Item) -> tuple[np.ndarray, np.ndarray]:
    """(what a method reads before it decides which keys stay, what comes after): the text, and the question behind it;
    both, and nothing; or the text with the `earlier` question and its answer, and then the question."""
    text, question = item.ids[: item.question], item.ids[item.question :]
    if turn == KNOWN:
        return item.ids, question[:0]
    if turn == SECOND:
        text = np.concatenate([text, earlier.ids[earlier.question :], earlier.answer])
    return text, question


@torch.no_grad()
def answer_logs(model: Model, method: Method, item: Item, turn: str = KNOWN, other: Item | None = None) -> np.ndarray:
    """Log-probability of every candidate after the prompt under a method, nats summed over its tokens, float64 [n].

    The prompt is read as `turned` cuts it, once; each candidate goes on from a copy of its KV cache and of what the
    method holds.
    """
    candidates = torch.as_tensor(item.candidates, device=model.device)
    lm = model.lm
    with apply(model, method, kernels=True):
        logits, cache = _read(model, item, turn, other)
        logs = torch.log_softmax(logits[0, -1].float(), -1)[candidates[:, 0]].double()
        # Of a method that follows the text itself: eviction.
        cache_state = getattr(method, "held_", None)
        for place, answer in enumerate(candidates if candidates.shape[1] > 1 else []):
            answer = answer[answer != NOTHING]
            if len(answer) == 1:
                continue
            if cache_state is not None:
                setattr(method, "held_", copy.deepcopy(cache_state))  # noqa: B010
            after, _ = read_on(lm, answer[None, :-1], copy.deepcopy(cache))
            logs[place] += torch.log_softmax(after[0].float(), -1).gather(1, answer[1:, None]).double().sum()
    return logs.cpu().numpy()


@torch.no_grad()
def answer_written(
    model: Model, method: Method, item: Item, tokens: int, turn: str = KNOWN, other: Item | None = None
) -> np.ndarray:
    """What a method writes after the prompt, int64 [n]: the likeliest token each time, until one ends a line or there
    are `tokens`. The prompt is read as in `answer_logs`."""
    ids: list[int] = []
    with apply(model, method, kernels=True):
        logits, cache = _read(model, item, turn, other)
        while len(ids) < tokens:
            ids.append(int(logits[0, -1].argmax()))
            if len(ids) == tokens or LINE_END in model.tokenizer.decode(ids[-1:]):
                break
            token = torch.as_tensor([ids[-1:]], device=model.device)
            logits, cache = read_on(model.lm, token, cache, logits_to_keep=1)
    return np.array(ids, dtype=np.int64)


def _read(model: Model, item: Item, turn: str, other: Item | None) -> tuple[torch.Tensor, Any]:
    """(logits behind the prompt, read as `turned` cuts it; its KV cache)."""
    logits, cache = torch.empty(0), None
    for part in filter(len, turned(item, turn, other or item)):
        tokens = torch.as_tensor(part, device=model.device)[None]
        logits, cache = read_on(model.lm, tokens, cache, logits_to_keep=1)
    return logits, cache


def chosen(logs: np.ndarray, right: int) -> float:
    """1 where the true answer is the likeliest of log-probabilities [n], 0 where it is not; answers that tie for the
    first place share it, so a model that finds all alike scores chance."""
    best = logs >= logs.max() - TIE
    return float(best[right] / best.sum())


def margin(logs: np.ndarray, right: int) -> float:
    """Log-probability of the true answer minus that of the likeliest other one, nats; above 0 it is chosen."""
    return float(logs[right] - np.delete(logs, right).max())


def control(pieces: Pieces, item: Item, random: np.random.Generator) -> Item:
    """The same question after at most 128 tokens of the text that hold no answer: what each candidate scores by itself,
    because some are likelier than others wherever they stand."""
    question = item.ids[item.question :]
    hay = pieces.hay(min(PLAIN, item.question - len(pieces.begin)), random)
    ids = np.concatenate([pieces.begin, hay, question])
    return replace(item, ids=ids, gold=None, question=len(ids) - len(question))
