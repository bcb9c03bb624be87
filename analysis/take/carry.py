"""The zip that somebody takes along: a setting as plain data, its tensors, and the method's own source in one file.

`attach` is the part of that file that is not the method's. Nothing here imports it, because importing it registers an
attention function.
"""

import ast
import io
import json
import zipfile
from functools import cache
from typing import Any

from safetensors.torch import save
from torch import Tensor

from ..declaration import fields_of
from ..errors import BadSetting
from ..methods import METHODS
from ..methods.base import Method
from ..methods.bucket_routing import BucketRouting
from ..methods.csa import CSA
from ..methods.evicting import Evicting
from ..methods.while_decoding import WhileDecoding
from ..package import PROGRAM
from .flatten import PACKAGE, Flat, source

# Method -> the settings with which it can be taken along, name -> the one value.
TAKEN: dict[str, dict[str, Any]] = {
    name: vars(method)["exported_with"] for name, method in METHODS.items() if method.describe()["exported"]
}
ELSEWHERE = {  # method -> the command that writes it as serving stacks and other tools read it
    "skip_softmax": "sparse-config TEXT TEXT -o sparse.json",
    "duo_attention": "export-heads -o full_attention_heads.tsv",
    "triattention": "export-eviction TEXT TEXT -o triattention.pt",
    "kvzap": "export-eviction TEXT TEXT --method kvzap -o kvzap.safetensors",
    "indexer": "export-eviction TEXT TEXT --method indexer -o indexer.safetensors",
    "ada_kv": "export-eviction TEXT TEXT --method ada_kv -o shares.npy",
    "layer_reuse": "export-eviction TEXT TEXT --method layer_reuse -o pattern.txt",
}
# By what a method needs.
MAKERS = {"router": "with_router", "policy": "with_budgets", "buckets": "with_buckets"}
LEFT_BEHIND = (  # what the settings above never run, and what only the program itself calls
    *("Hooks.__init_subclass__", "Hooks.cache", "Hooks.renamed", "Method.fit", "Method.build"),
    *("CSA._follow_evicted", "CSA.rounded", "StreamingLLM.encode_tokens", "StreamingLLM._scores_of_sinks"),
    *("Focus.scores", "FocusRouter.gate", "FocusRouter.scores", "RouterSettings.__post_init__", "Router.tensors"),
    *("Router.fitted", "Evicting.rounded", "Hooks.attend", "Evicting.attend", "CompactLayer.follow"),
    *(f"WhileDecoding.{name}" for name, part in vars(WhileDecoding).items() if hasattr(part, "__get__")),
    *("GWRLinear.solve", "GWRLinear.weights_", "RoutingSettings.name"),
)
# Ranges of settings are checked before they leave; whoever edits policy.json has them in docs/policy.schema.json.
INSTEAD = {
    (f"{PACKAGE}.declaration", "field"): "def field(default, *about, **more):\n    return default",
    (f"{PACKAGE}.declaration", "fields_of"): "def fields_of(method):\n    return ()",
    # nobody times the parts of a call there
    (f"{PACKAGE}.kernels.parts", "part"): "from contextlib import nullcontext as part",
    # nothing is compiled there
    (f"{PACKAGE}.kernels.native.one_query", "attend_packed"): "def attend_packed(*about):\n    return None",
    # causal membership alone is taken along
    (f"{PACKAGE}.groups.router", "balanced"): (
        "def balanced(router, membership, *about):\n"
        '    raise ValueError(f"{membership.capitalize()} membership was left behind: set causal.")'
    ),
    (f"{PACKAGE}.routers", "ROUTERS"): "ROUTERS = {GWRLinear.kind: GWRLinear}",
}
CODE, OF_CACHE = "focuscope_attention.py", "focuscope_cache.py"
# The date of every file: equal settings give equal zips.
EARLY = (1980, 1, 1, 0, 0, 0)
# Types that transformers loads by name.
PLAIN = ("float32", "bfloat16", "float16", "float64")
# As far as a run has them.
PROTOCOL = ("text", "tokens", "window", "seed", "dtype", "device", "machine", "date")


# What the code that leaves gains, by what a method saves.
MASKS = "The code scores every key and masks what is not read: it shows the quality of a setting, not its speed."
SHRINKS = (
    "The code drops keys after the prompt or packs them, so the KV cache shrinks: `focuscope_cache.cache_bytes(cache)` "
    "counts it. It is a plain reference, and no fast kernel."
)


CACHE_DOCSTRING = """KV caches of transformers 5 that hold what eviction leaves, in full or in few bits, and no more.

A model that `focuscope_attention.attach` was called for fills them: layers in the place of those of a DynamicCache, or
a `CompactCache(model.config)` that is given to `generate`, as `cache` since transformers 5.24 and as `past_key_values`
before. `cache_bytes` counts what they hold.

Shapes: B texts, H query heads, G key-value heads, n new tokens, T tokens so far, D dimensions of a head.
"""


