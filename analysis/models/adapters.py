"""A folder with the adapter of another model in peft's own format (LoRA): which model that is, and both together."""

from pathlib import Path

from transformers import PreTrainedModel

from .. import places
from ..errors import BadModel
from ..files import read_json

# Files of peft.
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def base_of(place: str | Path) -> str | None:
    """The name of the model that the adapter in a folder belongs to; None for a folder of a whole model. Errors:
    BadModel for an adapter of other weights than its base has now."""
    if not isinstance(place, Path) or (place / "model.safetensors").is_file() or not (place / CONFIG).is_file():
        return None
    about = read_json(place / CONFIG) or {}
    base, wanted = str(about.get("base_model_name_or_path") or ""), about.get("revision")
    revision = places.revision(base)
    if wanted and revision != wanted:
        raise BadModel(
            f"{place.name} is an adapter of {base or 'a model without a name'} with the weights {wanted}, and here are "
            f"{revision or 'none'}: bring those back, or train the adapter again."
        )
    return base


def with_adapter(lm: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """The model with the adapter of a folder merged into its weights: the same class, no longer an adapter."""
    from peft import PeftModel

    if not (folder / WEIGHTS).is_file():
        raise BadModel(f"The adapter {folder.name} lacks {WEIGHTS}: fetch it again, or choose another model.")
    return PeftModel.from_pretrained(lm, str(folder)).merge_and_unload()
