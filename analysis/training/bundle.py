"""A pretrained model as a Hugging Face folder: weights, tokenizer, and the card made from its log and measurements."""

from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from analysis.files import change
from analysis.metrics.proportions import share
from analysis.probes.tasks import TASKS
from analysis.training.far_measures import CHOICES
from analysis.training.mixture import END_OF_TEXT

LLAMAS = {
    "llama": "Llama family with per-head query-key norm (Qwen3 in transformers)",
    "llama_plain": "Llama family",
}


def export(model, method, work: Path, out: Path, recipe) -> int:
    """Write the Hugging Face folder, bfloat16 weights and the tokenizer, into a draft; returns the bytes of the
    weights."""
    change()
    model.to(torch.bfloat16).save_pretrained(out)
    change()
    PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_file(str(work / "tokens" / "tokenizer.json")),
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        model_max_length=recipe.context,
    ).save_pretrained(out)
    if method is not None and hasattr(method.addon(), "save"):
        place = getattr(method.addon(), "place", "focus/pretrained.safetensors")
        method.addon().save(out / place, kind="trained", steps=recipe.steps)
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
        + " | ".join(f"{entry[f'valid_{name}']:.3f}" for name in domains)
        + " |"
        for entry in log
        if f"valid_{next(iter(domains))}" in entry and "length" in entry
    )
    worse = gain["nats"] < 0
    said = {"shape": shape, "rows": rows, "curve": curve, "told": recipe.told()}
    said |= {"named": " | ".join(domains), "dashes": "---|" * len(domains), "better": "worse" if worse else "better"}
    said |= {"targets": f"\n\n{targets(numbers)}" if "tasks" in numbers else ""}
    said |= _gained(gain, domains[gain["domain"]]["valid"]["documents"]) | {"minutes": numbers["seconds"] / 60}
    millions = {"parameters": "parameters", "weights": "weight_bytes", "tokens": "tokens"}
    said |= {name: numbers[key] / 1e6 for name, key in millions.items()}
    template = Path(__file__).with_name("card.md").read_text(encoding="utf-8")
    return template.format(about=about, recipe=recipe, gain=gain, **said)


UNSURE = "not told apart from the target"
MEASURED = "python -m lab.far.run CORPUS WORK --measure FOLDER"


def targets(numbers: dict) -> str:
    """What the model was trained for: every target with its number, and the command that measures all, Markdown."""
    bits, gains, tasks = numbers["bits_per_byte"], numbers["gains"], numbers["tasks"]
    heads = [score for layer in numbers["circuit"]["induction"] for score in layer]
    before = max(score for layer in numbers["circuit"]["previous_token"] for score in layer)
    rows = [("bits per byte, novels", "at most 1.44", bits["novels"], "{:.3f}", bits["novels"] <= 1.44)]
    for name, least in (("novels", 0.04), ("python", 0.15)):
        gain = gains[name]["nats"]
        rows.append((f"far context, {name}, nats", f"at least {least}", gain, "{:.3f}", gain >= least))
    wanted = {"uuid_needle": 0.9, "several_needles": 0.9, "json": 0.7, "labels": 0.7}
    for name, found in tasks.items():
        least, title = wanted.get(name), f"{TASKS[name].title} at 1,024 tokens, of {found['items']} questions"
        aimed = f"at least {least:.0%}" if least else "-"
        right = round(found["dense"] * found["items"])
        sure = share([1] * right + [0] * (found["items"] - right))
        told = f"{found['dense']:.0%} ({sure.low:.0%} to {sure.high:.0%}; with a window of 128: {found['window']:.0%})"
        met = None if least is None else UNSURE if sure.low < least <= sure.high else found["dense"] >= least
        rows.append((title, aimed, told, "{}", met))
    cost, copy = numbers["cost_of_window"], numbers["second_copy"]
    rows += [
        ("perplexity with a window of 64, on the mixture", "at least 6% worse", cost, "{:+.1%}", cost >= 0.06),
        ("second copy of 128 random tokens, nats", "at most 1.0", copy, "{:.2f}", copy <= 1),
        ("heads with an induction score above 0.3", "at least 4", n := sum(h > 0.3 for h in heads), "{}", n >= 4),
        ("best previous-token head", "above 0.6", before, "{:.2f}", before > 0.6),
    ]
    said = {True: "yes", False: "**no**", None: "", UNSURE: UNSURE}
    lines = [f"| {a} | {b} | {form.format(c)} | {said[met]} |" for a, b, c, form, met in rows]
    head = ["| target | aimed at | measured | reached |", "|---|---|---|---|"]
    asked = f"Of questions chance is {1 / CHOICES:.0%}, and brackets are 95% intervals over questions, all of one text."
    more = "What recall documents give and cost: `python -m analysis study recall-documents`."
    return "\n".join([*head, *lines, f"\n{asked} All of it is measured by `{MEASURED}`. {more}"])


def _gained(gain: dict, documents: int) -> dict[str, str]:
    """What the card says of the gain from context in so many documents: `used`, `nats` and `interval`."""
    sign, known = (-1 if gain["nats"] < 0 else 1), gain["low"] is not None
    low, high = sorted(sign * gain[end] for end in ("low", "high")) if known else (None, None)
    told = known and not gain["low"] <= 0 <= gain["high"]
    used = "not shown" if not told else "yes" if sign > 0 else "no, not in these texts"
    where = f"95% interval for elsewhere in these {documents} documents"
    said = f"{where}: {low:.3f} to {high:.3f}" if known else "too few windows for an interval"
    return {"used": used, "nats": f"{abs(gain['nats']):.3f}", "interval": said}
