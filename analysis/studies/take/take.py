"""Take it along: a setting that a stored run is about, as a zip that runs on torch and transformers alone."""

import copy
from contextlib import closing, nullcontext
from pathlib import Path

import numpy as np

from ...commands import commandline
from ...errors import BadSetting
from ...files import write_whole
from ...methods import METHODS
from ...places import locate
from ...runs import Result, Run, RunStore
from ...runs.run import command_of
from ...runs.stored import POLICY_FORMAT
from ...take.carry import carry, pack, readme
from ..context import Context, protocol
from ..ready.candidates import FAMILIES, candidates
from .settings import STATES, Setting, settings_of


def take(
    run: str, method: dict | None = None, output: str = "", model: str | None = None, *, context: Context
) -> Result:
    """The setting of a stored run (its id) as a zip: policy.json, tensors.safetensors, focuscope_attention.py, README.

    `method` says which, where the run is about several: {"name", "settings", "router", "policy"}, as far as that tells
    them apart. `run` may also name a method, to take it along with the settings of `method` and nothing measured.
    `model`: that of the run, if it is given. `output`: the file to write; a page gives none and reads the zip from the
    array `zip` (uint8). numbers: `label`, `file` (a name for it), `path`, `bytes`, `readme`, `sentence`.
    Errors: BadSetting for a run about no method, a method that cannot be taken along, weights that have changed.
    """
    if context.browser == bool(output):
        raise BadSetting(
            "A page keeps the zip with the run." if output else "Say where the zip goes: give -o FILE.zip."
        )
    if output and Path(output).exists():
        raise BadSetting(f"{output} is there already: give -o another name.")
    if run in METHODS:
        name, setting = model or "demo", _unmeasured(run, method or {})
        run_protocol = None
        command = commandline("take", {"run": run, "method": method, "model": model, "output": output})
    else:
        with nullcontext(context.store) if context.store else closing(RunStore()) as store:
            stored_run = store.open(run)
        name, setting = stored_run.request.get("model") or "demo", _chosen(stored_run, method or {})
        context = _as_then(stored_run, context)
        if model not in (None, name) and str(Path(model).resolve()) != name:
            raise BadSetting(f"The run {run} is of {name}, not of {model}: leave the model out.")
        run_protocol, command = stored_run.protocol, command_of(stored_run)
    lm = context.model(name)
    this_protocol = protocol("take", lm, kernel="none: nothing is computed", run=run)
    run_protocol = run_protocol or this_protocol
    if (revision := run_protocol.get("revision")) not in (None, lm.revision):
        raise BadSetting(f"The run {run} was made with other weights of {name} ({revision}): run it again.")
    candidate = candidates(context, lm, [setting.spec], FAMILIES)[0]
    of_method, tensors = carry(candidate.name, candidate.method, lm.num_layers)
    shape = {"layers": lm.num_layers, "heads": lm.num_heads, "kv_heads": lm.num_kv_heads, "width": lm.width}
    policy = {
        **{
            "format": POLICY_FORMAT,
            "method": candidate.name,
            "label": candidate.label,
            "model": lm.name,
            "revision": lm.revision,
        },
        **shape,
        **of_method,
        **{"quality": setting.quality, "protocol": run_protocol, "command": command},
    }
    place = locate(name)
    load_from = str(place.resolve() if isinstance(place, Path) else place)
    data = pack(policy, tensors, load_from)
    if output:
        with write_whole(Path(output)) as draft:
            draft.write_bytes(data)
    numbers = {
        **{
            "label": candidate.label,
            "file": f"focuscope-{candidate.name.replace('_', '-')}.zip",
            "path": output or None,
        },
        **{"bytes": len(data), "readme": readme(policy, load_from)},
        "sentence": f"{candidate.label} in {len(data) / 1e3:,.0f} kB: unpack it beside your code and call "
        "attach(model).",
        "protocol": this_protocol,
    }
    return Result(numbers, arrays={} if output else {"zip": np.frombuffer(data, dtype=np.uint8)})


def _unmeasured(name: str, method: dict) -> Setting:
    """A method by its name, with settings. Errors: BadSetting."""
    if method.get("name", name) != name:
        raise BadSetting(f"{name} is to be taken along and {method['name']} is set: name one method.")
    return Setting(method | {"name": name})


def _as_then(run: Run, context: Context) -> Context:
    """The context with the fitted state that a run of the command line was made with. Errors: BadSetting."""
    state = run.request.get("state")
    if state is None or context.state is not None:
        return context
    if context.browser:
        raise BadSetting(f"The run {run.id} was made with fitted state in {state}: take it on the command line.")
    with_state = copy.copy(context)
    with_state.state = Path(state)
    return with_state


def _chosen(run: Run, method: dict) -> Setting:
    """The one setting of a run that is meant. Errors: BadSetting."""
    every = settings_of(run)
    if not every:
        raise BadSetting(
            f"The run {run.id} ({run.verb}) is about no method that reads less: take one that compares some."
        )
    matching = [candidate for candidate in every if _means(method, candidate.spec)]
    names = "; ".join(_spelled(candidate.spec) for candidate in every)
    if not matching:
        raise BadSetting(f"The run {run.id} has no such method; it has: {names}.")
    if len(matching) > 1:
        raise BadSetting(f"The run {run.id} has {len(matching)} settings: say which with --method and --set: {names}.")
    return matching[0]


def _means(method: dict, spec: dict) -> bool:
    """Whether nothing in `method` contradicts a setting."""
    settings, spec_settings = method.get("settings") or {}, spec.get("settings") or {}
    if method.get("name", spec["name"]) != spec["name"]:
        return False
    states = all(method.get(part) in (None, spec.get(part)) for part in STATES)
    return states and all(spec_settings.get(name, value) == value for name, value in settings.items())


def _spelled(spec: dict) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in (spec.get("settings") or {}).items())
    return f"{spec['name']} ({settings})" if settings else spec["name"]
