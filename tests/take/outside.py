"""Runs what was taken along, in a process that knows nothing of this project: `python -I outside.py JOBS.json`.

JOBS: a list of {"model", "folder", "ids", "mask", "cut", "new", "out"}, folders by path. Writes for each the logits of
the whole texts, those after the first `cut` tokens through the KV cache, greedy tokens, and how many keys and bytes are
held; where "static" is true also, beside it, what a static KV cache is answered.
"""

import importlib
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file


def static(model, ids: torch.Tensor) -> str:
    """Why a static KV cache is refused; empty where it is not."""
    try:
        model.generate(ids, max_new_tokens=2, cache_implementation="static")
    except RuntimeError as error:
        return str(error)
    return ""


def storages(thing, by_address: dict) -> dict:
    """The memory of all tensors that an object holds, by its address."""
    if isinstance(thing, torch.Tensor):
        by_address[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes()
    elif id(thing) not in by_address:
        by_address[id(thing)] = 0
        inside = thing.values() if isinstance(thing, dict) else thing if isinstance(thing, list | tuple) else ()
        for part in (*inside, *vars(thing).values()) if hasattr(thing, "__dict__") else inside:
            storages(part, by_address)
    return by_address


def main() -> None:
    """One job after the other, each with the code of its own folder."""
    with open(sys.argv[1], encoding="utf-8") as file:
        jobs = json.load(file)
    torch.set_num_threads(1)
    from transformers import AutoModelForCausalLM, logging

    logging.disable_progress_bar()
    for job in jobs:
        for name in ("focuscope_cache", "focuscope_attention"):
            sys.modules.pop(name, None)
        sys.path[0:0] = [job["folder"]]
        focuscope_attention = importlib.import_module("focuscope_attention")
        assert not [name for name in sys.modules if name.split(".")[0] in ("analysis", "app", "tests")]
        model = AutoModelForCausalLM.from_pretrained(job["model"], attn_implementation="focuscope").eval()
        focuscope_attention.attach(model, job["folder"])
        ids, mask = torch.tensor(job["ids"]), torch.tensor(job["mask"])
        with torch.no_grad():
            logits = model(ids, attention_mask=mask).logits
            cut = job["cut"]
            begun = model(ids[:, :cut], attention_mask=mask[:, :cut], use_cache=True)
            name = "cache" if "cache" in begun else "past_key_values"  # since transformers 5.24, before
            nbytes = torch.tensor(sum(storages(begun[name], {}).values()))
            after = model(ids[:, cut:], attention_mask=mask, **{name: begun[name]}).logits
            generation = {"max_new_tokens": job["new"], "min_new_tokens": job["new"], "do_sample": False}
            if job.get("own"):
                generation[name] = sys.modules["focuscope_cache"].CompactCache(model.config)
            written = model.generate(ids[:, :cut], attention_mask=mask[:, :cut], **generation)
        if job.get("static"):
            Path(job["out"]).with_suffix(".txt").write_text(static(model, ids[:, :cut]))
        layers = begun[name].layers
        counts = [layer.held.counts.max() if hasattr(layer, "held") else layer.keys.shape[2] for layer in layers]
        results = {"whole": logits, "after": after.contiguous(), "written": written, "bytes": nbytes}
        save_file(results | {"held": torch.tensor(list(map(int, counts)))}, job["out"])


if __name__ == "__main__":
    main()
