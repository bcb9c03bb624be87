"""Learned temperatures: those in a model's fitted state, and training some for a model that stays as it is."""

from analysis.corpus import token_stream
from analysis.errors import BadSetting, NotFitted
from analysis.methods.focal_learned import FocalWeights
from analysis.models import Model
from analysis.runs import Result
from analysis.studies.context import Context, protocol
from analysis.training.focal import SHARE, FocalTraining, train_temperatures


def learned_temperatures(context: Context, model: Model) -> FocalWeights:
    """The learned temperatures of a model. Errors: NotFitted where it has none, BadSetting for a damaged file."""
    for path in context.stored(model, FocalWeights.place):
        return FocalWeights.load(path)
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
