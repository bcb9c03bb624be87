"""Methods whose weights were trained with a model and lie in its fitted state: which of them are there."""

from analysis.errors import NotFitted
from analysis.methods import METHODS
from analysis.methods.focal_learned import FocalWeights
from analysis.models import Model
from analysis.studies.context import Context

FITTED = ("focal_learned",)  # they run on models that have their weights only
REFUSED = {"performer": "attn_logit_softcapping"}  # not where the configuration sets this


def learned_temperatures(context: Context, model: Model) -> FocalWeights:
    """The learned temperatures of a model. Errors: NotFitted where it has none, BadSetting for a damaged file."""
    for folder in context.state_dirs(model):
        if (folder / FocalWeights.place).is_file():
            return FocalWeights.load(folder / FocalWeights.place)
    raise NotFitted(
        f"{model.name} has no learned temperatures: choose a model that was trained with them, or focal, whose "
        "temperature is a number."
    )


def ready(context: Context, model: Model) -> list[str]:
    """Names of the methods that run on this model as it is."""
    there = any((folder / FocalWeights.place).is_file() for folder in context.state_dirs(model))
    config = model.lm.config.get_text_config()
    able = [name for name in METHODS if not getattr(config, REFUSED.get(name, ""), None)]
    return [name for name in able if there or name not in FITTED]
