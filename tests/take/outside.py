"""Runs what was taken along, in a process that knows nothing of this project: `python -I outside.py JOBS.json`.

JOBS: a list of {"model", "folder", "ids", "mask", "cut", "new", "out"}, folders by path. Writes for each the logits of
the whole texts, those after the first `cut` tokens through the KV cache, greedy tokens, and how many keys are held;
where "static" is true also, beside it, what a static KV cache is answered. Prints the methods that the code knows.
"""

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


def main() -> None:
    """One job after the other; the code that was taken is imported from the first folder."""
    with open(sys.argv[1], encoding="utf-8") as file:
        jobs = json.load(file)
    torch.set_num_threads(1)
    sys.path.insert(0, jobs[0]["folder"])
    import focuscope_attention
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    assert not [name for name in sys.modules if name.split(".")[0] in ("analysis", "app", "tests")]
    for job in jobs:
        model = AutoModelForCausalLM.from_pretrained(job["model"], attn_implementation="focuscope").eval()
        focuscope_attention.attach(model, job["folder"])
        ids, mask = torch.tensor(job["ids"]), torch.tensor(job["mask"])
        with torch.no_grad():
            whole = model(ids, attention_mask=mask).logits
            cut = job["cut"]
            begun = model(ids[:, :cut], attention_mask=mask[:, :cut], use_cache=True)
            name = "cache" if "cache" in begun else "past_key_values"  # since transformers 5.24, before
            after = model(ids[:, cut:], attention_mask=mask, **{name: begun[name]}).logits
            asked = {"max_new_tokens": job["new"], "min_new_tokens": job["new"], "do_sample": False}
            written = model.generate(ids[:, :cut], attention_mask=mask[:, :cut], **asked)
        if job.get("static"):
            Path(job["out"]).with_suffix(".txt").write_text(static(model, ids[:, :cut]))
        held = torch.tensor([layer.keys.shape[2] for layer in begun[name].layers])
        save_file({"whole": whole, "after": after.contiguous(), "written": written, "held": held}, job["out"])
    print(*focuscope_attention.RULES)


if __name__ == "__main__":
    main()
