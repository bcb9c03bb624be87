"""The zip that somebody takes along, and the ten lines that explain it."""

import io
import json
import zipfile

from safetensors.torch import save
from torch import Tensor

from .carry import code

CODE = "focuscope_attention.py"
NAMES = ("policy.json", "tensors.safetensors", CODE, "README.md")
EARLY = (1980, 1, 1, 0, 0, 0)  # the date of every file: equal settings give equal zips
PLAIN = ("float32", "bfloat16", "float16", "float64")  # types that transformers loads by name
PROTOCOL = ("text", "tokens", "window", "seed", "dtype", "device", "machine", "date")  # as far as a run has them


def pack(policy: dict, tensors: dict[str, Tensor], place: str = "") -> bytes:
    """A zip of policy.json (`policy`, see docs/policy.schema.json), tensors.safetensors where there are any, the Python
    file and a README. `place`: what transformers loads the model by, a folder or an id, where its name does not."""
    files = {
        "policy.json": json.dumps(policy, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n",
        "tensors.safetensors": save({name: tensor.contiguous() for name, tensor in tensors.items()}),
        CODE: code(policy["method"]).encode(),
        "README.md": readme(policy, place).encode(),
    }
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name in NAMES:
            if tensors or name != "tensors.safetensors":
                entry = zipfile.ZipInfo(name, EARLY)
                entry.compress_type = zipfile.ZIP_DEFLATED
                file.writestr(entry, files[name])
    return archive.getvalue()


def readme(policy: dict, place: str = "") -> str:
    """What is in the zip, how to run it, and how good it was, with its protocol. The model is loaded in the type that
    the quality was measured in: transformers' own choice is that of the checkpoint, which may be another."""
    quality, measured_by = policy["quality"], policy["protocol"]
    shape = f"{policy['layers']} layers of {policy['heads']} heads"
    versions = " ".join(f"{name} {version}" for name, version in measured_by.get("versions", {}).items())
    protocol = ", ".join(f"{name} {measured_by[name]}" for name in PROTOCOL if measured_by.get(name) is not None)
    kind = measured_by.get("dtype") or ""
    loaded = f", dtype=torch.{kind}" if kind in PLAIN else ""
    elsewhere = (
        "" if loaded or not quality else f" It was measured with weights in {kind or 'an unknown type'}, not in these."
    )
    lines = [
        f"# {policy['label']}, a setting from Focuscope",
        f"For {policy['model']} ({shape}, weights {policy['revision']}). Needs torch, transformers 5 and safetensors:",
        "",
        "    import torch, focuscope_attention",
        "    from transformers import AutoModelForCausalLM",
        f"    place = {place or policy['model']!r}  # a folder is on the machine that made this: name your copy of it",
        f'    model = AutoModelForCausalLM.from_pretrained(place, attn_implementation="focuscope"{loaded})',
        "    focuscope_attention.attach(model)  # from here on model(...) and model.generate(...) read by this setting",
        "",
        f"Measured: {quality or 'no quality was measured in this run.'}{elsewhere}",
        f"Protocol: {protocol}; {versions}. Again: `{policy['command']}`",
        "The code scores every key and masks what is not read: it shows the quality of a setting, not its speed. "
        "No beam search.",
    ]
    return "\n".join(lines) + "\n"
