"""Take it along: a setting that a stored run is about, as a zip that runs on torch and transformers alone."""

from contextlib import closing, nullcontext
from pathlib import Path

import numpy as np

from analysis.errors import BadSetting
from analysis.files import write_whole
from analysis.runs import Result, Run, RunStore
from analysis.runs.again import command_of
from analysis.runs.studies import POLICY_FORMAT
from analysis.studies.context import Context, protocol
from analysis.studies.ready.candidates import FAMILIES, candidates
from analysis.studies.take.settings import STATES, Setting, settings_of
from analysis.take.carry import carry
from analysis.take.pack import pack, readme


def take(
    run: str, method: dict | None = None, output: str = "", model: str | None = None, *, context: Context
) -> Result:
    """The setting of a stored run (its id) as a zip: policy.json, tensors.safetensors, focuscope_attention.py, README.

    `method` says which, where the run is about several: {"name", "settings", "router", "policy"}, as far as that tells
    them apart. `model`: that of the run, if it is given. `output`: the file to write; a page gives none and reads the
    zip from the array `zip` (uint8). numbers: `label`, `file` (a name for it), `path`, `bytes`, `readme`, `sentence`.
    Errors: BadSetting for a run about no method, a method that cannot be taken along, weights that have changed.
    """
    if context.browser == bool(output):
        raise BadSetting(
            "A page keeps the zip with the run." if output else "Say where the zip goes: give -o FILE.zip."
        )
    if output and Path(output).exists():
        raise BadSetting(f"{output} is there already: give -o another name.")
    with nullcontext(context.store) if context.store else closing(RunStore()) as store:
        found = store.open(run)
    chosen = _chosen(found, method or {})
    name = found.request.get("model") or "demo"
    if model not in (None, name):
        raise BadSetting(f"The run {run} is of {name}, not of {model}: leave the model out.")
    lm = context.model(name)
    if (made := found.protocol.get("revision")) not in (None, lm.revision):
        raise BadSetting(f"The run {run} was made with other weights of {name} ({made}): run it again.")
    one = candidates(context, lm, [chosen.spec], FAMILIES)[0]
    told, tensors = carry(one.name, one.method, lm.num_layers)
    shape = {"layers": lm.num_layers, "heads": lm.num_heads, "kv_heads": lm.num_kv_heads, "width": lm.width}
    policy = {
        **{"format": POLICY_FORMAT, "method": one.name, "label": one.label, "model": lm.name, "revision": lm.revision},
        **shape,
        **told,
        **{"quality": chosen.quality, "protocol": found.protocol, "command": command_of(found)},
    }
    data = pack(policy, tensors)
    if output:
        with write_whole(Path(output)) as draft:
            draft.write_bytes(data)
    numbers = {
        **{"label": one.label, "file": f"focuscope-{one.name.replace('_', '-')}.zip", "path": output or None},
        **{"bytes": len(data), "readme": readme(policy)},
        "sentence": f"{one.label} in {len(data) / 1e3:,.0f} kB: unpack it beside your code and call attach(model).",
        "protocol": protocol("take", lm, kernel="none: nothing is computed", run=run),
    }
    return Result(numbers, arrays={} if output else {"zip": np.frombuffer(data, dtype=np.uint8)})


def _chosen(run: Run, method: dict) -> Setting:
    """The one setting of a run that is meant. Errors: BadSetting."""
    every = settings_of(run)
    if not every:
        raise BadSetting(
            f"The run {run.id} ({run.verb}) is about no method that reads less: take one that compares some."
        )
    meant = [one for one in every if _means(method, one.spec)]
    names = "; ".join(_spelled(one.spec) for one in every)
    if not meant:
        raise BadSetting(f"The run {run.id} has no such method; it has: {names}.")
    if len(meant) > 1:
        raise BadSetting(f"The run {run.id} has {len(meant)} settings: say which with --method and --set: {names}.")
    return meant[0]


def _means(method: dict, spec: dict) -> bool:
    """Whether nothing in `method` contradicts a setting."""
    settings, own = method.get("settings") or {}, spec.get("settings") or {}
    if method.get("name", spec["name"]) != spec["name"]:
        return False
    states = all(method.get(part) in (None, spec.get(part)) for part in STATES)
    return states and all(own.get(name, value) == value for name, value in settings.items())


def _spelled(spec: dict) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in (spec.get("settings") or {}).items())
    return f"{spec['name']} ({settings})" if settings else spec["name"]
