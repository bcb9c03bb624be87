"""A long text piece by piece: layer by layer gives what one pass gives, who was stopped goes on, and what is stored of
attention alone follows the fitted power."""

from functools import partial

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from analysis import places
from analysis.errors import BadSetting
from analysis.files import read_json
from analysis.models import load_model
from analysis.statistics import HeadReading
from analysis.studies.stored.runner import Setting
from lab.speed import long_passes
from lab.speed.long_passes import DENSE, NEAR, PAIRS, Passes, alone_rows, attention_rows, by_layer
from lab.speed.long_text import LongText
from tests.made.evaluating import watched_context
from tests.made.tiny import GROUPED


@pytest.fixture(scope="module")
def small():
    """A small model."""
    torch.manual_seed(0)
    config = Qwen2Config(**GROUPED | {"vocab_size": 500, "max_position_embeddings": 512})
    return load_model(AutoModelForCausalLM.from_config(config).eval())


def test_layer_by_layer_is_one_pass(small, tmp_path):
    ids = np.random.default_rng(0).integers(3, 500, 300)
    layers = [*by_layer(small, ids, tmp_path, lambda place, make: make())]
    reading = HeadReading(small.num_layers, small.num_heads, window=NEAR)
    reading.read(small, ids)
    wanted = reading.table().groupby("layer")["entropy"].mean()
    assert [layer["entropy"] for layer in layers] == pytest.approx(wanted.tolist(), rel=1e-5)
    assert all(layer["cpu_seconds"] > 0 and layer["process_bytes"] > layer["bytes"] for layer in layers)
    assert not [*tmp_path.iterdir()], "what waited for the next layer is gone"
    assert len(small.lm.base_model.layers) == small.num_layers


def test_who_was_stopped_goes_on(small, tmp_path, monkeypatch):
    run = Setting(watched_context(tmp_path), small, LongText(length=256, window=64), tmp_path)
    passes = Passes(run.sizes, small, run.context, tmp_path, partial(run.part, "long-text"))
    ids = np.random.default_rng(0).integers(3, 500, 256)
    monkeypatch.setattr(Passes, "reading", lambda self, window, windows: Windows(ids[: window * windows], window))
    plain, measurements = long_passes.measured, []

    def measured_until(limit: int):
        def measured(work, device):
            if len(measurements) == limit:
                raise KeyboardInterrupt
            measurements.append(1)
            return plain(work, device)

        monkeypatch.setattr(long_passes, "measured", measured)
        return alone_rows(passes)

    with pytest.raises(KeyboardInterrupt):
        measured_until(small.num_layers + 1)
    rows = measured_until(99)
    assert len(measurements) == 2 * small.num_layers, "what was measured is not measured again"
    assert [row["length"] for row in rows] == [64, 256] and all(row["said_bytes"] > row["bytes"] for row in rows)


class Windows:
    """A text of token ids."""

    def __init__(self, ids, window):
        self.windows = np.split(ids, len(ids) // window)


def test_dense_attention_is_fitted_beyond_what_is_measured(small, tmp_path, monkeypatch):
    took = {("grouped", length): 0.001 * length for length in (64, 256, 1024, 4096)}
    took |= {("dense", length): 1e-6 * length**2 for length in (64, 256, 1024)}
    pieces = {
        key: {"seconds": took[key], "cpu_seconds": 2 * took[key], "bytes": key[1], "process_bytes": 9} for key in took
    }
    passes = Passes(
        LongText(longest=4096, dense=1024),
        small,
        watched_context(tmp_path),
        tmp_path,
        lambda d, make: pieces[d[0], d[1]],
    )
    rows = attention_rows(passes)
    last = rows[-1]
    assert (last["what"], last["length"], last["fitted"], last["bytes"]) == ("dense", 4096, True, None)
    assert last["seconds"] == pytest.approx(1e-6 * 4096**2) and last["cpu_seconds"] == pytest.approx(2e-6 * 4096**2)
    summary = LongText.shown({"rows": rows, "protocol": {"device": "cpu", "tokens": 32768}})
    assert "grouped 1.00, dense 2.00" in summary["notes"][1]
    assert [panel["y_label"] for panel in summary["panels"]] == ["core seconds", "GB"]


@pytest.mark.parametrize("sizes", [{"length": 1000, "window": 300}, {"rows": "everything"}, {"rows": ""}])
def test_what_cannot_be_measured_is_refused(sizes, small):
    with pytest.raises(BadSetting):
        LongText(**sizes).check(small)


def test_the_stored_numbers_hold_what_they_promise():
    stored = read_json(places.CACHE / "demo" / "studies" / "long-text.json")
    rows = {(row["what"], row["length"]): row for row in stored["rows"]}
    read = rows[PAIRS, 32768]
    assert stored["parameters"] > 4e8 and read["window"] < 32768
    assert read["bytes"] < 1.25 * read["said_bytes"] and read["process_bytes"] < 6e9
    million = rows[long_passes.GROUPED, 1 << 20], rows[DENSE, 1 << 20]
    assert not million[0]["fitted"] and million[1]["fitted"]
    assert million[0]["cpu_seconds"] < million[1]["cpu_seconds"] / 4
    assert LongText.shown(stored).items() <= stored.items()
