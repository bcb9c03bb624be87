"""Take it along: a setting that a stored run is about, as a zip that runs on torch and transformers alone."""

import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ...answer import Answer, doc, record
from ...commands import commandline
from ...commands.quality import Take
from ...corpus import text_hash
from ...costs import Shape, read_config, read_shape
from ...errors import BadSetting
from ...files import write_bytes
from ...methods import METHODS
from ...methods.base import Method
from ...methods.evicting import Evicting
from ...models.counted import counted
from ...models.own import compressing
from ...places import locate
from ...runs import Run, RunStore
from ...runs.run import command_of
from ...runs.stored import POLICY_FORMAT
from ...take.carry import carry, pack, readme
from ..context import Context, protocol
from ..ready.candidates import FAMILIES, candidates
from ..worth.worth import config_text
from .leaving import stays
from .settings import STATES, Setting, settings_of


@record
class Taken(Answer):
    """A setting that was taken along."""

    label: str = doc("the method with what differs from its defaults")
    file: str = doc("a name for the zip")
    path: str | None = doc("where it lies; null on a page, which reads it from the array `zip`")
    bytes: int
    readme: str = doc("what is written beside it")
    sentence: str
    zip: np.ndarray | None = doc("the file, uint8, where it has no path", default=None)


def take(request: Take, *, context: Context) -> Taken:
    """The setting of a stored run as a zip: policy.json, tensors.safetensors, focuscope_attention.py, README.

    `method` says which, {"name", "settings", "router", "policy"} as far as that tells them apart. `run` may also name a
    method, to take it along with the settings of `method` and nothing measured; then `config` stands for the model.
    Errors: BadSetting for a run about no method, a method that cannot be taken along, weights that have changed.
    """
    output, run, method = request.output, request.run, request.method or {}
    if context.browser == bool(output):
        raise BadSetting("A page keeps the zip with the run." if output else "Say where the zip goes: -o FILE.zip.")
    if output and Path(output).exists():
        raise BadSetting(f"{output} is there already: give -o another name.")
    if run in METHODS and method.get("name", run) != run:
        raise BadSetting(f"{run} is to be taken along and {method['name']} is set: name one method.")
    if run in METHODS and not METHODS[run].needs:
        return _of_config(request, context)
    measured_by = None
    if run in METHODS:
        if request.config:
            raise BadSetting(f"{METHODS[run].title} is fitted to a model: name the model, whose weights it needs.")
        name, setting = request.model or "demo", Setting(method | {"name": run})
        command = commandline("take", asdict(request))
    else:
        stored = (context.store or RunStore()).open(run)
        if stored.request.get("instead"):
            raise BadSetting(
                f"In the run {run} methods choose in place of the model's own indexer, which stays where the code that "
                "leaves runs: take a method along from a run that keeps the indexer."
            )
        name, setting = stored.request.get("model") or "demo", _chosen(stored, method)
        state = stored.request.get("state")
        if state is not None and context.state is None:
            if context.browser:
                raise BadSetting(
                    f"The run {stored.id} was made with fitted state in {state}: take it on the command line."
                )
            context = copy.copy(context)
            context.state = Path(state)
        if request.model not in (None, name) and str(Path(request.model).resolve()) != name:
            raise BadSetting(f"The run {run} is of {name}, not of {request.model}: leave the model out.")
        measured_by, command = stored.protocol, command_of(stored, elsewhere=True)
    lm = context.model(name)
    own_protocol = protocol("take", lm, kernel="none: nothing is computed", run=run)
    measured_by = measured_by or own_protocol
    if (revision := measured_by.get("revision")) not in (None, lm.revision):
        raise BadSetting(f"The run {run} was made with other weights of {name} ({revision}): run it again.")
    candidate = candidates(context, lm, [setting.spec], FAMILIES)[0]
    # not every family is counted, and most methods leave for any
    if isinstance(candidate.method, Evicting) or compressing(lm):
        _check_leaves(candidate.method, lm.name, counted(lm))
    of_method, tensors = carry(candidate.name, candidate.method, lm.num_layers)
    sizes = {"layers": lm.num_layers, "heads": lm.num_heads, "kv_heads": lm.num_kv_heads, "width": lm.width}
    about = {"method": candidate.name, "label": candidate.label, "model": lm.name, "revision": lm.revision, **sizes}
    about |= of_method | {"quality": setting.quality, "protocol": measured_by, "command": command}
    return _packed(about, tensors, str(_place(name)), output, own_protocol)


