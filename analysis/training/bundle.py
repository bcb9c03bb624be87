"""A pretrained model as a Hugging Face folder: weights, tokenizer, and the card made from its log and measurements."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from ..files import change
from ..methods.base import Method
from .mixture import end_of
from .recipe import Recipe

FAMILIES = {
    "llama": "Llama family with per-head query-key norm (Qwen3 in transformers)",
    "llama_plain": "Llama family",
}


def export(model: PreTrainedModel, method: Method | None, work: Path, out: Path, recipe: Recipe) -> int:
    """Write the Hugging Face folder, bfloat16 weights and the tokenizer, into a draft; returns the bytes of the
    weights."""
    change()
    model.bfloat16().save_pretrained(out)
    change()
    tokenizer = Tokenizer.from_file(str(work / "tokens" / "tokenizer.json"))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=end_of(tokenizer),
        eos_token=end_of(tokenizer),
        model_max_length=recipe.context,
    ).save_pretrained(out)
    addon: Any = method and method.addon()
    if hasattr(addon, "save"):
        addon.save(out / getattr(addon, "place", "focus/pretrained.safetensors"), kind="trained", steps=recipe.steps)
    return (out / "model.safetensors").stat().st_size


def card(recipe: Recipe, about: dict, log: list[dict], numbers: dict, targets: str = "") -> str:
    """The model card, Markdown, every number from the log or the final measurement; `targets`: what it was trained
    for, if that was written down."""
    shape = (
        f"{FAMILIES.get(recipe.family)}: {recipe.layers} layers, width {recipe.width}, {recipe.heads} query heads and "
        f"{recipe.kv_heads} key-value heads of {recipe.width // recipe.heads}, intermediate {recipe.intermediate}, "
        f"RoPE (base {recipe.rope_base:,.0f}), RMSNorm, tied embeddings"
    )
    if recipe.family == "gpt2":
        shape = f"GPT-2 family: {recipe.layers} layers, width {recipe.width}, {recipe.heads} heads, learned positions"
    domains, gain = about["domains"], numbers["context_gain"]
    rows, curve = [], []
    for name, part in domains.items():
        train, valid = part["train"], part["valid"]
        columns = [name, f"{part['share']:.0%}", f"{train['documents']:,}", f"{train['tokens'] / 1e6:.1f} M"]
        columns += [f"{numbers['epochs'][name]:.2f}", f"{valid['bytes'] / 1e6:.2f} MB"]
        rows.append([*columns, f"**{numbers['bits_per_byte'][name]:.3f}**"])
    for entry in log:
        if f"valid_{next(iter(domains))}" in entry and "length" in entry:
            columns = [f"{entry['step']:,}", f"{entry['tokens'] / 1e6:.1f} M", f"{entry['seconds'] / 60:.0f}"]
            curve.append([*columns, f"{entry['length']:,}", *(f"{entry[f'valid_{name}']:.3f}" for name in domains)])
    template = Path(__file__).with_name("card.md").read_text(encoding="utf-8")
    return template.format(
        about=about,
        recipe=recipe,
        gain=gain,
        shape=shape,
        tokenizer="a tokenizer" if about.get("given") else "byte-level BPE",
        given=", not trained here" if about.get("given") else " trained on the same mixture",
        rows=_table(rows),
        curve=_table(curve),
        told=recipe.told(),
        optimised=recipe.optimised(),
        named=" | ".join(domains),
        dashes="---|" * len(domains),
        targets=targets and f"\n\n{targets}",
        parameters=numbers["parameters"] / 1e6,
        weights=numbers["weight_bytes"] / 1e6,
        tokens=numbers["tokens"] / 1e6,
        minutes=numbers["seconds"] / 60,
        **_gain_words(gain, domains[gain["domain"]]["valid"]["documents"]),
    )


def _table(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(columns)} |" for columns in rows)


def _gain_words(gain: dict, documents: int) -> dict[str, str]:
    """The words of the card for the gain from context in so many documents."""
    nats, low, high = gain["nats"], gain["low"], gain["high"]
    words = {"better": "worse" if nats < 0 else "better", "nats": f"{abs(nats):.3f}", "used": "not shown"}
    if low is None:
        return words | {"interval": "too few windows for an interval"}
    if not low <= 0 <= high:
        words["used"] = "yes" if nats >= 0 else "no, not in these texts"
    # The card names the size of a loss, so its interval is turned round, too.
    low, high = sorted(-edge if nats < 0 else edge for edge in (low, high))
    where = f"95% interval for elsewhere in these {documents} documents"
    return words | {"interval": f"{where}: {low:.3f} to {high:.3f}"}
