"""KVzip+ against its definition in loops, in float64; KVzap's line against least squares."""

import numpy as np
import pytest
import torch

from analysis.errors import BadSetting, NotFitted
from analysis.methods import METHODS
from analysis.methods.kvzip import PENALTY, _Moments, ridge
from analysis.models import load_model
from analysis.seam.attention import apply
from analysis.seam.layers import attention_modules
from analysis.statistics import attention_inputs, forward
from tests.made.passes import logits, seen
from tests.made.tiny import LAYERS, tiny, token_ids

PROJECTION = {"gpt2": "c_proj", "gpt_neox": "dense"}


def defined(lm, family, ids, begin, end):
    """[L][G, n]: what any token of ids[begin:end], once more behind the text, gives a key of them, by loops."""
    twice = torch.cat([ids, ids[:, begin:end]], 1)
    prompts, entering = seen(lm, twice).prompts, attention_inputs(load_model(lm), [twice[0].numpy()])
    rows, length = [], ids.shape[1]
    for layer, module in enumerate(attention_modules(lm)):
        query, key, value = (x[0].double() for x in (prompts[layer].query, prompts[layer].key, prompts[layer].value))
        weight = getattr(module, PROJECTION.get(family, "o_proj")).weight.detach().double()
        weight = weight if family == "gpt2" else weight.T  # [H D, d]
        (heads, _, size), group = query.shape, query.shape[0] // key.shape[0]
        largest = torch.zeros(len(key), end - begin, dtype=torch.float64)
        for h in range(heads):
            out = weight[h * size : (h + 1) * size]
            added = (value[h // group, begin:end] @ out).norm(dim=-1)
            for row in range(length, twice.shape[1]):
                stand = [*range(min(4, begin)), *range(begin, end), *range(length, row + 1)]
                scores = key[h // group, stand] @ query[h, row] * prompts[layer].scoring.factor
                weights = scores.softmax(-1)[min(4, begin) : min(4, begin) + end - begin]
                scored = weights * added / entering[layer][row].double().norm()
                largest[h // group] = torch.maximum(largest[h // group], scored)
        rows.append(largest)
    return rows


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox", "qwen3"])
def test_scores_are_those_of_the_definition(family):
    lm, ids = tiny(family), token_ids(1, 30)
    method = METHODS["kvzip_plus"](ratio=0.6, chunk=20)
    logits(lm, ids, method)
    for layer in range(LAYERS):
        wanted = torch.cat([defined(lm, family, ids, *part)[layer] for part in ((0, 20), (20, 30))], 1)
        assert torch.allclose(method.found_[0][layer].double(), wanted, rtol=1e-3)
        stays = method.kept_[layer][0]
        assert stays.sum(-1).tolist() == [12] * len(stays) and stays[:, :4].all()
        for scores, stays_of in zip(wanted[:, 4:], stays[:, 4:], strict=True):
            assert scores[stays_of].min() >= scores[~stays_of].max() * (1 - 1e-3)


def test_a_token_that_enters_as_zeros_gives_no_key_a_score_without_end():
    """The padding token of a vocabulary is embedded as zeros."""
    lm, ids = tiny("llama"), token_ids(1, 30)
    ids[0, 10] = lm.config.pad_token_id
    assert not lm.get_input_embeddings()(ids)[0, 10].any()
    method = METHODS["kvzip_plus"](ratio=0.6)
    logits(lm, ids, method)
    assert all(bool(scores.isfinite().all()) for scores in method.found_[0].values())


def test_a_prompt_that_cannot_be_repeated_is_refused_and_the_model_is_left_as_it_was():
    lm = tiny("llama")
    with pytest.raises(BadSetting, match="give at most 496"), apply(lm, METHODS["kvzip_plus"]()):
        lm(token_ids(1, 500))
    with pytest.raises(BadSetting, match="came as embeddings"), apply(lm, METHODS["kvzip_plus"]()):
        lm(inputs_embeds=torch.zeros(1, 8, 32))
    assert not lm.base_model._forward_pre_hooks
    with pytest.raises(NotFitted, match="fit-method kvzap"), apply(lm, METHODS["kvzap"]()):
        pass


def test_a_line_is_ridge_regression_also_through_two_points():
    lm, windows = tiny("llama"), token_ids(3, 40)
    model = load_model(lm)
    fitted = METHODS["kvzap"]().fit(model, windows).fitted
    entering = attention_inputs(model, list(windows.numpy()))
    moments = _Moments()
    logged = []
    for ids in windows:
        with apply(model, moments):
            forward(model, ids)
        logged.append([moments.found_[0][layer].double().log().T for layer in range(LAYERS)])
    for layer in range(LAYERS):
        x, y = entering[layer].double().numpy(), torch.cat([rows[layer] for rows in logged]).numpy()
        centred = x - x.mean(0)
        penalty = len(x) * PENALTY * centred.var(0).mean()
        rows = np.concatenate([centred, np.sqrt(penalty) * np.eye(x.shape[1])])
        wanted = np.linalg.lstsq(rows, np.concatenate([y - y.mean(0), np.zeros((x.shape[1], y.shape[1]))]))[0].T
        assert np.allclose(fitted["weight"][layer].numpy(), wanted, rtol=1e-2, atol=1e-3)
        guessed = x @ fitted["weight"][layer].double().numpy().T + fitted["bias"][layer].double().numpy()
        assert np.allclose(guessed.mean(0), y.mean(0), atol=1e-3)
    method = METHODS["kvzap"].build(fitted, ratio=0.7, window=5)
    logits(lm, windows[:1], method)
    assert all(stays[..., -5:].all() and (stays.sum(-1) == 12).all() for stays in method.kept_.values())
    # y = 3 x + 1 at x = 0 and 2: variance 1, so the slope is 3 / (1 + penalty), and the mean stays on the line.
    x, y = torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0], [7.0]])
    weight, bias = ridge(torch.tensor(2.0), x.sum(0), y.sum(0), x.T @ x, x.T @ y)
    assert weight.item() == pytest.approx(3 / (1 + PENALTY)) and (weight + bias).item() == pytest.approx(4.0)
