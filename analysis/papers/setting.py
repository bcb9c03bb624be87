"""What a printed row was measured on, as far as its words say it, and how a number of ours differs from that."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .cells import Cell
from .ours import Number, Reading

# As the papers write a model -> its name on the Hub, without its owner's.
MODELS = {
    "GPT-2 124M": "gpt2",
    "GPT-2 small": "gpt2",
    "GPT-2 774M": "gpt2-large",
    "GPT-2 1.5B": "gpt2-xl",
    "Pythia 410M": "pythia-410m",
    "Llama 3.2 1B": "Llama-3.2-1B",
    "Llama 3.2 3B": "Llama-3.2-3B",
    "Qwen 2.5 1.5B": "Qwen2.5-1.5B",
    "Qwen2.5-7B": "Qwen2.5-7B",
    "Qwen2.5 7B": "Qwen2.5-7B",
    "Mistral 7B": "Mistral-7B-v0.1",
    "Mistral-7B-Instruct": "Mistral-7B-Instruct-v0.1",
    "OLMo-2 7B": "OLMo-2-1124-7B",
    "LLaMA-2 13B": "Llama-2-13b-hf",
    "LLaMA-2 70B": "Llama-2-70b-hf",
}
# Data sets, as they stand in the papers without marks and capitals.
TEXTS = ("pg19", "wikitext", "openwebtext")
MODEL, TEXT, MACHINE = "another model", "another text", "another machine"


def differences(
    cells: Sequence[Cell], readings: Iterable[Reading], protocol: Callable[[Number], Mapping[str, Any]]
) -> list[str]:
    """For each number of ours that is a quantity its row prints: what it was measured on that the row was not, MODEL,
    TEXT or MACHINE, or "" where model, data and quantity are the row's. A row that names no model is never the same.
    `cells`: of the row; `protocol`: of a number."""
    words = " ".join([cells[0].row, *dict.fromkeys(cell.protocol for cell in cells)])
    columns = {cell.column for cell in cells}
    direct = [reading.number for reading in readings if reading.number.column in columns]
    return [_difference(words, number, protocol(number)) for number in direct]


def _difference(words: str, number: Number, protocol: Mapping[str, Any]) -> str:
    command = str(protocol.get("verb", "")).split(" ")[-1]
    if command in ("worth", "pitfalls"):
        # arithmetic of a shape that the command names
        return ""
    if command in ("bench", "gpu-check"):
        machines = re.findall(r"[AH]\d00", words)
        return "" if any(name in str(protocol.get("processor")) for name in machines) else MACHINE
    models = {model for name, model in MODELS.items() if name in words}
    if str(protocol.get("model")).rsplit("/", 1)[-1] not in models:
        return MODEL
    if command in ("benchmark", "benchmarks"):
        # the questions are those of the column
        return ""
    texts = [text for text in TEXTS if text in _bare(words)]
    ours = _bare(f"{protocol.get('corpus')} {protocol.get('corpora')} {number.path}")
    return "" if any(text in ours for text in texts) else TEXT


def _bare(words: str) -> str:
    return re.sub(r"[^a-z0-9]", "", words.casefold())