def carry(name: str, method: Method, layers: int) -> tuple[dict, dict[str, Tensor]]:
    """The part of a policy.json that is the own one of a method made for a model of so many layers, and its tensors,
    float32 by name.

    Errors: BadSetting, one sentence, for a method or a setting that the file that leaves does not know.
    """
    if name in ELSEWHERE:
        raise BadSetting(f"{method.title} leaves in a file of its own: {PROGRAM} {ELSEWHERE[name]}.")
    if name not in TAKEN:
        titles = ", ".join(METHODS[item].title for item in TAKEN if item != "dense")
        raise BadSetting(f"{method.title} cannot be taken along yet; these can: {titles}.")
    settings = {item.name: getattr(method, item.name) for item in fields_of(type(method))}
    for setting, value in TAKEN[name].items():
        if settings[setting] != value:
            words = f"{setting.replace('_', ' ')} {value} only, and here it is {settings[setting]}"
            raise BadSetting(f"{method.title} can be taken along with {words}.")
    policy: dict = {"settings": settings}
    tensors: dict[str, Tensor] = {}
    if method.needs == "router":
        router = method.addon()
        if router.settings.grouped_layers is not None:
            raise BadSetting(f"{method.title} can be taken along with groups in every layer only.")
        if router.heads > 1:
            raise BadSetting(f"{method.title} can be taken along with groups that all heads share only.")
        settings |= {"temperature": router.temperature, "similarity": router.settings.similarity}
        tensors = router.state_dict()
    if isinstance(method, Evicting):
        # as libraries for eviction take them, one for each layer
        policy["ratios"] = [method.ratio] * layers
    if isinstance(method, CSA):
        policy |= method.to_policy()
    if isinstance(method, BucketRouting) and method.fitted is not None:
        stored = method.fitted.tensors
        policy["rotated"] = list(method.fitted.settings.rotated)
        tensors = {"centroids": stored["centroids"], "weights": stored[f"{method.router}.weights"]}
    return policy, {name: tensor.detach().float().cpu() for name, tensor in tensors.items()}


@cache
def of_cache() -> Flat:
    """The file of the KV caches that free memory: what the seam and the kernels hold keys and values in."""
    module = f"{PACKAGE}.seam.cache"
    # what the file beside it calls
    flat = Flat(module, frozenset(LEFT_BEHIND), INSTEAD, mentioned={"attend", "counts", "plain", "scores"})
    for name in ("CompactLayer", "CompactCache", "cache_bytes"):
        flat.need(module, name)
    flat.need(f"{PACKAGE}.kernels.narrow", "STORAGES")
    flat.settle()
    return flat


@cache
def code(name: str) -> dict[str, str]:
    """The Python files that run a method of TAKEN elsewhere: `attach` and the method's own source, and the KV cache."""
    method, root = METHODS[name], f"{PACKAGE}.take.attach"
    maker, layer, files = MAKERS.get(method.needs, "with_settings"), (root, "AttachedLayer"), {}
    flat = Flat(root, frozenset(LEFT_BEHIND), INSTEAD)
    if issubclass(method, Evicting):
        layer = f"{PACKAGE}.take.freeing", "FreeingLayer"
        flat.beside = dict.fromkeys(of_cache().order, OF_CACHE.removesuffix(".py"))
        files = {OF_CACHE: of_cache().text(CACHE_DOCSTRING, [])}
    for place in ((root, "attach"), (root, maker), layer, (method.__module__, method.__name__)):
        flat.need(*place)
    tree = source(root).tree
    calls = [line for line in tree.body if isinstance(line, ast.Expr) and isinstance(line.value, ast.Call)]
    for call in calls:
        flat.scan(root, call)
    flat.settle()
    last = [*map(ast.unparse, calls), f'MADE["{name}"] = {method.__name__}, {maker}, {layer[1]}']
    return {CODE: flat.text(ast.get_docstring(tree, clean=False) or "", last)} | files


def pack(policy: dict, tensors: dict[str, Tensor], place: str = "") -> bytes:
    """A zip of policy.json (`policy`, see docs/policy.schema.json), tensors.safetensors where there are any, the Python
    file and a README. `place`: what transformers loads the model by, a folder or an id, where its name does not."""
    files = {"policy.json": json.dumps(policy, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"}
    if tensors:
        files["tensors.safetensors"] = save({name: tensor.contiguous() for name, tensor in tensors.items()})
    files |= {name: text.encode() for name, text in code(policy["method"]).items()}
    files["README.md"] = readme(policy, place).encode()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name, content in files.items():
            file.writestr(zipfile.ZipInfo(name, EARLY), content, zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def readme(policy: dict, place: str = "") -> str:
    """What is in the zip, how to run it, and how good it was, with its protocol. The model is loaded in the type that
    the quality was measured in: transformers' own choice is that of the checkpoint, which may be another."""
    quality, measured_by = policy["quality"], policy["protocol"]
    versions = " ".join(f"{name} {version}" for name, version in measured_by.get("versions", {}).items())
    protocol = ", ".join(f"{name} {measured_by[name]}" for name in PROTOCOL if measured_by.get(name) is not None)
    kind = measured_by.get("dtype") or ""
    loaded = f", dtype=torch.{kind}" if kind in PLAIN else ""
    measured = f"Measured: {quality or 'no quality was measured in this run.'}"
    gains = SHRINKS if METHODS[policy["method"]].saves == "memory" else MASKS
    if quality and not loaded:
        measured += f" It was measured with weights in {kind or 'an unknown type'}, not in these."
    return f"""# {policy["label"]}, a setting from Focuscope
For {policy["model"]} ({policy["layers"]} layers of {policy["heads"]} heads, weights {policy["revision"]}). \
Needs torch, transformers 5 and safetensors:

    import torch, focuscope_attention
    from transformers import AutoModelForCausalLM
    place = {place or policy["model"]!r}  # a folder is on the machine that made this: name your copy of it
    model = AutoModelForCausalLM.from_pretrained(place, attn_implementation="focuscope"{loaded})
    focuscope_attention.attach(model)  # from here on model(...) and model.generate(...) read by this setting

{measured}
Protocol: {protocol}; {versions}. Again: `{policy["command"]}`
{gains} No beam search.
"""
