"""Whether dense attention through the seam computes what the stock model computes: in one pass, and token by token with
the KV cache. On loading it is tried on a small copy: the same classes and kinds of layers, random weights, and a text
that is longer than every window, chunk, block and top-k of it.
"""

import copy
import hashlib
import re
from dataclasses import dataclass
from importlib.metadata import version

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from ..errors import AnalysisError, BadModel
from ..files import read_json
from ..places import CACHE, PLAIN
from .attention import apply
from .calls import Block
from .hooks import Hooks
from .layers import attention_modules, causal_class, empty_model, has_attention, shape_of
from .read_on import read_on

# What comes with the bundled model, so that nobody waits for it.
KEPT = CACHE / "demo" / "parity.json"
# Tokens of the small copy's text, and those of them that are read one by one.
LENGTH, DECODED = 96, 4
# Last tokens whose logits are compared.
COMPARED = 256
# What windows, chunks, blocks and top-k are cut to, and top-k of blocks.
WINDOW, BLOCKS = 16, 2
# Standard deviation of queries and keys.
SHARP = 2.0
# More different entries than these number the layers.
KINDS = 8
WIDTH, HEADS, EXPERTS, VOCABULARY = 64, 4, 16, 128
# Layers among which one must read by softmax.
MOST_LAYERS = 17
# Of the largest logit in float32; what was wrong in silence differed by a tenth and more.
ROUNDING = 1e-4
SPAN = re.compile("window|chunk|block|topk|top_k|budget|compress_rat")
NARROW = re.compile("intermediate|inner|ffn|mlp|hidden_dim|lora_rank")


@dataclass(frozen=True)
class Parity:
    """Largest differences of a logit between the stock model and dense attention through the seam over `tokens`: in
    `one_pass`, and of the last tokens when they are `decoded` with the KV cache; `largest` the largest logit."""

    one_pass: float
    decoded: float
    largest: float
    tokens: int

    @property
    def same(self) -> bool:
        """Whether they are no more than rounding in float32."""
        return self.within(ROUNDING * self.largest)

    def within(self, tolerance: float) -> bool:
        """Whether both are at most so large; NaN is not."""
        return self.one_pass <= tolerance and self.decoded <= tolerance

    @property
    def difference(self) -> float:
        """The larger of the two."""
        return max(self.one_pass, self.decoded)


@torch.no_grad()
def parity(lm: PreTrainedModel, ids: torch.Tensor, watch: bool = True) -> Parity:
    """Of the tokens [1, T]. `watch`: try the blocks of scores too, which statistics and methods are computed from."""
    stock, differences, heads = _logits(lm, ids), [], set()

    def count_heads(block: Block, probabilities: torch.Tensor) -> None:
        heads.add(probabilities.shape[1])

    for watching in [None, count_heads] if watch else [None]:
        with apply(lm, _Stock(), watching):
            differences.append([float((a - b).abs().max()) for a, b in zip(_logits(lm, ids), stock, strict=True)])
    if watch and heads != {shape_of(lm)[1]}:
        raise BadModel(
            f"The layers of this model have {' and '.join(map(str, sorted(heads)))} heads where its configuration says "
            f"{shape_of(lm)[1]}, and heads are compared here layer by layer: choose another model."
        )
    one_pass, decoded = torch.tensor(differences).amax(0).tolist()  # NaN stays NaN
    return Parity(one_pass, decoded, float(stock[0].abs().max()), ids.shape[1])


class _Stock(Hooks):
    """What the stock model computes, through the seam."""

    dense = True


