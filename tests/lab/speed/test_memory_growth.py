"""Memory of long texts: nothing that a pass, a reading or a step makes is as large as [T, vocabulary], and the largest
tensor of twice the text is at most twice as large."""

from functools import partial

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, Qwen2Config

from analysis import places
from analysis.files import read_json
from analysis.models import load_model
from analysis.seam import reference, vocabulary
from analysis.statistics import reader
from analysis.studies.stored import measured
from analysis.studies.stored.runner import Setting
from lab.speed import memory_growth
from lab.speed.memory_growth import WORK, MemoryGrowth, grown
from tests.made.evaluating import watched_context
from tests.made.tiny import GROUPED

WORDS, SHORT = 6000, 384
# What a block and a chunk may take, whatever the text.
BLOCK = 1 << 20


class Largest(TorchDispatchMode):
    """Bytes of the largest tensor that is made inside, and the shapes of those with two axes of `length` or more."""

    bytes = 0

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length, self.square = length, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        tensors = out if isinstance(out, tuple | list) else [out]
        sizes = [x.untyped_storage().nbytes() for x in tensors if isinstance(x, torch.Tensor)]
        self.bytes = max(self.bytes, *sizes, 0)
        shapes = [tuple(x.shape) for x in tensors if isinstance(x, torch.Tensor)]
        self.square |= {shape for shape in shapes if sum(axis >= self.length for axis in shape) > 1}
        return out


@pytest.fixture(scope="module")
def wide():
    """A small model with a large vocabulary; its embedding is smaller than the logits of SHORT tokens."""
    torch.manual_seed(0)
    config = Qwen2Config(**GROUPED | {"vocab_size": WORDS, "max_position_embeddings": 2 * SHORT})
    return load_model(AutoModelForCausalLM.from_config(config).eval())


@pytest.mark.parametrize("work", WORK)
def test_nothing_grows_with_the_vocabulary_or_the_square(work, wide, monkeypatch):
    monkeypatch.setattr(vocabulary, "LOGITS_BYTES", BLOCK)
    monkeypatch.setattr(reference, "CPU_BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(measured, "BLOCK", 64)
    ids, largest = np.random.default_rng(0).integers(3, WORDS, 2 * SHORT), {}
    for length in (SHORT, 2 * SHORT):
        with Largest(length) as tensors:
            WORK[work](wide, ids[:length])
        largest[length] = tensors.bytes
    # Of the longer text, which no block holds whole, however small beside the rest: [T, T] of bools too.
    assert not tensors.square
    assert largest[2 * SHORT] < 4 * 2 * SHORT * WORDS / 4, "logits in one piece"
    assert largest[2 * SHORT] <= 2.1 * largest[SHORT], "something grows faster than the text"


def test_heads_are_read_in_blocks_on_a_gpu_too(wide, monkeypatch):
    """Torch's way in the place of the compiled one, on the processor."""
    monkeypatch.setattr(reader, "accelerated", lambda tensor: True)
    monkeypatch.setattr(reader, "GPU_BYTES", BLOCK)
    ids = np.random.default_rng(0).integers(3, WORDS, 2 * SHORT)
    with Largest(len(ids)) as tensors:
        WORK["statistics"](wide, ids)
    assert not tensors.square and tensors.bytes < 8 * BLOCK


def test_who_was_stopped_goes_on(wide, monkeypatch, tmp_path):
    run = Setting(watched_context(tmp_path), wide, MemoryGrowth(), tmp_path)
    lengths: list[int] = []

    def measured_until(limit: int) -> list[dict]:
        def peak(work, device):
            if len(lengths) == limit:
                raise KeyboardInterrupt
            lengths.append(len(work.args[1]))
            return 10 * len(work.args[1]) ** 2

        monkeypatch.setattr(memory_growth, "peak_bytes", peak)
        return grown(wide, np.arange(3, 131), [64, 128], lambda *_: None, partial(run.part, "memory-growth"))

    with pytest.raises(KeyboardInterrupt):
        measured_until(3)
    rows = measured_until(99)
    assert lengths == 4 * [64, 128], "what was measured is not measured again"
    assert [(row["length"], row["bytes"]) for row in rows] == 4 * [(64, 40960), (128, 163840)]
    assert "statistics 2.00" in MemoryGrowth.shown({"rows": rows})["notes"][0]


def test_the_stored_numbers_hold_what_they_promise():
    stored = read_json(places.CACHE / "demo" / "studies" / "memory-growth.json")
    assert stored["protocol"]["sizes"]["lengths"].endswith("8192") and stored["parameters"] > 4e8
    rows = {(row["what"], row["length"]): row for row in stored["rows"]}
    assert {work for work, _ in rows} == set(WORK)
    for piece_of_work in WORK:
        sizes = [rows[piece_of_work, length]["bytes"] for length in (2048, 4096, 8192)]
        assert sizes[2] < 2.1 * sizes[1] and sizes[1] < 2.1 * sizes[0], "linear at most"
        if piece_of_work != "router step":
            assert sizes[2] < rows[piece_of_work, 8192]["logits"] / 2
    assert MemoryGrowth.shown(stored).items() <= stored.items()
