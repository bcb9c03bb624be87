"""How likely a model finds each candidate answer: log-probabilities, and a forced choice between them."""

import copy
from typing import Any

import numpy as np
import torch

from ..methods.base import Method
from ..models import Model
from ..seam.attention import apply
from ..seam.read_on import read_on
from .pieces import Item, Pieces

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
    lm, device = model.lm, model.device
    candidates = torch.as_tensor(item.candidates, device=device)
    with apply(model, method, kernels=True):
        cache: Any = None
        for part in filter(len, turned(item, turn, other or item)):
            tokens = torch.as_tensor(part, device=device)[None]
            logits, cache = read_on(lm, tokens, cache, logits_to_keep=1)
        logs = torch.log_softmax(logits[0, -1].float(), -1)[candidates[:, 0]].double()
        # Of a method that follows the text itself: eviction.
        cache_state = getattr(method, "held_", None)
        for place, answer in enumerate(candidates if candidates.shape[1] > 1 else []):
            if cache_state is not None:
                setattr(method, "held_", copy.deepcopy(cache_state))  # noqa: B010
            after, _ = read_on(lm, answer[None, :-1], copy.deepcopy(cache))
            logs[place] += torch.log_softmax(after[0].float(), -1).gather(1, answer[1:, None]).double().sum()
    return logs.cpu().numpy()


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
    return Item(ids, item.candidates, item.right, None, len(ids) - len(question))
