"""`make-shape`: a checkpoint of a real model's shape with random weights, to measure time and memory on."""

import gc
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig, PreTrainedModel

from .answer import Answer, doc, record
from .costs import KNOWN, Shape, Uncounted, read_config, read_shape
from .errors import BadModel, BadSetting, TooLarge
from .files import draft, move, write_json, write_text
from .models import RANDOM, count_parameters, refuse_family
from .places import CACHE, explained
from .runs.price import spell_bytes
from .runs.run import no_model
from .seam.layers import causal_class, draw_weights, empty_model

KIND = torch.bfloat16
# Bytes of one file of weights, and of main memory that writing it takes.
SHARD = 1 << 30
# Bytes of the disk that stay free.
LEFT = 1 << 30


@record
class ShapeMade(Answer):
    """A checkpoint of a real model's shape."""

    path: str = doc("its folder")
    parameters: int
    bytes: int = doc("of the weights")
    files: int = doc("of weights")
    said: str = doc("what it is good for")


def make_shape(
    shape: str,
    output: str,
    progress: Callable[[float, str], None] | None = None,
    layers: int | None = None,
) -> ShapeMade:
    """Write a checkpoint with random weights: bfloat16 safetensors in shards, the bundled model's byte-level tokenizer.

    `shape`: a config.json, or a known model such as `Qwen2.5-0.5B`, with or without its owner. `output`: a folder that
    is not there yet. `layers`: so many of its layers, of each kind one as far as they reach, a reader of keys first.
    The weights are drawn as the family draws them before training, one module at a time; a quantised model's are
    bfloat16 too, and of a model that also sees or hears the text part is made.
    Errors: BadSetting (no such shape, the folder is there), BadModel (a shape that cannot be made), TooLarge (what it
    would take is not free on the disk or in memory).
    """
    name, config = _told(shape)
    counted = _counted(config, layers)
    out = Path(output).expanduser()
    if out.exists():
        raise BadSetting(f"{output} is there already: name a folder that is not.")
    if not config.get("model_type"):
        raise BadSetting(f"The config of {name} names no model_type: add it.")
    with explained(name, out):
        kind = config.pop("model_type")
        config.pop("quantization_config", None)
        family_config = AutoConfig.for_model(kind, **config | {"dtype": "bfloat16"})
        text = family_config.get_text_config()
        family_config = text if causal_class(text) is not None else family_config
        family_config.random_weights = True
        refuse_family(family_config)
        if layers is not None and counted is not None:
            _cut(text, counted, layers)
        lm = empty_model(family_config, dtype=KIND)
    lm.tie_weights()
    sizes = [p.numel() * p.element_size() for p in lm.parameters()]
    parameters = count_parameters(lm)
    _refuse(name, out, sum(sizes), SHARD + max(sizes))
    vocabulary = AutoTokenizer.from_pretrained(CACHE / "demo", local_files_only=True)
    if len(vocabulary) > text.vocab_size:
        raise BadModel(
            f"{name} has a vocabulary of {text.vocab_size:,} and the tokenizer that is written beside it has "
            f"{len(vocabulary):,} tokens: give a shape with a larger one."
        )
    with draft(out.parent, out.name) as part:
        files = _write(lm, part, sum(sizes), progress or (lambda fraction, stage: None))
        lm.config.architectures = [type(lm).__name__]
        lm.config.save_pretrained(part)
        longest = getattr(text, "max_position_embeddings", None)
        vocabulary.model_max_length = longest or vocabulary.model_max_length
        vocabulary.save_pretrained(part)
        about = f"{parameters:,} parameters in bfloat16. {RANDOM}"
        write_text(part / "README.md", f"# {name}, its shape with random weights\n\n{about}\n")
        move(part, out)
    protocol = no_model("make-shape")
    return ShapeMade(
        path=str(out), parameters=parameters, bytes=sum(sizes), files=files, said=RANDOM, protocol=protocol
    )


def shaped(shape: str, device: torch.device, layers: int | None = None) -> PreTrainedModel:
    """A model of a known shape with random weights in bfloat16, made on the device."""
    config = {name: value for name, value in KNOWN[shape].items() if name != "model_type"}
    config |= {} if layers is None else {"num_hidden_layers": layers}
    family = AutoConfig.for_model(KNOWN[shape]["model_type"], **config)
    family.name_or_path = shape
    with torch.device(device):
        return AutoModelForCausalLM.from_config(family, dtype=KIND).eval()


def _counted(config: dict, layers: int | None) -> Shape | None:
    """The shape, which is refused where no model can have it; None of a family that is made without being counted."""
    try:
        return read_shape(config)
    except Uncounted:
        if layers is not None:
            raise
        return None


