"""A model without the norm of queries and keys, from one that has it."""

import torch

from analysis.training.pretrain import Recipe, build_model
from lab.far.unnormed import without_norms

SMALL = Recipe(layers=2, width=32, heads=4, kv_heads=2, intermediate=48, context=32, tokens_per_step=64)


def normed():
    """A Qwen3 whose gains differ, whose first layer attends and whose outputs are not nought."""
    model = build_model(SMALL, 64).eval()
    torch.manual_seed(1)
    for name, weight in model.named_parameters():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            torch.nn.init.uniform_(weight, 0.5, 3.0)
        elif name.endswith("proj.weight"):
            torch.nn.init.normal_(weight, std=0.2)
    return model


@torch.no_grad()
def test_where_lengths_do_not_differ_it_computes_the_same():
    model, ids = normed(), torch.full((2, 12), 7)  # one token again and again: each layer sees one row of numbers
    plain = without_norms(model, ids)
    assert not any("norm" in name and "self_attn" in name for name, _ in plain.named_parameters())
    assert (plain(ids).logits - model(ids).logits).abs().max() < 1e-4


@torch.no_grad()
def test_queries_and_keys_keep_their_mean_length_and_all_else_stays():
    model, ids = normed(), torch.randint(64, (4, 24), generator=torch.Generator().manual_seed(0))
    plain = without_norms(model, ids)
    x = model.model.layers[0].input_layernorm(model.model.embed_tokens(ids))
    for kind in "qk":
        old, new = (one.model.layers[0].self_attn for one in (model, plain))
        was = getattr(old, f"{kind}_norm")(getattr(old, f"{kind}_proj")(x).unflatten(-1, (-1, 8)))
        now = getattr(new, f"{kind}_proj")(x).unflatten(-1, (-1, 8))
        ratio = (now / was).mean(-1)  # one factor for each token and head
        assert ((now / was).std(-1) < 1e-3).all() and ratio.std() > 0.01
        inverse = getattr(old, f"{kind}_proj")(x).unflatten(-1, (-1, 8)).pow(2).mean(-1).rsqrt()
        assert torch.allclose(ratio * inverse, inverse.mean((0, 1)).expand_as(ratio), rtol=1e-3)
    for name, weight in plain.named_parameters():
        if not name.endswith(("q_proj.weight", "k_proj.weight")):
            assert torch.equal(weight, model.get_parameter(name)), name