def _of_config(request: Take, context: Context) -> Taken:
    """A method that is not fitted to a model, for the shape that a config.json says: no weights are needed."""
    method = METHODS[request.run]
    title, text = config_text(request.model or "demo", request.config, context)
    shape = read_shape(read_config(text, title))
    made = method(**(request.method or {}).get("settings") or {})
    _check_leaves(made, title, shape)
    of_method, tensors = carry(request.run, made, shape.reading)
    about: dict[str, Any] = {"method": request.run, "label": method.title, "model": title, "revision": text_hash(text)}
    about |= {"layers": shape.reading, "heads": shape.heads, "kv_heads": shape.kv_heads, "width": shape.width}
    protocol = {"verb": "take", "model": title, "revision": text_hash(text), "text": None, "tokens": None}
    protocol |= {"dtype": shape.dtype, "kernel": "none: nothing is computed"}
    told = asdict(request) | ({"config": "CONFIG.json", "model": None} if request.config else {})
    about |= of_method | {"quality": None, "protocol": protocol, "command": commandline("take", told)}
    return _packed(about, tensors, "MODEL" if request.config else str(_place(title)), request.output, protocol)


def _check_leaves(method: Method, model: str, shape: Shape) -> None:
    """Raise BadSetting where the code that leaves cannot run a method on a model of this shape."""
    if why := stays(method.title, method.saves, model, shape):
        raise BadSetting(why)


def _place(name: str) -> str | Path:
    """What transformers loads a model by."""
    place = locate(name)
    return place.resolve() if isinstance(place, Path) else place


def _packed(about: dict, tensors: dict, load_from: str, output: str, protocol: dict) -> Taken:
    policy = {"format": POLICY_FORMAT, **about}
    data = pack(policy, tensors, load_from)
    if output:
        write_bytes(Path(output), data)
    return Taken(
        label=about["label"],
        file=f"focuscope-{about['method'].replace('_', '-')}.zip",
        path=output or None,
        bytes=len(data),
        readme=readme(policy, load_from),
        sentence=f"{about['label']} in {len(data) / 1e3:,.0f} kB: unpack it beside your code and call attach(model).",
        zip=None if output else np.frombuffer(data, dtype=np.uint8),
        protocol=protocol,
    )


def _chosen(run: Run, method: dict) -> Setting:
    """The one setting of a run that nothing in `method` contradicts. Errors: BadSetting."""
    settings = settings_of(run)
    if not settings:
        raise BadSetting(
            f"The run {run.id} ({run.verb}) is about no method that reads less: take one that compares some."
        )
    matching = [setting for setting in settings if _fits(method, setting.spec)]
    if len(matching) == 1:
        return matching[0]
    spelled = []
    for setting in settings:
        values = ", ".join(f"{name} {value}" for name, value in (setting.spec.get("settings") or {}).items())
        spelled.append(f"{setting.spec['name']} ({values})" if values else setting.spec["name"])
    names = "; ".join(spelled)
    if not matching:
        raise BadSetting(f"The run {run.id} has no such method; it has: {names}.")
    raise BadSetting(f"The run {run.id} has {len(matching)} settings: say which with --method and --set: {names}.")


def _fits(method: dict, spec: dict) -> bool:
    if method.get("name", spec["name"]) != spec["name"]:
        return False
    settings = spec.get("settings") or {}
    states = all(method.get(part) in (None, spec.get(part)) for part in STATES)
    return states and all(settings.get(name, value) == value for name, value in (method.get("settings") or {}).items())
