"""Attention statistics on the fake device: what every head reads is asked for once a layer."""

import pytest
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from transformers.cache_utils import DynamicCache

from analysis.seam.attention import apply, ran
from analysis.seam.calls import MASKED
from analysis.statistics.by_torch import About
from analysis.statistics.heads import HeadReading
from analysis.statistics.reader import KERNEL, Reader
from lab.rehearsal.device import NAME, Crossings, fake_device
from lab.rehearsal.shapes import LAYERS, SHAPES, on_devices

TOKENS = 1024


@pytest.mark.parametrize("masked", [False, True])
def test_a_layer_is_asked_for_its_sums_once(masked):
    with fake_device() as device:
        lm = on_devices(SHAPES["llama"](), f"{NAME}:0")
        with unset_fake_temporarily():
            real = torch.ones(1, TOKENS, dtype=torch.bool)
            reading = HeadReading(LAYERS, lm.config.num_attention_heads)
            reading.begin(real.long(), real)
        on_device = torch.device(f"{NAME}:0")
        ids = torch.ones(1, TOKENS, dtype=torch.long, device=on_device)
        # a text's facts are brought there once
        reading._on_device[on_device] = About(reading.mass, reading.window, False, True, ids[:, 0], ids > 0, ids, ids)
        with apply(lm, Reader(reading), kernels=True), Crossings():
            device.asked.clear()
            # without a cache the model makes a mask where it may not ask whether it needs one
            cache = None if masked else DynamicCache(config=lm.config)
            lm.base_model(input_ids=ids, past_key_values=cache, use_cache=not masked)
            assert {layer_run.kernel for layer_run in ran(lm)} == {MASKED if masked else KERNEL}
        assert device.asked == {"sums of statistics": LAYERS}
        # every answer was ones, and all queries were one block
        assert (reading.sums == 1).all() and (reading.means() == 1).all()
