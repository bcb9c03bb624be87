"""`docs/try.html`: the bundled model's whole forward pass in the browser, for a text of the reader's own."""

import gzip
import json
import struct
from pathlib import Path
from typing import Any

from ..answer import Answer, doc, record
from ..commands.text import TryPage
from ..corpus import sample_texts
from ..errors import BadSetting
from ..files import write_text
from ..places import CACHE
from ..runs.run import no_model
from .page import body, whole

SCRIPTS = ("workers", "tokenizer", "reading", "view", "try")
# Characters of each sample, which are about 500 tokens.
LENGTH = 1500
SIZES = {
    **{"layers": "num_hidden_layers", "heads": "num_attention_heads", "groups": "num_key_value_heads"},
    **{"width": "hidden_size", "size": "head_dim", "eps": "rms_norm_eps"},
}


@record
class Tried(Answer):
    """A page that was written."""

    path: str = doc("the file")
    bytes: int = doc("its size")


def try_page(request: TryPage) -> Tried:
    """Write one HTML file that runs the bundled model by itself.

    Errors: BadSetting when the file cannot be written.
    """
    path = Path(request.output)
    page = made(CACHE / "demo")
    try:
        write_text(path, page)
    except OSError as error:
        raise BadSetting(f"{path} cannot be written ({error.strerror}): name another file.") from error
    return Tried(path=str(path), bytes=len(page.encode()), protocol=no_model("try-page"))


def made(folder: Path) -> str:
    """The page of a model, as `held` reads it."""
    model, packed = held(folder)
    texts = {name.capitalize(): text[:LENGTH] for name, (_, text) in sample_texts().items()}
    data = {"model": model | {"texts": texts}, "weights": packed}
    return whole("Focuscope: try it here", body("try.html"), SCRIPTS, data)


def held(folder: Path) -> tuple[dict, bytes]:
    """What the scripts need of a Llama-like model whose weights are bfloat16 and tied, without biases: its sizes and
    its tokenizer, and its packed weights."""
    packed, manifest = _weights(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    sizes = {name: config[field] for name, field in SIZES.items()} | {"theta": config["rope_parameters"]["rope_theta"]}
    # What tokenizer.js needs of a byte-level BPE without a normaliser.
    pieces, (special,) = tokenizer["model"], tokenizer["added_tokens"]
    coder = {
        "vocabulary": sorted(pieces["vocab"], key=pieces["vocab"].get),
        "merges": [pair if isinstance(pair, str) else " ".join(pair) for pair in pieces["merges"]],
        "special": special["content"],
    }
    model: dict[str, Any] = {"config": sizes, "manifest": manifest, "tokenizer": coder}
    model["numbers"] = sum(size for _, _, size in manifest)
    return model, gzip.compress(packed, 9, mtime=0)


def _weights(path: Path) -> tuple[bytes, list[tuple[str, int, int]]]:
    """All numbers of a file of bfloat16 tensors, their upper bytes in front of their lower ones, which packs them a
    third smaller; and (short name, first number, count) of each."""
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    entries, numbers = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    entries.pop("__metadata__", None)
    assert all(entry["dtype"] == "BF16" for entry in entries.values()), "the page reads bfloat16"
    manifest = []
    for name, entry in entries.items():
        start, stop = entry["data_offsets"]
        manifest.append((_short(name), start // 2, (stop - start) // 2))
    return numbers[1::2] + numbers[::2], manifest


def _short(name: str) -> str:
    for word in ("model.", "layers.", "self_attn.", "mlp.", ".weight"):
        name = name.replace(word, "")
    return name
