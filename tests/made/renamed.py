"""A tiny Llama whose source calls the KV cache by a name that no version of transformers has."""

import importlib.util
import inspect
import re
import sys
from pathlib import Path

import torch
from transformers import GenerationMixin
from transformers.models.llama import modeling_llama

from tests.made.tiny import tiny

CACHES = r"\b(cache|past_key_values)\b"


def renamed(folder: Path, name: str = "memory"):
    """The tiny Llama, with its weights, whose forward, layers and attention modules take and return `name`.
    Its source is written to a folder."""
    original = tiny("llama")
    source = re.sub(r"[ ]*@deprecate_kwarg\(.*\)\n", "", inspect.getsource(modeling_llama))
    (usual,) = set(re.findall(CACHES, source))
    calls = re.compile(r"create_causal_mask\([^()]*\)")  # transformers' own function keeps its argument
    source = calls.sub(lambda call: call[0].replace(f"{name}=", f"{usual}="), re.sub(CACHES, name, source))
    place = folder / f"modeling_{name}.py"
    place.write_text(source)
    spec = importlib.util.spec_from_file_location(f"transformers.models.llama.{place.stem}", place)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # decorators look their module up
    spec.loader.exec_module(module)
    outputs = {"BaseModelOutputWithPast", "CausalLMOutputWithPast"}
    module.__dict__.update({kind: _returned(module.__dict__[kind], usual, name) for kind in outputs})

    class Renamed(module.LlamaForCausalLM):
        def generate(self, *args, **kwargs):
            if name in kwargs:
                kwargs[usual] = kwargs.pop(name)
            return GenerationMixin.generate(self, *args, **kwargs)

        def prepare_inputs_for_generation(self, *args, **kwargs):
            inputs = super().prepare_inputs_for_generation(*args, **kwargs)
            return {name if key == usual else key: value for key, value in inputs.items()}

        def _update_model_kwargs_for_generation(self, outputs, *args, **kwargs):
            outputs[usual] = outputs[name]
            return super()._update_model_kwargs_for_generation(outputs, *args, **kwargs)

        def _validate_model_kwargs(self, model_kwargs):
            """The base class knows the names of this version alone."""

    lm = Renamed(original.config).eval()
    lm.load_state_dict(original.state_dict())
    lm.generation_config.pad_token_id = 0
    return lm


def _returned(kind, usual: str, name: str):
    def make(**values):
        cache = values.pop(name)
        output = kind(**values)
        output[name] = cache
        return output

    return make


def greedy(lm, ids: torch.Tensor, count: int, **options) -> list[int]:
    """Tokens that the model writes after a text [1, T], by its own `generate`."""
    answer = lm.generate(ids, max_new_tokens=count, do_sample=False, eos_token_id=None, **options)
    return answer[0, ids.shape[1] :].tolist()
