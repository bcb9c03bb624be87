"""Trained copies of a model as models of their own: a LoRA as the small adapter of peft's own format, with the name of
its base and which weights these were; any other copy whole. Both are folders that `load_model` and the pages take."""

import copy
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peft import get_peft_model_state_dict
from safetensors.torch import save_file
from transformers import PreTrainedModel

from .. import places
from ..files import folder_whole, write_json
from ..models.adapters import WEIGHTS, with_adapter

if TYPE_CHECKING:
    from ..models import Model

# How a copy was made.
ABOUT = "about.json"
# Where peft's own model holds the base.
PREFIX = "base_model.model."


def keep_copy(tuned: "Model", base: "Model", name: str, about: dict[str, Any]) -> str:
    """Write a trained copy of `base` as the model `finetuned/NAME`, in float32, with `about` it in about.json; returns
    that name. A LoRA is an adapter where its base can be found by its name, else it is merged. Errors: OSError."""
    adapted = getattr(tuned.lm, "peft_config", None)
    with folder_whole(places.CACHE / places.FINETUNED / name) as out:
        if adapted and places.revision(base.name) == base.revision:
            _write_adapter(tuned.lm, base, out)
            tuned.lm.config.save_pretrained(out)
        elif adapted:
            with tempfile.TemporaryDirectory() as folder:
                _write_adapter(tuned.lm, base, Path(folder))
                with_adapter(copy.deepcopy(base.lm).float(), Path(folder)).save_pretrained(out)
        else:
            tuned.lm.save_pretrained(out)
        tuned.tokenizer.save_pretrained(out)
        write_json(out / ABOUT, {"base": base.name, "base_revision": base.revision, **about})
    return f"{places.FINETUNED}/{name}"


def _write_adapter(lm: PreTrainedModel, base: "Model", out: Path) -> None:
    config: Any = copy.deepcopy(lm.peft_config["default"])
    config.base_model_name_or_path, config.revision = base.name, base.revision
    config.task_type, config.inference_mode = "CAUSAL_LM", True
    config.save_pretrained(str(out))
    tensors = get_peft_model_state_dict(lm)
    save_file({f"{PREFIX}{key}": value.detach().cpu().contiguous() for key, value in tensors.items()}, out / WEIGHTS)
