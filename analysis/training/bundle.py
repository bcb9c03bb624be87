"""A pretrained model as a Hugging Face folder: weights, tokenizer, and the card made from its log and measurements."""

import os
import shutil
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from analysis.training.mixture import END_OF_TEXT

LLAMAS = {
    "llama": "Llama family with per-head query-key norm (Qwen3 in transformers)",
    "llama_plain": "Llama family",
}


def export(model, method, work: Path, out: Path, recipe) -> int:
    """Write the Hugging Face folder, bfloat16 weights and the tokenizer; returns the bytes of the weights."""
    part = out.with_name(out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    model.to(torch.bfloat16).save_pretrained(part)
    PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_file(str(work / "tokens" / "tokenizer.json")),
        bos_token=END_OF_TEXT, eos_token=END_OF_TEXT, model_max_length=recipe.context,
    ).save_pretrained(part)  # fmt: skip
    if method is not None and hasattr(method.addon(), "save"):
        place = getattr(method.addon(), "place", "focus/pretrained.safetensors")
        method.addon().save(part / place, kind="trained", steps=recipe.steps)
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(part.rglob("*")):  # file by file: `out` may hold fitted state that stays
        if path.is_file():
            target = out / path.relative_to(part)
            target.parent.mkdir(exist_ok=True)
            os.replace(path, target)
    shutil.rmtree(part)
    return (out / "model.safetensors").stat().st_size


def card(recipe, about: dict, log: list[dict], numbers: dict) -> str:
    """The model card, Markdown, every number from the log or the final measurement."""
    shape = (
        f"GPT-2 family: {recipe.layers} layers, width {recipe.width}, {recipe.heads} heads, learned positions"
        if recipe.family == "gpt2"
        else f"{LLAMAS[recipe.family]}: {recipe.layers} layers, width {recipe.width}, {recipe.heads} query heads and "
        f"{recipe.kv_heads} key-value heads of {recipe.width // recipe.heads}, intermediate {recipe.intermediate}, "
        f"RoPE (base {recipe.rope_base:,.0f}), RMSNorm, tied embeddings"
    )
    domains, bits, gain = about["domains"], numbers["bits_per_byte"], numbers["context_gain"]
    rows = "\n".join(
        f"| {name} | {part['share']:.0%} | {part['train']['documents']:,} | {part['train']['tokens'] / 1e6:.1f} M | "
        f"{numbers['epochs'][name]:.2f} | {part['valid']['bytes'] / 1e6:.2f} MB | **{bits[name]:.3f}** |"
        for name, part in domains.items()
    )
    curve = "\n".join(
        f"| {entry['step']:,} | {entry['tokens'] / 1e6:.1f} M | {entry['seconds'] / 60:.0f} | {entry['length']:,} | "
        + " | ".join(f"{entry[f'valid_{name}']:.3f}" for name in domains) + " |"
        for entry in log
        if f"valid_{next(iter(domains))}" in entry and "length" in entry
    )  # fmt: skip
    used = "yes" if gain["low"] > 0 else "no, it misleads" if gain["high"] < 0 else "not shown"
    better, sign = ("worse", -1) if gain["nats"] < 0 else ("better", 1)
    low, high = sorted((sign * gain["low"], sign * gain["high"]))
    return f"""# A small language model to look into

{shape}; byte-level BPE of {about["vocabulary"]:,} tokens trained on the same mixture; context {recipe.context:,};
{numbers["parameters"] / 1e6:.2f} M parameters, {numbers["weight_bytes"] / 1e6:.1f} MB of bfloat16. Attention while
training: {recipe.attention}.

## Data and result

| domain | share of tokens | train documents | train tokens | epochs seen | valid text | valid bits per byte |
|---|---|---|---|---|---|---|
{rows}

Bits per byte = nats per token x tokens / (ln 2 x UTF-8 bytes of the prepared text), on the whole valid split in
non-overlapping windows of {recipe.context:,} tokens (the first token of a window is not predicted), weights rounded to
bfloat16. Novels: hard-wrapped lines joined, paragraphs kept. Python: line breaks and indentation kept. WikiText-2:
detokenised; its `<unk>` stays in the text, so the model writes it too. `<|endoftext|>` stands before every document.
Train and valid are different files; the texts themselves are not part of this folder.

Uses its context: {used}. On the valid {gain["domain"]}, at positions from {gain["first_position"]:,} on, the full
context predicts {better} by **{abs(gain["nats"]):.3f} nats per token** (95 % interval {low:.3f} to {high:.3f};
{gain["n"]:,} positions in {gain["windows"]} windows, paired) than a fresh run on the last {gain["short"]} tokens.

## Training

{numbers["tokens"] / 1e6:.1f} M tokens in {numbers["seconds"] / 60:.0f} minutes, pauses left out. {recipe.told()} Muon
for hidden matrices (peak rate {recipe.matrix_rate}, weight decay {recipe.weight_decay}, updates scaled to AdamW's),
AdamW for the rest (peak {recipe.other_rate}, betas 0.9 and 0.95), {recipe.warm_up} steps of warm-up, gradients clipped
at 1.0, bfloat16 autocast, seed {recipe.seed}. Nothing is dropped out.

Bits per byte on evenly spaced parts of the valid texts, at the sequence length of that moment (so steps of different
length do not compare exactly):

| step | tokens | minutes | length | {" | ".join(domains)} |
|---|---|---|---|{"---|" * len(domains)}
{curve}

## What it cannot do

It is made to be looked into, not to be used: it continues prose, code and encyclopaedic text in their manner, knows
hardly any fact, follows no instruction, and reasons about nothing. English and Python only. Its novels are in the
public domain and carry the views of their time. Beyond {recipe.context:,} tokens it was never trained.
"""
