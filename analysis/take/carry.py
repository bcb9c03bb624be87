"""What a method needs to run elsewhere: its setting as plain data, its tensors, and its own source in one file.

`attach` is the part of that file that is not the method's. Nothing here imports it, because importing it registers an
attention function.
"""

from dataclasses import fields
from functools import cache

from torch import Tensor

from ..errors import BadSetting
from ..methods import METHODS
from ..methods.base import Method
from ..package import PROGRAM
from .flatten import PACKAGE, flattened

TAKEN: dict[str, dict] = {  # method -> the one value of a setting that can be taken along
    "dense": {},
    "focus": {"membership": "causal", "reading": "hard"},
    "csa": {"eviction": "never"},
    "bucket_routing": {"router": "gwr_linear"},
    "snapkv": {},
    "streaming_llm": {"positions": "original"},
    "oracle_topk": {"fraction": 0.0, "keep_window": 0},
    "focal": {},
    "tova": {},
    "keydiff": {},
}

MAKERS = {"router": "with_router", "policy": "with_budgets", "buckets": "with_buckets"}  # by what a method needs
LEFT_BEHIND = (  # what the settings above never run, and what only the program itself calls
    *("Hooks.__init_subclass__", "Hooks.cache", "Hooks.renamed", "Method.fit", "Method.build"),
    *("CSA._follow_evicted", "StreamingLLM.encode_tokens", "StreamingLLM._scores_of_sinks"),
)

ELSEWHERE = {  # method -> the command that writes it as serving stacks and other tools read it
    "skip_softmax": "sparse-config TEXT TEXT -o sparse.json",
    "duo_attention": "export-heads -o full_attention_heads.tsv",
}


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
    for setting, value in TAKEN[name].items():
        if (value_now := getattr(method, setting)) != value:
            words = setting.replace("_", " ")
            raise BadSetting(
                f"{method.title} can be taken along with {words} {value} only, and here it is {value_now}."
            )
    policy = {"settings": {item.name: getattr(method, item.name) for item in fields(method) if item.metadata}}
    tensors = {}
    if method.needs == "router":
        router = method.addon()
        policy["settings"] |= {"temperature": router.temperature, "similarity": router.settings.similarity}
        tensors = {name: tensor.detach().float().cpu() for name, tensor in router.state_dict().items()}
    if method.saves == "memory":
        policy["ratios"] = [method.ratio] * layers  # as libraries for eviction take them, one for each layer
    if method.needs == "policy":
        policy |= method.to_policy()
    if method.needs == "buckets":
        stored = method.fitted.tensors
        policy["rotated"] = list(method.fitted.settings.rotated)
        tensors = {"centroids": stored["centroids"], "weights": stored[f"{method.router}.weights"]}
        tensors = {name: tensor.float().cpu() for name, tensor in tensors.items()}
    return policy, tensors


@cache
def code(name: str) -> str:
    """The Python file that runs a method of TAKEN elsewhere: `attach` and the method's own source."""
    method = METHODS[name]
    maker = MAKERS.get(method.needs) or ("with_ratios" if method.saves == "memory" else "with_settings")
    return flattened(
        f"{PACKAGE}.take.attach",
        ["attach", maker],
        (method.__module__, method.__name__),
        LEFT_BEHIND,
        instead={(f"{PACKAGE}.routers", "ROUTERS"): "ROUTERS = {GWRLinear.kind: GWRLinear}"},
        last=[f'MADE["{name}"] = partial({maker}, {method.__name__})'],
    )