def _cut(config: PreTrainedConfig, counted: Shape, layers: int) -> None:
    """Cut a configuration to so many of its layers. Errors: BadSetting."""
    total = counted.layers
    if not 1 <= layers <= total:
        raise BadSetting(f"This shape has {total} layers: make all of them, or 1 to {total}, not {layers}.")
    stack = counted.stack
    kinds = sorted({stack.index(layer) for layer in stack})
    reader = [place for place in kinds if stack[place].entries][:1]
    places = sorted([*dict.fromkeys([*reader, *kinds, *range(total)])][:layers])
    by_layer = config.to_dict().get("per_layer_config") or {}
    if by_layer:
        config.per_layer_config = None
    for name, value in vars(config).copy().items():
        if isinstance(value, list) and len(value) == total:
            setattr(config, name, [value[place] for place in places])
    config.num_hidden_layers = layers
    if by_layer:
        sizes = {int(place): size for place, size in by_layer.items()}
        config.per_layer_config = {new: sizes[old] for new, old in enumerate(places) if old in sizes}
    dense = sum(place < getattr(config, "first_k_dense_replace", 0) for place in places)
    for name, value in (("first_k_dense_replace", dense), ("num_kv_shared_layers", 0)):
        if getattr(config, name, 0):
            setattr(config, name, value)
    # Jamba and Bamba say by numbers where attention is
    reading = [new for new, old in enumerate(places) if stack[old].entries]
    if hasattr(config, "attn_layer_indices"):
        config.attn_layer_indices = reading
    if hasattr(config, "attn_layer_offset") and reading:
        config.attn_layer_offset, config.attn_layer_period = reading[0], max(layers, reading[0] + 1)


def _told(shape: str) -> tuple[str, dict]:
    """(name, config) of a file, or of a known model by its name."""
    named = {name.partition("/")[2].lower(): name for name in KNOWN}
    if name := named.get(shape.rpartition("/")[2].lower()):
        return name, dict(KNOWN[name])
    path = Path(shape).expanduser()
    if not path.is_file():
        names = ", ".join(name.partition("/")[2] for name in KNOWN)
        raise BadSetting(f"{shape[:80]!r} is neither a file nor a known shape: give a config.json, or one of {names}.")
    return path.name, read_config(path.read_text(encoding="utf-8-sig", errors="replace"), path.name)


def _refuse(name: str, out: Path, disk: int, memory: int) -> None:
    """Refuse what does not fit, before anything is written."""
    disk_folder = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    for needed, free, where in (
        (disk, shutil.disk_usage(disk_folder).free - LEFT, f"on the disk of {disk_folder}"),
        (memory, psutil.virtual_memory().available, "in memory"),
    ):
        if needed > free:
            raise TooLarge(
                f"{name} takes {spell_bytes(needed)} and {spell_bytes(max(free, 0))} are free {where}: choose a "
                "smaller shape, or make room."
            )


def _write(lm: PreTrainedModel, folder: Path, size: int, progress: Callable[[float, str], None]) -> int:
    """Draw the weights of a model that lies on the meta device and write them shard by shard; returns their number."""
    shards: dict[str, str] = {}
    shard: dict[str, torch.Tensor] = {}
    shard_bytes = done = 0

    def close() -> None:
        file = f"model-{len(set(shards.values())) + 1:05d}.safetensors"
        save_file(shard, folder / file, {"format": "pt"})
        shards.update(dict.fromkeys(shard, file))
        shard.clear()
        gc.collect()

    for name, value in _drawn(lm):
        if shard and shard_bytes + value.nbytes > SHARD:
            close()
            shard_bytes = 0
        shard[name], shard_bytes = value, shard_bytes + value.nbytes
        before, done = done, done + value.nbytes
        if 20 * done // size > 20 * before // size:
            progress(done / size, f"{spell_bytes(done)} of {spell_bytes(size)} drawn")
    close()
    index = {"metadata": {"total_size": size}, "weight_map": shards}
    write_json(folder / "model.safetensors.index.json", index)
    return len(set(shards.values()))


@torch.no_grad()
def _drawn(lm: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, values) of every parameter, tied ones once, and of what else a checkpoint holds; only one module's are in
    memory."""
    once = {name for name, _ in lm.named_parameters()} | (lm.state_dict().keys() & dict(lm.named_buffers()).keys())
    for place, module in lm.named_modules():
        buffers = dict(module.named_buffers(recurse=False))
        names = [*dict(module.named_parameters(recurse=False)), *buffers]
        full = {name: f"{place}.{name}" if place else name for name in names}
        if not once.intersection(full.values()):
            continue
        module.to_empty(device="cpu", recurse=False)
        for name in buffers:
            getattr(module, name).zero_()
        # what encloses a module may draw its weights after it
        for depth in range(place.count(".") + 1, -1, -1):
            draw_weights(lm, lm.get_submodule(".".join(place.split(".")[:depth])))
        yield from [(full[name], getattr(module, name).detach()) for name in names if full[name] in once]
        module.to_empty(device="meta", recurse=False)
