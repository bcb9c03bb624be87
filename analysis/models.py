"""Loading any Hugging Face causal language model safely, its shapes, and whether its attention can be replaced."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from accelerate import init_empty_weights
from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from analysis.errors import AnalysisError, BadModel, TooLarge
from analysis.refusals import explain

disable_progress_bar()  # progress is reported by whoever asked for the model

CACHE = Path(__file__).parent.parent / "models_cache"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
HASHED_WHOLE = 64 << 20  # bytes; of a larger weight file only its ends are hashed

BYPASS = {  # families whose attention does not pass through transformers' attention interface
    "gptj": "GPT-J",
    "gpt_neo": "GPT-Neo",
    "falcon": "Falcon",
    "bloom": "BLOOM",
    "mpt": "MPT",
    "codegen": "CodeGen",
}
SINKS = {"gpt_oss": "gpt-oss"}  # an extra learned logit in every softmax


@dataclass
class Model:
    """A causal language model with its tokenizer and the shapes the analysis needs.

    `lm` the transformers model in evaluation mode; `num_layers` L, `num_heads` H, `num_kv_heads` G, `head_dim` D,
    `max_positions` the longest context in tokens; `revision` names the weights (hub commit or content hash).
    """

    lm: PreTrainedModel
    tokenizer: object
    name: str
    revision: str
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_positions: int

    @property
    def device(self) -> torch.device:
        return self.lm.device

    @property
    def dtype(self) -> torch.dtype:
        return self.lm.dtype

    @property
    def width(self) -> int:
        """Size of the hidden states that enter an attention layer."""
        return self.lm.config.get_text_config().hidden_size

    @property
    def family(self) -> str:
        return self.lm.config.model_type

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.lm.parameters())

    @property
    def weight_bytes(self) -> int:
        return sum(p.numel() * p.element_size() for p in self.lm.parameters())

    @property
    def state_dir(self) -> Path:
        """Where what was fitted on this model lives: `models_cache/demo`, or `models_cache/<model>/<revision>`."""
        if self.name == "demo":
            return CACHE / "demo"
        return CACHE / re.sub(r"[^\w.-]+", "--", self.name).strip("-.") / self.revision


def load_model(
    name: str | PreTrainedModel = "demo",
    device: str = "auto",
    dtype: str = "auto",
    tokenizer=None,
    root: Path | None = None,
) -> Model:
    """Load a causal language model for analysis.

    `name`: `demo` (bundled), a Hub id, a local folder, or a model you already hold (then give `tokenizer`).
    `device`: `auto` takes a CUDA device when there is one. `dtype`: `auto` is float32 on the CPU and the checkpoint's
    own type elsewhere. `root`: when given, local folders must lie below it (the browser's restriction).
    Files on disk and in the Hugging Face cache are used before any download; code of a repository is never run.
    Raises BadModel (what cannot be loaded, or whose attention cannot be replaced honestly) and TooLarge.
    """
    if isinstance(name, PreTrainedModel):
        refuse_family(name.config)
        label = Path(name.config._name_or_path or name.config.model_type).name
        return _describe(name, tokenizer, label, f"memory-{_hash_parameters(name)}")
    place = _locate(name, root)
    device = device if device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
    config = _from_pretrained(AutoConfig, name, place)
    refuse_family(config)
    kind = _weight_type(config, device, dtype)
    check_memory(name, config, kind, device)
    lm = _from_pretrained(AutoModelForCausalLM, name, place, use_safetensors=True, dtype=kind).to(device)
    tokenizer = tokenizer or _from_pretrained(AutoTokenizer, name, place)
    if not tokenizer.is_fast:
        raise BadModel(f"{name} has no fast tokenizer, so tokens cannot be placed in the text: use a copy with one.")
    commit = getattr(config, "_commit_hash", None)
    return _describe(lm, tokenizer, str(name), commit[:12] if commit else _hash_folder(Path(place)))


def attention_modules(lm: PreTrainedModel) -> list[torch.nn.Module]:
    """The attention module of every layer, in order of layers. Raises BadModel when they cannot be told apart."""
    found = [m for m in lm.modules() if hasattr(m, "layer_idx") and "attention" in type(m).__name__.lower()]
    found.sort(key=lambda m: m.layer_idx)
    layers = lm.config.get_text_config().num_hidden_layers
    if [m.layer_idx for m in found] != list(range(layers)):
        raise BadModel(
            f"{type(lm).__name__} has {layers} layers but {len(found)} attention modules could be found: "
            "its attention cannot be followed layer by layer, so choose another model."
        )
    return found


def refuse_family(config) -> None:
    """Raise BadModel for a family whose attention cannot be replaced, by name and with the reason."""
    family = config.get_text_config().model_type
    if family in SINKS:
        raise BadModel(
            f"{SINKS[family]} models put a learned sink logit into every softmax, which the statistics here do not "
            "define: choose a model with a plain softmax, such as Llama, Qwen, Mistral, Gemma 2, OLMo 2, GPT-2 "
            "or Pythia."
        )
    known = type(config) in AutoModelForCausalLM._model_mapping
    if known and not AutoModelForCausalLM._model_mapping[type(config)]._supports_attention_backend or family in BYPASS:
        raise BadModel(
            f"{BYPASS.get(family, family)} models bypass transformers' attention interface, so their attention "
            "cannot be "
            "replaced: choose a Llama, Qwen, Mistral, Gemma 2, OLMo 2, GPT-2 or Pythia model."
        )
    if not known:
        raise BadModel(f"{family!r} is not a causal language model that transformers knows: choose one that is.")


def check_memory(name: str, config, dtype: torch.dtype, device: str) -> int:
    """Bytes the weights will take, from the configuration alone. Raises TooLarge before anything is loaded."""
    needed = parameter_count(config) * dtype.itemsize
    free = torch.cuda.mem_get_info()[0] if device.startswith("cuda") else psutil.virtual_memory().available
    if needed > 0.9 * free:
        raise TooLarge(
            f"{name} needs {needed / 1e9:,.1f} GB for its weights in {str(dtype)[6:]} and {free / 1e9:,.1f} GB "
            "are free "
            f"on {device}: choose a smaller model, or a machine with more memory."
        )
    return needed


def parameter_count(config) -> int:
    """Parameters of the model a configuration describes; no weights are made."""
    with init_empty_weights():
        lm = AutoModelForCausalLM.from_config(config)
    lm.tie_weights()
    return sum(p.numel() for p in lm.parameters())


def _locate(name: str, root: Path | None) -> str | Path:
    """A local folder or a Hub id. With `root`, anything else than a folder below it or a Hub id is refused."""
    if name == "demo":
        return CACHE / "demo"
    folder = (root / name if root else Path(name)).expanduser()
    if root is None and folder.is_dir():
        return folder
    if root is not None and folder.is_dir() and folder.resolve().is_relative_to(root.resolve()):
        return folder
    if not HUB_ID.fullmatch(name) or ".." in name or (root and Path(name).exists()):
        where = f" Folders must lie below {root.name}/." if root else ""
        raise BadModel(
            f"{name[:80]!r} is no folder here and no Hugging Face id: write it like Qwen/Qwen2.5-0.5B.{where}"
        )
    return name


def _from_pretrained(loader, name, place, **options):
    """Disk and cache first, then the network; every failure becomes one sentence."""
    options |= {"trust_remote_code": False}
    try:
        try:
            return loader.from_pretrained(place, local_files_only=True, **options)
        except OSError:
            if isinstance(place, Path):
                raise
            return loader.from_pretrained(place, **options)
    except AnalysisError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError, HFValidationError, SafetensorError) as error:
        raise BadModel(explain(name, place, error)) from error


def _weight_type(config, device: str, dtype: str) -> torch.dtype:
    if dtype != "auto":
        return getattr(torch, dtype)
    own = getattr(config, "dtype", None)
    return torch.float32 if device == "cpu" or own is None else own


def _describe(lm: PreTrainedModel, tokenizer, name: str, revision: str) -> Model:
    config = lm.config.get_text_config()
    heads = config.num_attention_heads
    attention_modules(lm)
    return Model(
        lm=lm.eval(),
        tokenizer=tokenizer,
        name=name,
        revision=revision,
        num_layers=config.num_hidden_layers,
        num_heads=heads,
        num_kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        max_positions=config.max_position_embeddings,
    )


def _hash_folder(folder: Path) -> str:
    """Twelve digits over the configuration and the weight files (of very large ones the size and both ends)."""
    digest = hashlib.sha256()
    for path in [folder / "config.json", *sorted(folder.glob("*.safetensors"))]:
        size = path.stat().st_size
        with path.open("rb") as file:
            if size <= HASHED_WHOLE:
                digest.update(file.read())
            else:
                digest.update(size.to_bytes(8, "little") + file.read(1 << 20))
                file.seek(-(1 << 20), 2)
                digest.update(file.read())
    return digest.hexdigest()[:12]


def _hash_parameters(lm: PreTrainedModel) -> str:
    digest = hashlib.sha256()
    for name, value in lm.named_parameters():
        digest.update(f"{name}{tuple(value.shape)}{value.detach().double().sum().item()!r}".encode())
    return digest.hexdigest()[:12]
