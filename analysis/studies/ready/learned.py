"""Methods whose weights were trained, with a model or for it, and lie in its fitted state: which of them are there."""

from analysis.corpus import token_stream
from analysis.errors import BadSetting, NotFitted
from analysis.methods import METHODS
from analysis.methods.focal_learned import FocalWeights
from analysis.models import Model
from analysis.runs import Result
from analysis.studies.context import Context, protocol
from analysis.training.focal import SHARE, FocalTraining, train_temperatures

FITTED = ("focal_learned",)  # they run on models that have their weights only
REFUSED = {"performer": "attn_logit_softcapping"}  # not where the configuration sets this


def learned_temperatures(context: Context, model: Model) -> FocalWeights:
    """The learned temperatures of a model. Errors: NotFitted where it has none, BadSetting for a damaged file."""
    for folder in context.state_dirs(model):
        if (folder / FocalWeights.place).is_file():
            return FocalWeights.load(folder / FocalWeights.place)
    raise NotFitted(
        f"{model.name} has no learned temperatures: train some with `fit-method focal_learned`, or choose focal, whose "
        "temperature is a number."
    )


def fit_temperatures(context: Context, model: Model, texts: list[str], told: dict, steps: int, seed: int) -> Result:
    """Train temperatures for a model that stays as it is, on windows of at most 1,024 tokens, and store them; `told`
    says of the protocol which texts they are. numbers: `path`, `tensors`, `held_out` (nats per token before and after,
    of windows that were not trained on), `temperature` (of each layer on them, beside dense attention, 1).
    Errors: BadSetting."""
    ids = token_stream(model.tokenizer, texts)
    plan = FocalTraining(steps=steps, length=max(2, min(1024, len(ids) // (2 * SHARE))), seed=seed)
    weights, log = train_temperatures(model, ids, plan, context.progress)
    told = protocol("fit-method", model, tokens=len(ids), window=plan.length, seed=seed, steps=steps, **told)
    path = context.state_dirs(model)[0] / FocalWeights.place
    try:
        weights.save(path, model=model.name, revision=model.revision, protocol=told)
    except OSError as error:
        raise BadSetting(f"The temperatures cannot be stored in {path.parent} ({error.strerror}).") from error
    shapes = {"w": list(weights.w.shape)}
    held_out = [log[at].get("held_out") for at in (0, -1)]
    return Result(
        {"path": str(path), "method": "focal_learned", "tensors": shapes, "protocol": told, "held_out": held_out}
        | {"temperature": log[-1]["temperature"]}
    )


def ready(context: Context, model: Model) -> list[str]:
    """Names of the methods that run on this model as it is."""
    there = any((folder / FocalWeights.place).is_file() for folder in context.state_dirs(model))
    config = model.lm.config.get_text_config()
    able = [name for name in METHODS if not getattr(config, REFUSED.get(name, ""), None)]
    return [name for name in able if there or name not in FITTED]
