"""Loading any Hugging Face causal language model safely, its shapes, and whether its attention can be replaced."""

import hashlib
import importlib.util
import re
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig, PreTrainedModel, logging

from ..errors import BadModel, BadSetting, TooLarge
from ..places import CACHE, SPREAD, ask_the_hub, explained, how, locate, revision, why_not
from ..seam.layers import attention_modules, causal_class, empty_model, kinds, shape_of, stock_attention
from ..seam.lean import undrawn
from ..seam.parity import check
from ..seam.sound import check_tokens, check_weights, watch
from .adapters import base_of, with_adapter
from .weights import BITS, few_bits, free_bytes, held_bytes, weight_bytes, weight_type, why_type

# Progress is reported by whoever asked for the model.
logging.disable_progress_bar()
# What transformers would print about a repository is refused here, in a sentence.
logging.set_verbosity_error()

SAFELY = {"use_safetensors": True, "output_loading_info": True}
# A configuration that announces more is not even laid out.
MOST_LAYERS = 1000
# RecurrentGemma's texts in training: its configuration names no longest one.
TRAINED_ON = 8192
RANDOM = "The weights are random: only time and memory measured with this model mean something."


@dataclass
class Model:
    """A causal language model with its tokenizer and the shapes the analysis needs.

    `lm` the transformers model in evaluation mode; `num_layers` L, `num_heads` H, `num_kv_heads` G, `head_dim` D,
    `max_positions` the longest context in tokens; `revision` names the weights (hub commit or content hash);
    `few_bits` is `8bit` or `4bit` where they have so many; `why` a sentence on the type of the weights, where it was
    measured which is quicker.
    """

    lm: PreTrainedModel
    tokenizer: Any
    name: str
    revision: str
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_positions: int
    few_bits: str = ""
    why: str = ""

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.lm.device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights."""
        return self.lm.dtype

    @property
    def precision(self) -> str:
        """The type of the weights in words, with their bits where they have fewer."""
        kind = str(self.dtype).removeprefix("torch.")
        return f"{self.few_bits}, products in {kind}" if self.few_bits else kind

    @property
    def stock_attention(self) -> str:
        """The implementation of attention that the model runs by itself, such as `sdpa`."""
        return stock_attention(self.lm)

    @cached_property
    def layer_numbers(self) -> tuple[int, ...]:
        """The model's own numbers of its layers of softmax attention, which a hybrid counts through its other layers
        too: what `layer` means wherever a head is named."""
        return tuple(int(module.layer_idx) for module in attention_modules(self.lm))

    @cached_property
    def other_layers(self) -> dict[int, str]:
        """The other layers by their number, and what they are in words."""
        return {number: kind for number, kind in enumerate(kinds(self.lm)) if number not in self.layer_numbers}

    @property
    def width(self) -> int:
        """Size of the hidden states that enter an attention layer."""
        return self.lm.config.get_text_config().hidden_size

    @property
    def inner(self) -> int:
        """Width of the feed-forward blocks; the largest where layers differ."""
        config = self.lm.config.get_text_config()
        width = getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None) or 4 * self.width
        return max(width) if isinstance(width, list | tuple) else width

    @property
    def vocabulary(self) -> int:
        """Tokens that it tells apart."""
        return self.lm.config.get_text_config().vocab_size

    @property
    def family(self) -> str:
        """The architecture's name in transformers, such as `llama`."""
        return self.lm.config.model_type

    @property
    def parameters(self) -> int:
        """Number of parameters, tied ones once."""
        return count_parameters(self.lm)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights in memory."""
        return sum(map(held_bytes, self.lm.parameters()))

    @property
    def caution(self) -> str:
        """What to bear in mind about all its numbers: that `make-shape` made it. Empty for a trained model."""
        return RANDOM if getattr(self.lm.config, "random_weights", False) else ""

    @property
    def state_dir(self) -> Path:
        """Where what came with this model lies: `models_cache/demo`, or `models_cache/<model>/<revision>`. It is only
        read, unless somebody names it with `--state`."""
        bundled = self.name == "demo" and not self.revision.startswith("memory-")
        return CACHE / "demo" if bundled else CACHE / self.slug / self.revision

    @property
    def slug(self) -> str:
        """The name as one folder name."""
        return re.sub(r"[^\w.-]+", "--", self.name).strip("-.")


def load_model(
    name: str | PreTrainedModel = "demo",
    device: str = "auto",
    dtype: str = "auto",
    tokenizer: Any = None,
    root: Path | None = None,
) -> Model:
    """Load a causal language model for analysis.

    `name`: `demo` (bundled), a Hub id, a local folder, or a model you already hold (then give `tokenizer`). Precision
    and device may stand in it, `Qwen/Qwen2.5-0.5B@bfloat16@cuda:1`, where the arguments leave them open. A folder may
    hold an adapter alone, in peft's format: it is merged into its base.
    `device`: `auto` takes a CUDA device when there is one; `spread` lays the layers over all CUDA devices and what is
    left over into main memory (accelerate's `device_map="auto"`), for a model that no single device holds.
    `dtype`: float32, bfloat16, float16, float64, or `8bit` and `4bit` by torchao or bitsandbytes. `auto` is the
    checkpoint's own type on an accelerator; on the CPU float32, and above 100 million parameters bfloat16 where the
    CPU multiplies in it faster (measured once). `root`: when given, local folders must lie below it (the browser's
    restriction).
    Files on disk and in the Hugging Face cache are used before any download; code of a repository is never run.
    Raises BadModel (what cannot be loaded, or whose attention cannot be replaced honestly) and TooLarge.
    """
    if isinstance(name, PreTrainedModel):
        refuse_family(name.config)
        # Refuses what cannot be followed layer by layer.
        attention_modules(name)
        check(name.config)
        label = Path(name.config.name_or_path or name.config.model_type).name
        digest = hashlib.sha256()
        for tensor, value in name.named_parameters():
            digest.update(f"{tensor}{tuple(value.shape)}{value.detach().double().sum().item()!r}".encode())
        return _describe(name, tokenizer, label, f"memory-{digest.hexdigest()[:12]}")
    bare, precision, named = how(str(name))
    precision = dtype if dtype != "auto" else precision
    place, device = locate(name, root), _device(device if device != "auto" else named)
    with explained(name, place):
        config = _from_pretrained(AutoConfig, place)
        refuse_family(config)
        empty = laid_out(config)
        # refuses what cannot be followed
        attention_modules(empty)
        parameters = count_parameters(empty)
        kind = weight_type(config, device, precision, parameters)
        check_memory(name, weight_bytes(parameters, kind, precision), precision, kind, device)
        check(config)
        laid = {"device_map": "auto"} if device == SPREAD else {}
        laid |= few_bits(precision, device)
        base = base_of(place)
        weights = place if base is None else locate(base, root)
        load = partial(_from_pretrained, AutoModelForCausalLM, weights, dtype=kind, **laid, **SAFELY)
        lm, loading = undrawn(load) if device == "cpu" else load()
        if missing := sorted(loading["missing_keys"]):
            raise BadModel(
                f"The weights of {name} lack {len(missing)} tensors that its config.json asks for ({missing[0]}): "
                "fetch them again, or choose another model."
            )
        if base is not None:
            assert isinstance(place, Path), "an adapter is a folder"
            lm = with_adapter(lm, place)
        tokenizer = tokenizer or _from_pretrained(AutoTokenizer, place)
    if not tokenizer.is_fast:
        raise BadModel(f"{name} has no fast tokenizer, so tokens cannot be placed in the text: use a copy with one.")
    check_tokens(lm, tokenizer, bare)
    # one that is laid out already must stay where its layers are
    lm = lm if device == SPREAD else lm.to(device)
    model = _describe(lm, tokenizer, bare, revision(str(name), root) or "")
    watch(lm, tokenizer, bare)
    model.few_bits, model.why = precision if precision in BITS else "", why_type(device, precision, parameters)
    return model


def try_seam(name: str) -> None:
    """Compare a small copy of a model with the stock one, as loading does, but without the weights; once in a process.
    Errors: BadModel."""
    place = locate(name)
    with explained(name, place):
        check(_from_pretrained(AutoConfig, place))


def refuse_family(config: PreTrainedConfig) -> None:
    """Raise BadModel for a family whose attention cannot be replaced, by name and with the reason."""
    family = config.get_text_config().model_type
    if reason := why_not(family, causal_class(config) is not None):
        raise BadModel(reason)


def check_memory(name: str, needed: int, precision: str, kind: torch.dtype, device: str) -> None:
    """Raise TooLarge before anything is loaded: what the weights will take follows from the configuration alone. The
    sentence offers a precision that fits, where there is one."""
    free = free_bytes(device)
    if device == SPREAD:
        free += sum(torch.cuda.mem_get_info(number)[0] for number in range(torch.cuda.device_count()))
    if needed <= 0.9 * free:
        return
    number_format = precision if precision in BITS else str(kind)[6:]
    parameters = needed * 8 // (BITS.get(precision) or 8 * kind.itemsize)
    offer = ""
    # the more exact one where both fit
    for smaller in ("8bit", "bfloat16"):
        if (size := weight_bytes(parameters, torch.bfloat16, smaller)) <= 0.9 * free:
            offer = f"{smaller} takes {size / 1e9:,.1f} GB, or "
    place = "all devices together" if device == SPREAD else device
    raise TooLarge(
        f"{name} needs {needed / 1e9:,.1f} GB for its weights in {number_format} and {free / 1e9:,.1f} GB are free on "
        f"{place}: {offer}choose a smaller model, or a machine with more memory."
    )


def count_parameters(lm: PreTrainedModel) -> int:
    """Parameters of a model, tied ones once."""
    return sum(p.numel() for p in lm.parameters())


def laid_out(config: PreTrainedConfig) -> PreTrainedModel:
    """The model a configuration describes; no weights are made. BadModel for an absurd one."""
    layers = config.get_text_config().num_hidden_layers
    if not 1 <= layers <= MOST_LAYERS:
        raise BadModel(f"This model announces {layers:,} layers and at most {MOST_LAYERS:,} are read: choose another.")
    lm = empty_model(config)
    lm.tie_weights()
    return lm


def _device(wanted: str) -> str:
    """The device to use, tried out: BadSetting for one that this machine lacks."""
    if wanted == SPREAD:
        if importlib.util.find_spec("accelerate") is None:
            raise BadSetting("Spreading a model over devices needs accelerate: pip install accelerate, or choose auto.")
        return SPREAD
    device = wanted if wanted != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise BadSetting(f"The device {device[:40]!r} cannot be used on this machine: choose cpu or auto.") from None
    return device


def _from_pretrained(loader: Any, place: str | Path, **options: Any) -> Any:
    """Disk and cache first, then the network; never a repository's own code. Without a word of its own, the search for
    adapters beside a model asks the network all the same."""
    local_only = {"adapter_kwargs": {"local_files_only": True}} if loader is AutoModelForCausalLM else {}
    try:
        return loader.from_pretrained(place, local_files_only=True, trust_remote_code=False, **local_only, **options)
    except OSError:
        if isinstance(place, Path):
            raise
        ask_the_hub(place)
        return loader.from_pretrained(place, trust_remote_code=False, **options)


def _describe(lm: PreTrainedModel, tokenizer: Any, name: str, revision: str) -> Model:
    check_weights(lm.eval(), name)
    longest = getattr(lm.config.get_text_config(), "max_position_embeddings", TRAINED_ON)
    return Model(lm, tokenizer, name, revision, *shape_of(lm), longest)
