"""A model without the norm of queries and keys, begun from one that has it.

In the first bundled model, which had the norm, no head looked back for an earlier copy. The norm alone does not explain
that: of tiny models all learn to, with it and without (`circuit.py`). Beginning without it, every head starts anew. A
head's queries differ little in length, and so do its keys (10 to 20% of the mean on the bundled model): their usual
length goes into the projections, and what the model has learned of the language stays. It costs 0.13 bits per byte at
first.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

KEPT = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
KEPT += ("num_key_value_heads", "head_dim", "max_position_embeddings", "rope_parameters", "rms_norm_eps")
KEPT += ("tie_word_embeddings", "bos_token_id", "eos_token_id")


@torch.no_grad()
def without_norms(model: PreTrainedModel, ids: torch.Tensor) -> LlamaForCausalLM:
    """A Llama whose projections hold the gains of a Qwen3's query and key norms, over the mean length that queries and
    keys have on `ids` [B, T]; every other weight as it is."""
    lengths = {}
    with noted(model, lengths):
        model(input_ids=ids, use_cache=False)
    plain = LlamaForCausalLM(LlamaConfig(**{name: getattr(model.config, name) for name in KEPT}))
    state = model.state_dict()
    for name, inverse in lengths.items():
        gain = state.pop(name.replace("_proj", "_norm"))
        state[name] = state[name] * (inverse[:, None] * gain).flatten()[:, None]
    plain.load_state_dict(state)
    return plain


@contextmanager
def noted(model: PreTrainedModel, lengths: dict[str, torch.Tensor]) -> Iterator[None]:
    """Inside, the last pass leaves the mean of 1 / root mean square of each head's queries and keys, [heads], by the
    name of the projection's weight."""

    def hook(name: str, norm: torch.nn.Module) -> Callable:
        def note(module: torch.nn.Module, inputs: tuple, out: torch.Tensor) -> None:
            rows = out.unflatten(-1, (-1, norm.weight.numel()))
            lengths[name] = (rows.pow(2).mean(-1) + norm.variance_epsilon).rsqrt().mean((0, 1))

        return note

    handles = []
    for layer in range(model.config.num_hidden_layers):
        place = f"model.layers.{layer}.self_attn"
        attention = model.get_submodule(place)
        for kind in "qk":
            weight, norm = f"{place}.{kind}_proj.weight", getattr(attention, f"{kind}_norm")
            handles.append(getattr(attention, f"{kind}_proj").register_forward_hook(hook(weight, norm)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
