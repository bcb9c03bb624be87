"""Weights that mean nothing end in a sentence: at loading where reading them shows it, else in the first pass."""

import copy
import math
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from analysis.__main__ import main
from analysis.errors import BadModel, BadText
from analysis.methods import METHODS
from analysis.metrics.quality import token_losses
from analysis.models import load_model
from analysis.seam.attention import apply
from analysis.seam.sound import LARGEST
from analysis.statistics.inputs import forward
from tests.made.asking import SHORT
from tests.made.tiny_tokenizer import byte_level, save_model

IDS = torch.arange(40, 72)[None]


def changed(folder: Path, change) -> str:
    """A tiny model whose weights were changed, in a folder."""
    lm = LlamaForCausalLM.from_pretrained(save_model(folder))
    with torch.no_grad():
        change(lm)
    lm.save_pretrained(folder)
    return str(folder)


def scaled(factor: float):
    return lambda lm: [weights.mul_(factor) for weights in lm.parameters()]


READ = {
    "every weight NaN": scaled(math.nan),
    "a row of the embedding NaN": lambda lm: lm.model.embed_tokens.weight[260].fill_(math.nan),
    "one infinity": lambda lm: lm.model.layers[1].mlp.down_proj.weight[0, 0].fill_(math.inf),
    "too large to be squared": scaled(1e30),
    "a row too large to be squared": lambda lm: lm.model.embed_tokens.weight[260].fill_(-2 * LARGEST),
}


@pytest.mark.parametrize("case", READ)
def test_weights_that_mean_nothing_are_refused_at_loading(case, tmp_path):
    place = changed(tmp_path, READ[case])
    with pytest.raises(BadModel) as refused:
        load_model(place)
    assert str(refused.value).count(". ") == 0 and str(refused.value).endswith(".")
    with pytest.raises(BadModel):
        load_model(LlamaForCausalLM.from_pretrained(place), tokenizer=byte_level())


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64"])
def test_weights_of_every_type_are_read(kind, tmp_path):
    load_model(str(save_model(tmp_path / "sound")), dtype=kind)
    with pytest.raises(BadModel):
        load_model(changed(tmp_path / "row", READ["a row of the embedding NaN"]), dtype=kind)


PASSES = {
    "a loss": lambda model: token_losses(model, IDS),
    "the layers": lambda model: forward(model, IDS[0].numpy()),
    "a new token": lambda model: model.lm.generate(IDS, max_new_tokens=1),
    "gradients": lambda model: model.lm(IDS),
}


@pytest.mark.parametrize("pass_name", PASSES)
@pytest.mark.parametrize("factor", [1e10, 1e6], ids=["queries overflow", "a gated product overflows"])
def test_an_overflow_ends_the_first_pass_and_every_one_after_it(pass_name, factor, tmp_path):
    """Weights of 1e6 give logits of zero: a norm has divided by infinity."""
    model = load_model(changed(tmp_path, scaled(factor)))
    for _ in range(2):
        with pytest.raises(BadModel), torch.inference_mode(pass_name != "gradients"):
            PASSES[pass_name](model)
    with pytest.raises(BadModel), apply(model, METHODS["streaming_llm"]()):
        token_losses(model, IDS)


def test_a_sound_model_computes_as_before_and_is_measured_once(tmp_path):
    model, stock = load_model(str(save_model(tmp_path))), LlamaForCausalLM.from_pretrained(tmp_path).eval()
    hooks = [module._forward_hooks for module in model.lm.base_model.modules()]
    assert all(hooks)
    with torch.no_grad():
        assert torch.equal(model.lm(IDS).logits, stock(IDS).logits)
    assert sum(map(len, hooks)) == 1, "what stays looks at the end of a pass alone"


def test_what_a_later_pass_computes_is_looked_at_too(tmp_path):
    model = load_model(str(save_model(tmp_path)))
    token_losses(model, IDS)
    free = copy.deepcopy(model.lm)
    for lm in (model.lm, free):
        torch.nn.init.constant_(lm.model.norm.weight, math.nan)
    with pytest.raises(BadModel):
        token_losses(model, IDS)
    assert not model.lm(IDS).logits.isfinite().any(), "a training looks at its own loss"
    with torch.no_grad():
        assert not free(IDS).logits.isfinite().any(), "and so does one of a copy"


def test_padding_may_be_anything(tmp_path):
    model = load_model(str(save_model(tmp_path)))
    token_losses(model, IDS)
    model.lm.model.norm.register_forward_hook(
        lambda module, args, output: output.index_fill(1, torch.tensor([0]), torch.nan)
    )
    real = torch.ones_like(IDS)
    with torch.no_grad():
        with pytest.raises(BadModel):
            model.lm(IDS, attention_mask=real)
        real[:, 0] = 0
        assert model.lm(IDS, attention_mask=real).logits[:, 1:].isfinite().all()


def test_tokens_beyond_the_embedding(tmp_path):
    with pytest.raises(BadModel, match="up to 299 and its embedding 200 rows"):
        load_model(str(save_model(tmp_path, vocab_size=200)))
    tokenizer = copy.deepcopy(byte_level())
    tokenizer.add_tokens(["<image>"], special_tokens=True)
    model = load_model(str(save_model(tmp_path, tokenizer, vocab_size=len(byte_level()))))
    plain, image = (torch.tensor([tokenizer(text).input_ids]) for text in (SHORT[:40], "the cat <image> sat"))
    assert token_losses(model, plain).shape == (1, plain.shape[1] - 1)
    with pytest.raises(BadText, match="token 300"):
        token_losses(model, image)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["start", "statistics", "generate", "evaluate", "ablate", "temperature", "groups"])
@pytest.mark.parametrize("factor", [math.nan, 1e10])
def test_every_command_says_it(verb, factor, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FOCUSCOPE_STATE", str(tmp_path / "state"))
    (tmp_path / "a.txt").write_text(SHORT * 3)
    place = changed(tmp_path / "tiny", scaled(factor))
    assert main([verb, str(tmp_path / "a.txt"), "--model", place]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith(f"{verb}: ") and "tiny" in message and ("NaN" in message or "overflows" in message)
