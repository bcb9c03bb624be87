"""`python -I in_kvpress.py FOLDER`: which keys kvpress keeps of a prompt, and the greedy tokens after it."""

import json
import sys
from pathlib import Path

import kvpress
import torch
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.utils import logging

PRESSES = {
    "snapkv": kvpress.SnapKVPress,
    "tova": kvpress.TOVAPress,
    "keydiff": kvpress.KeyDiffPress,
    "pyramid_kv": kvpress.PyramidKVPress,
    "expected_attention": kvpress.ExpectedAttentionPress,
    "h2o": kvpress.ObservedAttentionPress,
}


def press_of(rule: str, ratio: float):
    """A press, and a dict that takes the places [[G, ...] per layer] of the keys that it keeps."""
    name = rule.removeprefix("ada_kv of ")
    applied = press = PRESSES[name](compression_ratio=ratio)
    if name != rule:
        applied = kvpress.AdaKVPress(press)
    stays, compress = {}, applied.compress

    def noted(module, hidden_states, keys, values, attentions, kwargs):
        left = compress(module, hidden_states, keys, values, attentions, kwargs)
        if name != rule:  # keys are masked, not dropped
            mask = torch.ones(keys.shape[1:3], dtype=torch.bool)
            mask[module.masked_key_indices[1], module.masked_key_indices[2]] = False
        else:
            mask = (keys[0, :, :, None] == left[0][0, :, None]).all(-1).any(-1)
        stays[module.layer_idx] = [row.nonzero().flatten().tolist() for row in mask]
        return left

    applied.compress = noted
    return applied, stays


@torch.no_grad()
def answer(model, ids: torch.Tensor, rule: str, ratio: float, new: int) -> dict:
    """The keys that are kept of each head, and greedy tokens."""
    model.set_attn_implementation("eager" if rule == "h2o" else "sdpa")
    press, stays = press_of(rule, ratio)
    cache = DynamicCache()
    with press(model):
        out = model(ids, past_key_values=cache)
    written = []
    for step in range(new):
        written.append(int(out.logits[0, -1].argmax()))
        place = torch.tensor([[ids.shape[1] + step]])
        out = model(torch.tensor([written[-1:]]), past_key_values=cache, position_ids=place)
    for module in model.modules():
        module.__dict__.pop("masked_key_indices", None)
    return {"kept": [stays[layer] for layer in sorted(stays)], "written": written}


def main(folder: Path) -> None:
    """All that is asked."""
    request = json.loads((folder / "asked.json").read_text())
    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(request["model"], dtype=torch.float32).eval()
    ids = torch.tensor([request["ids"]])
    answers = [answer(model, ids, rule, ratio, request["new"]) for rule, ratio in request["rows"]]
    (folder / "answered.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
