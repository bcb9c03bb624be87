"""From a transformers config.json to a Shape, or one sentence why not. The file may come from anybody.

Keys and defaults are those of transformers' configuration classes; what a file leaves open is filled as its family
does and said in the notes. Nothing is guessed where a wrong guess would change the answer: then it is refused.
"""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

from ..errors import BadModel
from .blocks import blocks_of
from .families import FAMILIES, GATED, NO_ATTENTION, NO_DECODER, TEXT_PARTS, UNCOUNTED
from .formats import BYTES, formats_of
from .keys import Keys
from .kinds import CSA, HCA, INDEXED, kinds_of
from .mixers import head_sizes, mixers_of
from .shape import Shape

MAX_BYTES = 1_000_000
# Well-known models, as their public config.json files state them: what costs need, nothing else.
KNOWN: dict[str, dict] = json.loads(Path(__file__).with_name("known.json").read_text(encoding="utf-8"))
NAMES = {  # ours -> the keys it goes by
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "width": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "vocabulary": ("vocab_size",),
}
MOST = {"layers": 1000, "width": 1_000_000, "heads": 10_000, "vocabulary": 100_000_000}
STATES = ("linear", "Mamba", "convolution")
FURTHER = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
CAUSAL = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")


class Uncounted(BadModel):
    """A model whose layers cannot be counted from its config.json here."""


def read_config(text: str, name: str = "The config") -> dict:
    """The object that a config.json holds. BadModel for what is no JSON object, or larger than 1 MB."""
    if len(text) > MAX_BYTES:
        raise BadModel(
            f"{name} is larger than {MAX_BYTES / 1e6:.0f} MB, and a config.json has a few KB: give the file of that "
            "name that lies beside a model's weights."
        )
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise BadModel(f"{name} is not valid JSON{where}: paste the whole config.json, braces included.") from None
    if not isinstance(config, dict):
        raise BadModel(f"{name} holds a {type(config).__name__} and a config.json is an object in braces: give it.")
    return config


def read_shape(config: dict) -> Shape:
    """The shape a config.json describes. BadModel when it is no causal language model whose attention this counts
    (Uncounted: a family of another make), lacks a key, or holds a value that none can have."""
    outer = config
    if isinstance(config.get("text_config"), dict):
        config = outer["text_config"]
    keys = Keys(config, _family(outer, config))
    # Nemotron-H says it by the pattern of its layers
    listed = len(keys.list("layers_block_type") or str(config.get("hybrid_override_pattern") or ""))
    if listed and config.get("num_hidden_layers") is None:
        keys = Keys(config | {"num_hidden_layers": listed}, keys.family)
    lacking = [names[0] for names in NAMES.values() if all(keys.values.get(key) is None for key in names)]
    if lacking:
        raise BadModel(
            f"This config lacks {', '.join(lacking)}, without which nothing can be counted: give the config.json of a "
            "causal language model as transformers writes it."
        )
    sizes = {name: keys.number(*names, high=MOST[name]) for name, names in NAMES.items()}
    width, heads, count = sizes["width"], sizes["heads"], sizes["layers"]
    matrices, tied = FAMILIES.get(keys.family, (GATED, False))
    kinds = kinds_of(keys, count)
    groups, size, _ = head_sizes(keys, width, heads)
    mixers = mixers_of(keys, kinds, width, heads)
    layers = [
        replace(mixer, blocks=blocks)
        for mixer, blocks in zip(mixers, blocks_of(keys, kinds, width, matrices), strict=True)
    ]
    looked_up = beside = 0
    if keys.family.startswith("gemma4"):
        # embeddings for every layer: a table of which a token reads one row, and weights that every token passes
        inner = keys.number("hidden_size_per_layer_input", default=256 if keys.family == "gemma4_text" else 0, low=0)
        rows = keys.number("vocab_size_per_layer_input", high=MOST["vocabulary"], default=262_144)
        looked_up, beside = rows * count * inner, 3 * count * width * inner
    formats = formats_of(outer, config)
    tied = config.get("tie_word_embeddings", config.get("tie_embedding", outer.get("tie_word_embeddings", tied)))
    names = ["max_position_embeddings", "n_positions", "max_seq_len"]
    names += ["model_max_length"] if keys.family == "kimi_linear" else []
    longest = keys.number(*names, high=1 << 32, default=0) or None
    shape = Shape(
        family=keys.family[:40] or "unnamed",
        width=width,
        heads=heads,
        kv_heads=groups,
        head_dim=size,
        vocabulary=sizes["vocabulary"],
        tied=tied is True,
        stack=tuple(layers),
        max_positions=longest,
        dtype=formats.dtype,
        value_bytes=BYTES[formats.dtype],
        cache_bytes=BYTES[formats.dtype],
        block_bytes=formats.block_bytes,
        mixer_bytes=formats.mixer_bytes,
        state_bytes=formats.state_bytes,
        looked_up=looked_up,
        beside=beside,
    )
    text_only = ["Only the text part of this model is counted."] if outer is not config else []
    return replace(shape, notes=(*text_only, *formats.notes, *notes_of(shape, keys, keys.family in FAMILIES)))


