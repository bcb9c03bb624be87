"""Sparse attention that was found with Focuscope, for transformers 5. Needs torch, transformers and safetensors.

    import focuscope_attention
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(NAME, attn_implementation="focuscope")
    focuscope_attention.attach(model)

Importing this file registers `attn_implementation="focuscope"`; `attach` reads the setting, policy.json and
tensors.safetensors, from the folder of this file. The code is a plain reference: it scores every key in float32 and
masks what the method does not read, so it shows the quality of a setting and not its speed. Methods that drop keys
after the prompt do drop them: the KV cache shrinks.

Shapes: B texts, H query heads, G key-value heads, n new tokens, T tokens so far, D dimensions of a head.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, DynamicLayer
from transformers.masking_utils import sdpa_mask

NAME, FORMAT = "focuscope", 1
ROWS = 256  # queries whose scores are held at once
POOL = 5  # neighbouring keys that share their weight in SnapKV


@dataclass
class Scoring:
    """How a layer makes scores of queries and keys: their product times `factor`, capped softly at `softcap`."""

    factor: float
    softcap: float | None

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """[B, H, n, T] of query [B, H, n, D] and key [B, H, T, D]."""
        scores = query @ key.mT * self.factor
        return scores if self.softcap is None else torch.tanh(scores / self.softcap) * self.softcap


@dataclass
class Block:
    """Some queries of one layer: `scores` [B, H, n, T], `visible` as wide (causal, no padding), `rows` [n] and
    `columns` [T] places of queries and keys, `first` [B] place of the first real token, `of_queries` [B, n, ...] and
    `of_keys` [B, T, ...] what the rule remembered of these tokens."""

    layer: int
    scores: Tensor
    visible: Tensor
    rows: Tensor
    columns: Tensor
    first: Tensor
    of_queries: Tensor | None
    of_keys: Tensor | None

    def near(self, window: int, sinks: int) -> Tensor:
        """[B, 1, n, T]: the last `window` tokens, the query itself included, and the first `sinks` of the text."""
        recent = (self.rows[:, None] - self.columns < window)[None, None]
        return recent | (self.columns < self.first[:, None] + sinks)[:, None, None]


class Rule:
    """Reads everything. A method overrides what it changes; `setting` is policy.json."""

    def __init__(self, setting: dict, tensors: dict[str, Tensor]):
        self.setting, self.values, self.tensors = setting, setting["settings"], tensors

    def remember(self, layer: int, hidden: Tensor) -> Tensor | None:
        """[B, n, ...]: what to know later of the tokens that enter a layer as hidden states [B, n, d]."""
        return None

    def sharpen(self, query: Tensor) -> Tensor:
        """The queries as they meet the keys."""
        return query

    def keep(self, block: Block) -> Tensor | None:
        """Which keys are read, True = read, as wide as the scores; None reads all."""
        return None

    def stay(self, layer: int, query: Tensor, key: Tensor, scoring: Scoring) -> Tensor | None:
        """Which keys of a prompt stay in the KV cache, [B, G, T], as many of each head; None keeps all."""
        return None


class Focus(Rule):
    """Far tokens read each other only inside a learned group; near ones and the first ones are always read."""

    def remember(self, layer, hidden):
        """Group memberships, bool [B, n, K]."""
        projection, centroids, potential = (
            self.tensors[name][layer].to(hidden.device) for name in ("projection", "centroids", "potential")
        )
        vectors = hidden.float() @ projection  # [B, n, d_s]
        if self.values["similarity"] == "cosine":
            vectors, centroids = F.normalize(vectors, dim=-1), F.normalize(centroids, dim=-1)
        groups = torch.softmax(vectors @ centroids.T / self.values["temperature"] + potential, -1)
        best = groups.topk(self.values["top"], -1).indices
        return torch.zeros_like(groups, dtype=torch.bool).scatter_(-1, best, True)

    def keep(self, block):
        shared = block.of_queries.float() @ block.of_keys.float().mT > 0.5  # [B, n, T]
        return shared[:, None] | block.near(self.values["window"], self.values["n_sink"])


class StreamingLLM(Rule):
    """The last tokens and the first ones."""

    def keep(self, block):
        return block.near(self.values["window"], self.values["n_sink"])


class Budgets(Rule):
    """Calibrated Sparse Attention: each head reads the keys of largest score, as many as its budget says."""

    def keep(self, block):
        heads, (*budgets, cap) = self.setting["heads"], self.setting["policy"]
        own = budgets[block.layer * heads : (block.layer + 1) * heads]
        return torch.cat([largest(block, min(own[h], cap), h) for h in range(heads)], 1)


class Buckets(Rule):
    """Near tokens and the first ones, and the keys in those buckets that a linear router expects the attention in."""

    def file(self, layer, query, key):
        """Of queries [B, H, n, D] and keys [B, G, n, D] before their rotation: the bucket of each key [B, n, P], and
        beside it the buckets that each head visits [B, n, H * visited]."""
        centroids, weights = (self.tensors[name][layer].to(query.device) for name in ("centroids", "weights"))
        keys = key.repeat_interleave(len(centroids) // key.shape[1], 1)  # [B, P, n, D]
        labels = (keys @ centroids.mT).argmax(-1)
        chosen = (query @ weights).topk(self.values["visited"], -1).indices  # [B, H, n, visited]
        return torch.cat([labels.transpose(1, 2), chosen.transpose(1, 2).flatten(2)], -1)

    def keep(self, block):
        parts, buckets = self.tensors["centroids"].shape[1:3]
        heads = block.scores.shape[1]
        labels = block.of_keys[..., :parts].transpose(1, 2).repeat_interleave(heads // parts, 1)  # [B, H, T]
        chosen = block.of_queries[..., parts:].unflatten(-1, (heads, -1)).transpose(1, 2)  # [B, H, n, visited]
        visits = chosen.new_zeros(*chosen.shape[:3], buckets, dtype=torch.bool).scatter_(-1, chosen, True)
        far = visits.gather(-1, labels[:, :, None].expand(-1, -1, chosen.shape[2], -1))
        return far | block.near(self.values["window"], self.values["n_sink"])


class OracleTopK(Rule):
    """Each query of each head reads its k keys of largest score."""

    def keep(self, block):
        return largest(block, self.values["k"])


class Focal(Rule):
    """Every key, through a softmax of another temperature."""

    def sharpen(self, query):
        return query / self.values["t"]


class Evicting(Rule):
    """Reads the prompt densely; then each layer keeps the share 1 - ratio of its keys that are `worth` most."""

    def worth(self, query: Tensor, key: Tensor, scoring: Scoring) -> Tensor:
        """[B, G, T] of query [B, H, T, D] and key [B, G, T, D]; larger stays."""
        raise NotImplementedError

    def stay(self, layer, query, key, scoring):
        worth = self.worth(query.float(), key.float(), scoring)
        count = int(worth.shape[-1] * (1 - self.setting["ratios"][layer]))
        order = worth.flip(-1).argsort(dim=-1, descending=True, stable=True)[..., :count]  # of equal ones the later
        return torch.zeros_like(worth, dtype=torch.bool).scatter_(-1, worth.shape[-1] - 1 - order, True)


class SnapKV(Evicting):
    """The keys that the last `window` queries look at, and that window."""

    def worth(self, query, key, scoring):
        length = key.shape[2]
        start = length - min(self.values["window"], length)
        found = key.new_full(key.shape[:3], 2.0)  # above any mean of weights
        if start:
            mean = weights(query[:, :, start:], key, start, scoring).mean(2)[..., :start]  # [B, H, start]
            pooled = F.avg_pool1d(mean, POOL, stride=1, padding=POOL // 2)
            found[..., :start] = pooled.unflatten(1, (key.shape[1], -1)).mean(2)
        return found


class TOVA(Evicting):
    """The keys that the last query looks at, the same in all heads of a layer."""

    def worth(self, query, key, scoring):
        start = key.shape[2] - 1
        found = weights(query[:, :, -1:], key, start, scoring)[:, :, 0].mean(1, keepdim=True).repeat(1, key.shape[1], 1)
        found[..., -1] = 2.0
        return found


class KeyDiff(Evicting):
    """The keys whose direction differs most from the mean of all."""

    def worth(self, query, key, scoring):
        return -F.cosine_similarity(key, F.normalize(key, dim=-1).mean(2, keepdim=True), dim=-1)


RULES = {
    "dense": Rule,
    "focus": Focus,
    "csa": Budgets,
    "bucket_routing": Buckets,
    "snapkv": SnapKV,
    "streaming_llm": StreamingLLM,
    "oracle_topk": OracleTopK,
    "focal": Focal,
    "tova": TOVA,
    "keydiff": KeyDiff,
}


def largest(block: Block, count: int, head: int | None = None) -> Tensor:
    """[B, H, n, T]: the `count` keys of largest score of every query, and those that tie with the last; of one head."""
    mine = slice(None) if head is None else slice(head, head + 1)
    scores = block.scores.masked_fill(~block.visible, -torch.inf)[:, mine]
    return scores >= scores.topk(min(count, scores.shape[-1])).values[..., -1:]


def weights(query: Tensor, key: Tensor, start: int, scoring: Scoring) -> Tensor:
    """Causal attention weights [B, H, n, T] of the queries [B, H, n, D] at the places from `start` on."""
    scores = scoring.scores(query, key.repeat_interleave(query.shape[1] // key.shape[1], 1))
    places = torch.arange(key.shape[2], device=key.device)
    return torch.softmax(scores.masked_fill(places > places[start:][: query.shape[2], None], -torch.inf), -1)


class Shortened(DynamicLayer):
    """A layer of the KV cache after keys were dropped: it still counts the tokens of the whole text."""

    is_croppable = False

    def __init__(self, layer: DynamicLayer, kept: Tensor):
        super().__init__()
        places = kept.nonzero()[:, 2].view(*kept.shape[:2], -1, 1)  # [B, G, count, 1]
        self.keys = layer.keys.gather(2, places.expand(-1, -1, -1, layer.keys.shape[-1]))
        self.values = layer.values.gather(2, places.expand(-1, -1, -1, layer.values.shape[-1]))
        self.dtype, self.device, self.is_initialized = layer.keys.dtype, layer.keys.device, True
        self.seen = kept.shape[2]

    def update(self, key_states, value_states, *args, **kwargs):
        """Append keys and values [B, G, n, D]; returns all that are held."""
        self.seen += key_states.shape[2]
        return super().update(key_states, value_states, *args, **kwargs)

    def get_seq_length(self) -> int:
        """Tokens of the text so far."""
        return self.seen

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.seen = 0


class Seat:
    """What one attention layer knows of the text that it reads."""

    def __init__(self, rule: Rule, layer: int):
        self.rule, self.layer = rule, layer
        self.past, self.first, self.cache, self.known, self.tables = 0, None, None, None, None

    def learn(self, new: Tensor | None) -> None:
        """Keep what the rule remembers of the new tokens [B, n, ...]."""
        if new is not None:
            self.known = torch.cat([self.known[:, : self.past], new], 1) if self.past else new


def observe(module, args, kwargs):
    """Before an attention layer runs: note its KV cache, and let the rule see the hidden states [B, n, d]."""
    seat = module._focuscope
    hidden = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
    seat.cache = next((value for value in kwargs.values() if isinstance(value, Cache)), None)  # its name changes
    mask = kwargs.get("attention_mask")
    seat.past = 0 if seat.cache is None else int(seat.cache.get_seq_length(seat.layer))
    if seat.past == 0:
        batch, n = hidden.shape[:2]
        real = hidden.new_ones(batch, n) if mask is None else mask[:, 0, :, :n].diagonal(dim1=-2, dim2=-1)
        seat.first = real.int().argmax(-1).expand(batch)  # [B]
    seat.tables = kwargs.get("position_embeddings")  # (cos, sin) of the rotary embedding
    seat.learn(seat.rule.remember(seat.layer, hidden))


def unrotated(x: Tensor, module, tables: tuple[Tensor, Tensor] | None) -> Tensor:
    """Queries or keys [B, heads, n, D] as they were before the rotary embedding, undone by the model's own function."""
    if tables is None:
        return x.float()
    cos, sin = (table.float() for table in tables)
    size = cos.flatten()[0].square() + sin.flatten()[0].square()
    turn = sys.modules[type(module).__module__].apply_rotary_pos_emb
    return turn(x.float(), x.float(), cos / size, -sin / size)[0]


def attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, softcap=None, **kwargs):
    """What transformers calls: query [B, H, n, D], key and value [B, G, T, D] -> (out [B, n, H, D], None)."""
    seat = getattr(module, "_focuscope", None)
    if seat is None:
        raise RuntimeError("Call focuscope_attention.attach(model) before the model runs.")
    if kwargs.get("s_aux") is not None:
        raise RuntimeError("This model has a learned sink in its softmax, which no method here defines.")
    cache, seat.cache = seat.cache, None
    held = cache.layers[seat.layer] if cache is not None else None
    if isinstance(held, Shortened):
        attention_mask = None  # what is held is visible to every new token
    n, total = query.shape[2], key.shape[2]
    before = max(0, seat.past + n - total)  # a sliding or shortened cache hands over its last keys only
    columns = torch.arange(total, device=key.device) + before
    scoring = Scoring(query.shape[-1] ** -0.5 if scaling is None else scaling, softcap)
    keys, values = (x.repeat_interleave(query.shape[1] // key.shape[1], 1) for x in (key.float(), value))
    if "rotated" in seat.rule.setting:
        tables = seat.tables if seat.rule.setting["rotated"][seat.layer] else None
        new = key[:, :, seat.past - before : seat.past - before + n]
        seat.learn(seat.rule.file(seat.layer, *(unrotated(x, module, tables) for x in (query, new))))
    known = None if seat.known is None else padded(seat.known, before, total)
    sharp, out = seat.rule.sharpen(query.float()), value.new_empty(*query.shape[:3], value.shape[-1])
    for start in range(0, n, ROWS):
        own = slice(start, min(start + ROWS, n))
        rows = torch.arange(own.start, own.stop, device=key.device) + seat.past
        scores = scoring.scores(sharp[:, :, own], keys)  # [B, H, rows, T]
        visible = (columns <= rows[:, None])[None, None] if attention_mask is None else attention_mask[:, :, own]
        of_queries = None if known is None else known[:, rows - before]
        block = Block(seat.layer, scores, visible, rows, columns, seat.first, of_queries, known)
        keep = seat.rule.keep(block)
        read = visible if keep is None else visible & keep
        found = torch.softmax(scores.masked_fill(~read, -torch.inf), -1).masked_fill(~read.any(-1, keepdim=True), 0.0)
        out[:, :, own] = F.dropout(found.to(value.dtype), dropout, module.training) @ values
    if seat.past == 0 and held is not None and not held.is_sliding:
        kept = seat.rule.stay(seat.layer, query, key, scoring)
        if kept is not None:
            if bool((seat.first > 0).any()):
                raise RuntimeError("A padded batch keeps other keys of each text: give one text at a time.")
            if not isinstance(held, DynamicLayer):
                raise RuntimeError("Keys can be dropped from a DynamicCache only: choose no other KV cache.")
            cache.layers[seat.layer] = Shortened(held, kept)
    return out.transpose(1, 2).contiguous(), None


def padded(known: Tensor, before: int, total: int) -> Tensor:
    """The rows of the `total` keys from `before` on that a layer hands over; a static cache is longer than its text."""
    rows = known[:, before : before + total]
    return torch.cat([rows, rows.new_zeros(rows.shape[0], total - rows.shape[1], *rows.shape[2:])], 1)


def attach(model, folder=None):
    """Let the setting in `folder` (by default that of this file) decide what `model` reads; returns the model.

    Raises ValueError where the setting was made for a model of another shape or by another version.
    """
    folder = Path(folder or Path(__file__).parent)
    setting = json.loads((folder / "policy.json").read_text(encoding="utf-8"))
    if setting.get("format") != FORMAT:
        raise ValueError(f"policy.json has format {setting.get('format')!r} and this file reads {FORMAT}.")
    config = model.config.get_text_config()
    made, own = (setting["layers"], setting["heads"]), (config.num_hidden_layers, config.num_attention_heads)
    if made != own:
        shapes = f"{made[0]} layers of {made[1]} heads and this model has {own[0]} of {own[1]}"
        raise ValueError(f"policy.json is for {shapes}.")
    if len(setting.get("ratios", [0] * made[0])) != made[0]:
        raise ValueError(f"policy.json has {len(setting['ratios'])} ratios for {made[0]} layers: give one for each.")
    numbers = folder / "tensors.safetensors"
    rule = RULES[setting["method"]](setting, load_file(numbers) if numbers.exists() else {})
    for module in model.modules():
        if hasattr(module, "layer_idx") and "attention" in type(module).__name__.lower():
            if not hasattr(module, "_focuscope"):
                module.register_forward_pre_hook(observe, with_kwargs=True)
            module._focuscope = Seat(rule, module.layer_idx)
    model.set_attn_implementation(NAME)
    return model


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, sdpa_mask)  # no mask then means causal
