"""A registered attention function and mask for transformers, and `apply(model, method)`.

Inside `apply` every attention layer of a stock model asks the method what to read. Causality, padding and sliding
windows are applied here, never by a method. Nothing of size T x T is made unless the model itself asks for a mask:
queries are taken in blocks, and a method that reads everything runs the fastest dense kernel. With `kernels=True` a
method that has a kernel of its own computes with it wherever that is exact, and `ran` says where it was not, and why.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask, sdpa_mask

from ..errors import AnalysisError, BadModel
from ..kernels import Plan
from ..kernels.dense import dense, takes_sinks
from ..kernels.scoring import Scoring
from .arguments import Entering
from .cache import CompactLayer, GroupedLayer, InOrder
from .cache_checks import check_keys, guarded, layer_of
from .calls import MASKED, Attended, Block, Call, Ran
from .entries import Entries, apart, compresses
from .hooks import Hooks
from .layers import attention_modules, gate_projection, stock_attention
from .read_on import places_of_states
from .reference import Reading, Watch, by_blocks
from .token_memory import TokenMemory
from .visible import Visible, visible_to

__all__ = ["Block", "apply", "ran"]

# The names transformers treats specially (sdpa, flash, eager, flex) must not occur in them. The second is for models
# that compress: they write into their masks which entries may be read, in numbers, and would invert a bool one.
NAME, IN_NUMBERS = "focuscope", "focuscope_in_numbers"
# What a model's own indexer chose, as it hands it to its attention.
CHOSEN = ("indices", "block_indices")


@dataclass
class LayerState(Reading):
    """What an attention module holds while a method is applied."""

    kernels: bool = False
    indexer: bool = True
    # Whether the model takes several tokens for the beginning of a text, whatever its cache holds.
    stepwise: bool = False
    # Whether compressed entries follow its tokens, and how many keys of tokens this call has.
    compresses: bool = False
    keys: int | None = None
    cache_layer: CacheLayerMixin | None = None
    # Whether it has attended since it was entered.
    attended: bool = False
    calls: int = 0
    ran: dict[tuple[str, str], Ran] = field(default_factory=dict)
    # Whether an output gate follows, and what it is about to act on.
    gated: bool = False
    out: Tensor | None = None

    @property
    def stored(self) -> GroupedLayer | CompactLayer | None:
        """The layer's KV cache where its order is the method's."""
        return self.cache_layer if isinstance(self.cache_layer, GroupedLayer | CompactLayer) else None

    def note(self, queries: int, kernel: str, why: str, plan: Plan | None = None) -> None:
        """Count a call, by its phase and kernel."""
        if self.past == 0:
            phase = "prefill"
        else:
            phase = "decode" if queries == 1 else "continued"
        entry = self.ran.setdefault((phase, kernel), Ran(self.layer, phase, kernel, why))
        entry.why, entry.plan, entry.calls = why, plan, entry.calls + 1


@contextmanager
def apply(
    model: Any, method: Hooks, watch: Watch | None = None, kernels: bool = False, indexer: bool = True
) -> Iterator[Any]:
    """Run `method` inside the model's own forward and `generate`; on exit the model is as it came.

    `model`: a `Model` or a transformers model. `watch(block, probabilities [B, H, n, Tk])` sees every block of
    attention probabilities as it is computed (statistics are streamed through it). `kernels`: compute with the
    method's own kernel and KV cache where it has them, else and where they are not exact as without (see `ran`).
    `indexer`: methods choose among the keys that an indexer of the model's own left; without, among all past ones, in
    its place.
    Raises AnalysisError when a method is already applied, and BadModel when a layer did not pass through here.
    """
    lm = getattr(model, "lm", model)
    modules = attention_modules(lm)
    if any(hasattr(module, "_focuscope") for module in modules):
        raise AnalysisError("A method is already applied to this model: leave its `with` block first.")
    method.check(lm)
    stock = stock_attention(lm)
    memory, stepwise = TokenMemory(), bool(places_of_states(lm))
    handles = []
    try:
        for layer, module in enumerate(modules):
            place = module.layer_idx
            about: dict[str, Any] = {"cache_index": place, "compresses": compresses(module)}
            about |= {"kernels": kernels, "indexer": indexer, "stepwise": stepwise}
            module._focuscope = LayerState(method, layer, memory, watch, **about)
            handles.append(module.register_forward_pre_hook(_before_layer, with_kwargs=True))
            if projection := gate_projection(module):
                module._focuscope.gated = True
                handles.append(projection.register_forward_pre_hook(partial(_after_gate, module._focuscope)))
        if hasattr(method, "before_prompt"):
            handles.append(lm.base_model.register_forward_pre_hook(partial(_before_prompt, lm), with_kwargs=True))
        lm.set_attn_implementation(IN_NUMBERS if any(map(compresses, modules)) else NAME)
        lm.generate = guarded(lm, lm.generate, lambda: method.cache(lm) if kernels else None)
        yield model
        calls = [module._focuscope.calls for module in modules[method.first_layer :]]
        if any(calls) and not all(calls):
            raise BadModel(f"Only {sum(map(bool, calls))} of {len(calls)} layers of the model passed through the seam.")
    finally:
        lm.__dict__.pop("generate", None)
        lm.set_attn_implementation(stock)
        for handle in handles:
            handle.remove()
        for module in modules:
            module.__dict__.pop("_focuscope", None)


def ran(model: Any) -> list[Ran]:
    """Which kernels ran so far inside `apply`, by layer; empty outside."""
    modules = attention_modules(getattr(model, "lm", model))
    return [entry for module in modules if hasattr(module, "_focuscope") for entry in module._focuscope.ran.values()]


@contextmanager
def instead(lm: Any, method: Hooks) -> Iterator[None]:
    """Inside, `method` reads in the place of the one that is applied to a transformers model: for a pass of its own,
    which nobody watches and `ran` does not count."""
    states = [module._focuscope for module in attention_modules(lm)]
    applied = [(state.method, state.watch, state.ran) for state in states]
    try:
        for state in states:
            state.method, state.watch, state.ran = method, None, {}
        yield
    finally:
        for state, before in zip(states, applied, strict=True):
            state.method, state.watch, state.ran = before


def _before_prompt(lm: Any, model: Any, args: tuple, kwargs: dict) -> None:
    """Before a model reads: show the method the tokens of a prompt, where nothing was read before them."""
    ids = kwargs.get("input_ids", args[0] if args else None)
    past = next((value for value in kwargs.values() if isinstance(value, Cache)), None)
    if past is not None and past.get_seq_length() > 0:
        return
    mask = kwargs.get("attention_mask")
    padded = isinstance(mask, Tensor) and mask.dim() == 2
    # what the method reads the text by meanwhile has none
    see = getattr(attention_modules(lm)[0]._focuscope.method, "before_prompt", None)
    if see is not None:
        see(lm, ids, mask if padded else None)


def _before_layer(module: Any, args: tuple, kwargs: dict) -> None:
    """Before an attention layer: note its KV cache, and show the method the hidden states that enter it, [B, T, d]."""
    state: LayerState = module._focuscope
    # of rotary tables of several kinds, those of the layer
    kind = getattr(module, "rope_layer_type", None)
    kwargs = {name: x.get(kind, x) if isinstance(x, dict) else x for name, x in kwargs.items()}
    entering = Entering.of(args, kwargs)
    if state.compresses and entering.mask is not None:
        state.keys = entering.mask.shape[-1]
    state.cache_layer, state.attended = layer_of(entering.cache, state.cache_index), False
    features = state.enter(entering)
    if state.stepwise and state.past and entering.hidden.shape[1] > 1:
        raise BadModel(
            "This model keeps a state in its modules and would read several tokens as the beginning of a text: read on "
            "token by token (analysis.seam.read_on)."
        )
    if isinstance(state.stored, GroupedLayer):
        state.stored.coming = features


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The registered function. query [B, H, Tq, D], key [B, G, Tk, D] and value [B, G, Tk, Dv] -> (out [B, Tq, H, Dv],
    None)."""
    state: LayerState | None = getattr(module, "_focuscope", None)
    # attention of another kind: of an image, or over the layers of one token
    if state is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **kwargs)
    if state.attended:
        raise BadModel(
            "A layer of this model attends twice and puts both together, such as one softmax less another, so no share "
            "of attention is what a head reads: choose another model."
        )
    if not state.indexer:
        kwargs = {name: value for name, value in kwargs.items() if name not in CHOSEN}
    state.visible = visible = visible_to(module, query, key, attention_mask, kwargs)
    state.attended, state.calls = True, state.calls + 1
    length = query.shape[2]
    whole = key, value, visible.mask
    if state.compresses:
        assert visible.mask is not None and state.keys is not None, "its mask is one of numbers"
        key, of_entries = apart(key, 2, state.keys)
        value, values = apart(value, 2, state.keys)
        mask, which = apart(visible.mask, -1, state.keys)
        state.visible = visible = replace(visible, mask=mask, entries=Entries(of_entries, values, which))
    check_keys(state.cache_layer, state.past + length, key.shape[2])
    query, scoring = state.begin(module, query, key, value, scaling, softcap)
    plain = state.watch is None and softcap is None and visible.bias is None
    plain = plain and (visible.sinks is None or takes_sinks(query, value, visible.sinks, dropout))
    if state.method.dense and plain:
        state.note(length, "torch dense", "Everything is read.")
        causal = visible.mask is None and length > 1
        out = dense(query, *whole, causal, scoring.factor, dropout, visible.sinks)
    else:
        by_kernel = _by_kernel(state, query, key, value, visible, dropout, scoring)
        if by_kernel is not None:
            out = by_kernel
        else:
            if isinstance(state.stored, GroupedLayer) and state.stored.is_sorted:
                key, value = state.stored.restore()
            out = by_blocks(state, query, key, value, visible, dropout if module.training else 0.0, scoring)
    # who gives a text's cache up gets its memory back, not the next text
    state.cache_layer = state.visible = None
    out = out.transpose(1, 2).contiguous()
    if state.gated:
        state.out = out
        return out, None
    return state.method.finish_output(state.layer, out), None