def _family(outer: dict, config: dict) -> str:
    """The name of the family, "" when none stands there; refuses what is no decoder, and what cannot be counted."""
    family = config.get("model_type") or ("gpt2" if "n_embd" in config else "")
    family = family if isinstance(family, str) else str(family)
    architectures = outer.get("architectures")
    named = [name for name in architectures if isinstance(name, str)] if isinstance(architectures, list) else []
    shown_name = (named[0] if named else family)[:60]
    base = family in FAMILIES and any(name.endswith("Model") for name in named)
    not_causal = bool(named) and not base and not any(name.endswith(CAUSAL) for name in named)
    if not_causal or family in NO_DECODER or outer.get("is_encoder_decoder") is True:
        raise BadModel(
            f"{shown_name!r} is not a causal language model, and only those read a growing context token by token: "
            "give the config.json of a decoder such as Llama, Qwen, Mistral, Gemma 2, OLMo 2, GPT-2 or Pythia."
        )
    if family in NO_ATTENTION:
        raise BadModel(
            f"{shown_name!r} has no layer of softmax attention, so there is nothing to make sparse: choose a "
            "transformer or a hybrid."
        )
    if family in UNCOUNTED:
        raise Uncounted(
            f"{shown_name!r} has {UNCOUNTED[family]}, which is not counted from its config.json here: choose another "
            "model."
        )
    return TEXT_PARTS.get(family, family)


def notes_of(shape: Shape, keys: Keys, known: bool) -> list[str]:
    """What a reader has to know of a shape: which of its layers read keys, what is left out, what was assumed. One
    sentence each, for the page and the command line."""
    notes = []
    if not known:
        reason = f"The family {keys.family[:40]!r} is not known here" if keys.family else "The config names no family"
        notes.append(
            f"{reason}: its attention and its feed-forward blocks (gated, three matrices) are counted as in Llama."
        )
    many = len(shape.stack)
    kinds = Counter(layer.kind for layer in shape.stack)
    if states := [f"{kinds[kind]} {kind}" for kind in STATES if kinds[kind]]:
        notes.append(
            f"{shape.reading} of its {many} layers read keys; {' and '.join(states)} layers carry a state, which costs "
            "the same at any length."
        )
    if any(layer.state and layer.entries for layer in shape.stack):
        notes.append("Its layers also carry a state of fixed size beside the keys, which costs the same at any length.")
    if kinds[INDEXED] or kinds["minimax_m3_sparse"]:
        most = max(entries.top or 0 for layer in shape.stack for entries in layer.entries)
        notes.append(
            f"Its own indexer already leaves each query {most:,} keys at most; the keys and products of the "
            "indexer stay, however few are read."
        )
    if kinds[CSA] or kinds[HCA]:
        notes.append(
            "It caches one entry for several tokens; the keys and products of its indexer stay, however few are read."
        )
    if further := next((keys.number(key, high=1000, default=0, low=0) for key in FURTHER if keys.values.get(key)), 0):
        weights = further * (shape.layer_weights(shape.stack[-1]) + 2 * shape.width**2)
        layers = "layer that predicts" if further == 1 else "layers that predict"
        notes.append(f"Left out: {further} {layers} further tokens (MTP), about {weights / 1e9:.3g} billion weights.")
    return notes
