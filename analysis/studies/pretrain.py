"""Pretraining the bundled model from a folder of texts to a Hugging Face folder with its model card."""

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from analysis.errors import BadSetting

SIZES = {  # what a family changes in the recipe; gpt2 is the smaller, other architecture
    "llama": {},
    "gpt2": {"layers": 4, "width": 192, "heads": 6, "kv_heads": 6, "intermediate": 768},
}


def pretrain(
    corpus: str,
    out: str,
    work: str | None = None,
    family: str = "llama",
    attention: str = "dense",
    steps: int = 2600,
    context: int = 2048,
    tokens_per_step: int = 8192,
    matrix_rate: float = 0.01,
    other_rate: float = 0.005,
    vocabulary: int = 4096,
    device: str = "cpu",
    seed: int = 0,
    progress: Callable[[float, str], None] = lambda fraction, stage: None,
) -> dict:
    """Train a model on the mixture in `corpus` and write it to `out`; said again, it continues where it stopped.

    `work` keeps shards, checkpoint and log (default `<out>.work`); `steps` times `tokens_per_step` tokens are seen.
    Returns `bits_per_byte` {domain: on the whole valid split at the context}, `context_gain` {nats, low, high, n, ...},
    `parameters`, `weight_bytes`, `tokens`, `seconds`, `epochs` {domain} and `path`.
    Errors: BadSetting, BadText.
    """
    from analysis.training.checkpoints import read_log
    from analysis.training.mixture import build, read_shards
    from analysis.training.pretrain import Recipe, train, training_method

    if family not in SIZES:
        raise BadSetting(f"The family is {' or '.join(SIZES)}, not {family!r}.")
    recipe = Recipe(
        family=family, attention=attention, steps=steps, context=context, tokens_per_step=tokens_per_step,
        matrix_rate=matrix_rate, other_rate=other_rate, warm_up=min(100, steps // 4), seed=seed, **SIZES[family],
    )  # fmt: skip
    training_method(recipe, device)  # an unknown method is refused before minutes of tokenising
    work = Path(work) if work else Path(f"{Path(out)}.work")
    progress(0.0, "tokenising the corpus")
    about = build(Path(corpus), work / "tokens", vocabulary=vocabulary, seed=seed)
    if about["vocabulary"] > vocabulary or about["seed"] != seed:
        raise BadSetting(f"{work} holds shards of another vocabulary or seed; choose another work folder.")
    valid = read_shards(work / "tokens", about, "valid")
    model, method = train(
        recipe, read_shards(work / "tokens", about, "train"), valid, about, work, device, report=progress
    )
    log = read_log(work)
    numbers = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "tokens": recipe.steps * recipe.tokens_per_step,
        "seconds": log[-1]["seconds"],
        "epochs": epochs(recipe, about),
    }
    progress(1.0, "measuring on the whole valid texts")
    numbers |= measure(model, method, valid, about, recipe)
    path = Path(out)
    numbers |= {"weight_bytes": export(model, method, work, path, recipe), "path": str(path)}
    shutil.copyfile(work / "log.jsonl", path / "log.jsonl")
    (path / "README.md").write_text(card(recipe, about, log, numbers), encoding="utf-8")
    made = {"recipe": asdict(recipe), "mixture": about} | {k: v for k, v in numbers.items() if k != "path"}
    (path / "pretrain.json").write_text(json.dumps(made, indent=1) + "\n")
    return numbers


def epochs(recipe, about: dict) -> dict[str, float]:
    """How often the training read each domain's texts."""
    seen = recipe.steps * recipe.tokens_per_step
    return {name: round(seen * part["share"] / part["train"]["tokens"], 2) for name, part in about["domains"].items()}


def measure(model, method, valid: dict, about: dict, recipe) -> dict:
    """Bits per byte on each whole valid split and the gain of context on the first domain, with weights as shipped."""
    import torch

    from analysis.attention import apply
    from analysis.training.yardsticks import bits_by_domain, context_gain

    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.bfloat16())
    model.eval()
    with apply(model, method) if method else contextlib.nullcontext():
        bits = bits_by_domain(model, valid, about, recipe.context)
        first = next(iter(valid))
        gain = context_gain(model, valid[first], recipe.context, recipe.context // 16, recipe.context * 3 // 8)
    return {"bits_per_byte": bits, "context_gain": gain | {"domain": first}}


def export(model, method, work: Path, out: Path, recipe) -> int:
    """Write the Hugging Face folder, bfloat16 weights and the tokenizer; returns the bytes of the weights."""
    import torch
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    from analysis.training.mixture import END_OF_TEXT

    part = out.with_name(out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    model.to(torch.bfloat16).save_pretrained(part)
    PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_file(str(work / "tokens" / "tokenizer.json")),
        bos_token=END_OF_TEXT, eos_token=END_OF_TEXT, model_max_length=recipe.context,
    ).save_pretrained(part)  # fmt: skip
    if method is not None and hasattr(method.addon(), "save"):
        method.addon().save(part / "focus" / "pretrained.safetensors", kind="trained", steps=recipe.steps)
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
        f"Llama family with per-head query-key norm (Qwen3 in transformers): {recipe.layers} layers, width "
        f"{recipe.width}, {recipe.heads} query heads and {recipe.kv_heads} key-value heads of "
        f"{recipe.width // recipe.heads}, intermediate {recipe.intermediate}, RoPE, RMSNorm, tied embeddings"
        if recipe.family == "llama"
        else f"GPT-2 family: {recipe.layers} layers, width {recipe.width}, {recipe.heads} heads, learned positions"
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
    used = "yes" if gain["low"] > 0 else "not shown"
    lengths = ", ".join(f"{length:,} to step {end:,}" for _, end, length in recipe.phases())
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
context predicts better by **{gain["nats"]:.3f} nats per token** (95 % interval {gain["low"]:.3f} to {gain["high"]:.3f};
{gain["n"]:,} positions in {gain["windows"]} windows, paired) than a fresh run on the last {gain["short"]} tokens.

## Training

{recipe.steps:,} steps of {recipe.tokens_per_step:,} tokens ({numbers["tokens"] / 1e6:.1f} M) in
{numbers["seconds"] / 60:.0f} minutes, pauses left out. Sequence length: {lengths}. Muon for hidden matrices (peak rate
{recipe.matrix_rate}, weight decay {recipe.weight_decay}, updates scaled to AdamW's), AdamW for the rest (peak
{recipe.other_rate}, betas 0.9 and 0.95), {recipe.warm_up} steps of warm-up, cosine to {recipe.floor:.0%}, gradients
clipped at 1.0, bfloat16 autocast, seed {recipe.seed}. Nothing is dropped out.

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
