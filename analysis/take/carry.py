"""What a method needs to run elsewhere: its setting as plain data, and its tensors.

`focuscope_attention.py` beside this file is what leaves the program, as it is. It knows the methods of `TAKEN`; nothing
here imports it, because importing it registers an attention function.
"""

from dataclasses import fields

from torch import Tensor

from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.package import PROGRAM

TAKEN: dict[str, dict] = {  # method -> the one value of a setting that the file that leaves knows
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
        titles = ", ".join(METHODS[one].title for one in TAKEN if one != "dense")
        raise BadSetting(f"{method.title} cannot be taken along yet; these can: {titles}.")
    for setting, value in TAKEN[name].items():
        if (own := getattr(method, setting)) != value:
            words = setting.replace("_", " ")
            raise BadSetting(f"{method.title} can be taken along with {words} {value} only, and here it is {own}.")
    told = {"settings": {one.name: getattr(method, one.name) for one in fields(method) if one.metadata}}
    tensors = {}
    if method.needs == "router":
        router = method.addon()
        told["settings"] |= {"temperature": router.temperature, "similarity": router.settings.similarity}
        tensors = {name: tensor.detach().float().cpu() for name, tensor in router.state_dict().items()}
    if method.saves == "memory":
        told["ratios"] = [method.ratio] * layers  # as libraries for eviction take them, one for each layer
    if method.needs == "policy":
        told |= method.to_policy()
    if method.needs == "buckets":
        held = method.fitted.tensors
        told["rotated"] = list(method.fitted.settings.rotated)
        tensors = {"centroids": held["centroids"], "weights": held[f"{method.router}.weights"]}
        tensors = {name: tensor.float().cpu() for name, tensor in tensors.items()}
    return told, tensors