def _after_gate(state: LayerState, projection: Any, args: tuple) -> tuple[Tensor]:
    """What enters the output projection of a layer with an output gate, [B, Tq, H * Dv]: the method sees it."""
    (gated,), out = args, state.out
    assert out is not None, "the layer attended before"
    state.out = None
    by_head = gated.view(out.shape)
    state.method.see_gate(state.layer, out, by_head)
    return (state.method.finish_output(state.layer, by_head).reshape(gated.shape),)


def _by_kernel(
    state: LayerState, query: Tensor, key: Tensor, value: Tensor, visible: Visible, dropout: float, scoring: Scoring
) -> Tensor | None:
    """What the method's own kernel reads, [B, H, Tq, D]; None where the masked reference has to run. Notes why."""
    compacted = isinstance(state.stored, CompactLayer) and state.stored.is_compact
    why = None
    # what was dropped cannot be masked: a compacted text has no padding, and only its kernel runs
    if not compacted:
        # MLA stores latents and makes keys of all of them anew in every step
        latent = False
        if state.stored is not None and isinstance(state.stored.held, InOrder):
            stored = state.stored.held.rows[0]
            latent = (stored.shape[1], stored.shape[-1]) != (key.shape[1], key.shape[-1])
        masked, sinks = visible.mask is not None, visible.sinks is not None and not state.method.takes_sinks
        reasons = {
            "The masked reference was asked for.": not state.kernels,
            "Somebody watches the probabilities.": state.watch is not None,
            "The kernels take no mask, and padding, a sliding window or packed texts need one.": masked,
            "The kernels take no soft cap of the scores.": scoring.softcap is not None,
            "The kernels take no compressed entries beside the tokens.": visible.entries is not None,
            "No kernel of this method takes a learned sink of a head.": sinks,
            "The kernels take no numbers that a model adds to its scores.": visible.bias is not None,
            "The KV cache holds latents, of which keys and values are made anew.": latent,
            "The kernels take values of the size of the keys alone.": value.shape[-1] != query.shape[-1],
            "The kernels take no dropout.": dropout > 0,
        }
        why = next((reason for reason, holds in reasons.items() if holds), None)
    if why is None:
        tokens = state.past + query.shape[2]
        # a static cache is longer than its text
        states = query, key[:, :, :tokens], value[:, :, :tokens]
        of_tokens = state.of_tokens(query.shape[2])
        call = Call(state.layer, *states, scoring.factor, state.past, of_tokens, state.stored, visible.sinks)
        done = state.method.attend(call) or Attended(None, MASKED, "This method has no kernel of its own.")
    else:
        done = Attended(None, MASKED, why)
    state.note(query.shape[2], done.kernel, done.why, done.plan)
    assert done.out is not None or not compacted, "what was dropped from the KV cache cannot be masked"
    return done.out


AttentionInterface.register(NAME, _attention)
AttentionInterface.register(IN_NUMBERS, _attention)
# None then means causal, aligned to the last key.
AttentionMaskInterface.register(NAME, sdpa_mask)
AttentionMaskInterface.register(IN_NUMBERS, eager_mask)
