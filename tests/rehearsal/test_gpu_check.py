"""The tables of `gpu-check` on the fake device, by the code that a GPU runs: attention alone, decoding, a method of
each kind inside two models."""

from types import SimpleNamespace

import pytest
import torch

from analysis.models import Model
from analysis.studies.speed import gpu_check, gpu_tables
from analysis.studies.speed.gpu_check import GpuCheck
from lab.rehearsal.device import NAME, fake_device
from lab.rehearsal.shapes import SHAPES, methods, on_devices
from tests.made.evaluating import watched_context

# tests/rehearsal/test_rehearsal.py runs every method
OF_EACH_KIND = {"dense", "focus", "quest", "snapkv", "kv_int4", "xattention", "performer"}
LONGEST = 1024


def model_of(shape: str) -> Model:
    config = SHAPES[shape]()
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    about = config.num_hidden_layers, heads, kv_heads, config.hidden_size // heads, config.max_position_embeddings
    return Model(on_devices(config, f"{NAME}:0"), None, shape, "none", *about)


def ready(model: Model) -> list[SimpleNamespace]:
    builders = methods(model.lm.config)
    return [SimpleNamespace(name=name, method=builders[name]()) for name in builders if name in OF_EACH_KIND]


@pytest.mark.slow
def test_it_runs_through(monkeypatch, tmp_path):
    generator = torch.Generator
    with fake_device() as device, device.held:
        # a fake device draws nothing, and how many pairs are read is counted on numbers
        monkeypatch.setattr(torch, "Generator", lambda device="cpu": generator())
        monkeypatch.setattr(gpu_tables, "plan", lambda *about: SimpleNamespace(kernel="groups", retained=0.25))
        # what is fitted on a model is for its sizes
        monkeypatch.setattr(gpu_check, "candidates", lambda context, lm, text, families: ready(lm))
        monkeypatch.setattr(
            gpu_check, "untrained", lambda lm: [(candidate.name, candidate.method) for candidate in ready(lm)]
        )
        monkeypatch.setattr(gpu_check, "shaped", lambda name, device, layers: name)
        monkeypatch.setattr(gpu_check, "load_model", lambda name: model_of("qwen"))
        monkeypatch.setattr(gpu_check, "CACHES", (LONGEST,))
        for count in ("NEW_TOKENS", "WARM_TOKENS"):
            monkeypatch.setattr(gpu_tables, count, 1)
        lm, study = model_of("llama"), GpuCheck(longest=LONGEST, repeats=1, tests=False)
        study.check(lm)
        device.tokens = LONGEST
        numbers = study.measure(SimpleNamespace(lm=lm, context=watched_context(tmp_path)))
    rows = {work: [row for row in numbers["rows"] if row["what"] == work] for work in ("attention", "decode", "model")}
    assert [row["length"] for row in rows["attention"]] == [LONGEST] * len(gpu_check.GROUPS)
    assert len(rows["decode"]) == 1 and len(rows["model"]) == 2 * len(OF_EACH_KIND)
    assert not [row for row in numbers["rows"] if "refused" in row]
    assert all(row["peak_bytes"] > 0 and row["said_bytes"] > 0 for row in rows["model"])
    assert numbers["protocol"]["processor"] == NAME