def _logits(lm: PreTrainedModel, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the last tokens in one pass, and of the very last after the others, one by one."""
    one_pass = lm(ids, use_cache=False, logits_to_keep=COMPARED).logits.double()
    _, cache = read_on(lm, ids[:, :-DECODED], logits_to_keep=1)
    steps = []
    for token in ids[:, -DECODED:].split(1, 1):
        logits, cache = read_on(lm, token, cache)
        steps.append(logits.double())
    return one_pass, torch.cat(steps, 1)


def check(config: PreTrainedConfig) -> Parity:
    """The parity of a small copy of the models that a configuration describes, computed once in a process. Raises
    BadModel where the seam computes something else, or where nothing could be compared."""
    family = config.model_type
    try:
        small = small_config(config)
        key = kind(small)
        if key not in _checked:
            stored = read_json(KEPT) or {}
            _checked[key] = Parity(**stored["parity"]) if stored.get("kind") == key else of_random_weights(small)
        result = _checked[key]
    except AnalysisError:
        raise
    except Exception as error:  # foreign code fails in every way
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
        raise BadModel(
            f"Whether attention can be replaced in {family} models could not be tried ({reason}): choose a {PLAIN} "
            "model."
        ) from error
    if not result.same:
        raise BadModel(
            f"{family} models compute something else here than in transformers (logits of a small copy differ by "
            f"{result.difference:.1e}): choose a {PLAIN} model."
        )
    return result


_checked: dict[str, Parity] = {}


def versions() -> dict[str, str]:
    """Of what computes."""
    return {name: version(name).partition("+")[0] for name in ("torch", "transformers")}


def kind(small: PreTrainedConfig) -> str:
    """Twelve digits over all that decides what a small copy computes."""
    decides = [*versions().values(), type(small).__name__, small.to_json_string(use_diff=False)]
    return hashlib.sha256("\n".join(decides).encode()).hexdigest()[:12]


def of_random_weights(small: PreTrainedConfig) -> Parity:
    """The parity of a model with random weights, its queries and keys far from equal. Where scores are so large that
    float32 shows the order of its sums, that in float64."""
    result = _of_random_weights(small, torch.float32)
    return result if result.same else _of_random_weights(small, torch.float64)


def _of_random_weights(small: PreTrainedConfig, dtype: torch.dtype) -> Parity:
    """Eager attention is what a model is defined by: others left out the cap of the scores in older transformers."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(0)
        lm = AutoModelForCausalLM.from_config(copy.deepcopy(small), dtype=dtype, attn_implementation="eager").eval()
        longest = getattr(small.get_text_config(), "max_position_embeddings", LENGTH)
        ids = torch.randint(VOCABULARY, (1, min(LENGTH, longest)))
    with torch.no_grad():
        for module in attention_modules(lm):
            for name, weights in module.named_parameters():
                # weights that begin at zero hide what they do
                if weights.ndim == 2 and not weights.any():
                    weights.normal_()
                # else all keys are read alike
                elif weights.ndim == 2:
                    weights.mul_(SHARP / (weights.std() * weights.shape[-1] ** 0.5))
                # normed ones that meet without the usual factor are so sharp that rounding grows from layer to layer
                elif name.startswith(("q_norm", "k_norm")):
                    usual = len(weights) ** -0.5
                    weights.mul_((usual / (getattr(module, "scaling", None) or usual)) ** 0.5)
    return parity(lm, ids)


def small_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """The configuration of the same classes and kinds of layers, with few layers and small widths."""
    alone = causal_class(config.get_text_config()) is not None
    small = copy.deepcopy(config.get_text_config() if alone else config)
    # neither they nor how weights are stored change what is computed
    small.name_or_path, small.dtype = "", None
    vars(small).pop("quantization_config", None)
    text = small.get_text_config()
    # what differs from layer to layer cannot be read of the whole
    by_layer = text.to_dict().get("per_layer_config")
    if by_layer:
        text.per_layer_config = None
    heads = text.num_attention_heads
    layers_left = _cut_layers(text)
    _narrow(text)
    for name, value in vars(text).copy().items():
        if isinstance(value, dict) and _is_span(name):
            setattr(text, name, {kind: min(span, WINDOW) for kind, span in value.items()})
        if type(value) is not int:
            continue
        if "experts" in name:
            setattr(text, name, min(value, EXPERTS))
        elif _is_span(name):
            setattr(text, name, min(value, BLOCKS if re.search("topk.*block|block.*topk", name) else WINDOW))
        elif "vocab_size" in name:
            setattr(text, name, VOCABULARY)
        elif re.search("token_(id|index)$", name):
            setattr(text, name, value % VOCABULARY)
    if by_layer:
        sizes = {}
        for layer, of_layer in by_layer.items():
            narrow = {name: min(value, WIDTH) if NARROW.search(name) else value for name, value in of_layer.items()}
            own_heads = of_layer.get("num_attention_heads", heads)
            if "num_attention_heads" in of_layer:
                narrow["num_attention_heads"] = min(own_heads, HEADS)
            if "num_key_value_heads" in of_layer:
                narrow["num_key_value_heads"] = _fewer(of_layer["num_key_value_heads"], own_heads)
            sizes[int(layer)] = narrow
        text.per_layer_config = {number: sizes[layer] for number, layer in enumerate(layers_left) if layer in sizes}
    # families that name no kinds of layers put the first that reads by softmax at every eighth, say
    if not isinstance(vars(text).get("layer_types"), list):
        for layers in range(text.num_hidden_layers, MOST_LAYERS):
            text.num_hidden_layers = layers
            if has_attention(empty_model(copy.deepcopy(small))):
                break
    return small


def longest_span(config: PreTrainedConfig) -> int:
    """The longest window, chunk, block or top-k of a configuration; 0 without any."""
    spans = [value for name, value in vars(config.get_text_config()).items() if _is_span(name)]
    # of some, one for each kind of layer
    spans += [span for value in spans if isinstance(value, dict) for span in value.values()]
    return max((span for span in spans if type(span) is int), default=0)


def _is_span(name: str) -> bool:
    return bool(SPAN.search(name)) and "layer" not in name


def _cut_layers(text: PreTrainedConfig) -> list[int]:
    """Keep the first layers, up to where each kind of them was there, and likewise of those at the end that read keys
    of earlier ones; lists with an entry of every layer name kinds. Returns the numbers that they had."""
    layers = text.num_hidden_layers
    lists = {name: value for name, value in vars(text).items() if isinstance(value, list) and len(value) == layers}
    naming = [value for value in lists.values() if len(set(map(str, value))) <= KINDS]
    kinds = [str(entries) for entries in zip(*naming, strict=True)] or [""] * layers
    reading = getattr(text, "num_kv_shared_layers", 0) or 0
    own = layers - reading
    first = min(own, max(2, _until_each(kinds[:own])))
    layers_left = [*range(first), *range(own, own + _until_each(kinds[own:]))]
    for name, value in lists.items():
        setattr(text, name, [value[layer] for layer in layers_left])
    text.num_hidden_layers = len(layers_left)
    if reading:
        text.num_kv_shared_layers = len(layers_left) - first
    if getattr(text, "first_k_dense_replace", 0):
        text.first_k_dense_replace = 1
    return layers_left


def _until_each(kinds: list[str]) -> int:
    """How many of the first entries hold each of them once."""
    return max((1 + kinds.index(kind) for kind in kinds), default=0)


def _narrow(text: PreTrainedConfig) -> None:
    """Cut the widths. Sizes of heads stay, since rotary tables and their factors are made for them."""
    heads, width, groups = text.num_attention_heads, text.hidden_size, getattr(text, "num_key_value_heads", None)
    if type(groups) is list:
        groups = max(groups)
    count = min(heads, HEADS)
    head = getattr(text, "head_dim", None) or width // heads
    narrow = count * head if width == heads * head else min(width, WIDTH)
    for name, value in vars(text).copy().items():
        if type(value) is int and value == width and re.search("hidden|embd|embed|width|d_model", name):
            setattr(text, name, narrow)
        elif type(value) is int and NARROW.search(name):
            setattr(text, name, min(value, WIDTH))
        elif isinstance(value, list) and NARROW.search(name):
            setattr(text, name, [min(size, WIDTH) if type(size) is int else size for size in value])
    text.hidden_size, text.num_attention_heads = narrow, count
    if groups:
        text.num_key_value_heads = _fewer(groups, heads)
    # linear attention costs much more here than what is compared
    if "linear_num_heads" in vars(text):
        text.linear_num_heads = min(text.linear_num_heads, HEADS)
    if "linear_num_key_heads" in vars(text):
        times, keys = text.linear_num_value_heads // text.linear_num_key_heads, min(text.linear_num_key_heads, HEADS)
        text.linear_num_key_heads, text.linear_num_value_heads = keys, keys * times
    # layers with a window may count their heads by themselves
    if own := getattr(text, "swa_num_attention_heads", None):
        text.swa_num_attention_heads = min(own, HEADS)
        text.swa_num_key_value_heads = _fewer(text.swa_num_key_value_heads, own)
    # Mamba layers divide a multiple of the width among their own heads
    if size := getattr(text, "mamba_d_head", None) or getattr(text, "mamba_headdim", None):
        counted = "mamba_n_heads" if hasattr(text, "mamba_n_heads") else "n_mamba_heads"
        setattr(text, counted, max(1, text.mamba_expand * narrow // size))


def _fewer(groups: int, heads: int) -> int:
    """Key-value heads for as few heads as the small copy has."""
    return min(heads, HEADS) if groups == heads else max(1, min(heads, HEADS) * groups // heads)
