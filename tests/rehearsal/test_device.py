"""On the fake device: it punishes what a real one would; statistics ask once a layer for what every head reads; the
tables of `gpu-check`, by the code that a GPU runs; what the stored study `rehearsal` holds at most, and a part of it
computed again."""

from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from transformers.cache_utils import DynamicCache

from analysis.files import read_json
from analysis.kernels import packed
from analysis.kernels.native.measured import Texts
from analysis.models import Model
from analysis.places import CACHE
from analysis.seam.attention import apply, ran
from analysis.seam.calls import MASKED
from analysis.statistics.heads import HeadReading
from analysis.statistics.reader import KERNEL, Reader
from analysis.studies.speed import gpu_check, gpu_tables
from analysis.studies.speed.gpu_check import GpuCheck
from lab.rehearsal.device import NAME, Crossings, fake_device
from lab.rehearsal.rehearsal import SAMPLED, rehearsed
from lab.rehearsal.shapes import LAYERS, SHAPES, methods, on_devices
from tests.made.evaluating import watched_context

PUNISHED = {
    "one number": lambda x: x.sum().item(),
    "a number as Python's": lambda x: int(x.amax()),
    "a condition": lambda x: bool((x > 0).any()),
    "a list": lambda x: x.tolist(),
    "what a mask holds": lambda x: x[x > 0],
    "places": lambda x: x.nonzero(),
    "different numbers": lambda x: x.unique(),
    "an array": lambda x: x.numpy(),
    "another device": lambda x: x + torch.ones(4, device=f"{NAME}:1"),
    "the processor": lambda x: x + torch.ones(4),
    "a copy to the host": lambda x: x.cpu(),
    "a copy to the device": lambda x: torch.arange(4).to(x.device),
    "a list as a tensor": lambda x: torch.tensor([1, 2], device=x.device),
}


@pytest.mark.parametrize("name", PUNISHED)
def test_what_waits_or_mixes_is_an_error(name):
    with fake_device(), Crossings(), pytest.raises((RuntimeError, NotImplementedError)):
        PUNISHED[name](torch.ones(4, device=f"{NAME}:0"))


def test_shapes_are_computed_and_questions_are_answered_by_name_and_counted():
    with fake_device(), Crossings():
        x = torch.ones(2, 3, 8, 4, device=NAME)
        assert torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True).shape == x.shape
        assert x.to(f"{NAME}:1").device.index == 1
    with fake_device() as device:
        device.tokens = 10
        assert packed.Sizes.of(torch.ones(1, 10, 3, dtype=torch.bool, device=NAME)) == ([4, 3, 3], 1)
        assert device.asked == {"sizes of groups": 1}


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
        reading._on_device[on_device] = Texts(reading.mass, reading.window, False, True, ids[:, 0], ids > 0, ids, ids)
        with apply(lm, Reader(reading), kernels=True), Crossings():
            device.asked.clear()
            # without a cache the model makes a mask where it may not ask whether it needs one
            cache = None if masked else DynamicCache(config=lm.config)
            lm.base_model(input_ids=ids, past_key_values=cache, use_cache=not masked)
            assert {layer_run.kernel for layer_run in ran(lm)} == {MASKED if masked else KERNEL}
        assert device.asked == {"sums of statistics": LAYERS}
        # every answer was ones, and all queries were one block
        assert (reading.sums == 1).all() and (reading.means() == 1).all()


SHAPE, LENGTH = "qwen", 4096


@pytest.fixture(scope="module")
def rows():
    numbers = read_json(CACHE / "demo" / "studies" / "rehearsal.json")
    return [row for row in numbers["rows"] if not row["refused"]]


def test_the_table_waits_once_a_layer_and_its_memory_is_near_what_was_said(rows):
    assert max(row["asked_in_prompt"] for row in rows) <= 1
    assert max(row["asked_in_step"] for row in rows) == 0
    short = [row for row in rows if row["length"] == LENGTH]
    far_off = {
        (row["shape"], row["method"]) for row in short if not 0.75 < row["peak_bytes"] / row["said_bytes"] < 1.25
    }
    assert far_off <= {(shape, "kvzip_plus") for shape in ("qwen", "llama", "gpt_oss")}, "it reads the text twice"


@pytest.mark.slow
def test_rows_come_again(rows):
    stored = {row["method"]: row for row in rows if (row["shape"], row["length"]) == (SHAPE, LENGTH)}
    for row in rehearsed(SHAPE, LENGTH, SAMPLED)["rows"]:
        before = stored[row["method"]]
        assert row["peak_bytes"] == pytest.approx(before["peak_bytes"], rel=1e-3)
        assert {key: row[key] for key in ("kernel", "asked_in_prompt", "asked_in_step")}.items() <= before.items()


# tests/rehearsal/test_rehearsal.py runs every method
OF_EACH_KIND = {"dense", "focus", "quest", "snapkv", "kv_int4", "xattention", "performer"}
CHECKED = 1024


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
        monkeypatch.setattr(gpu_check, "untrained", lambda lm: [(way.name, way.method) for way in ready(lm)])
        monkeypatch.setattr(gpu_check, "shaped", lambda name, device, layers: name)
        monkeypatch.setattr(gpu_check, "load_model", lambda name: model_of("qwen"))
        monkeypatch.setattr(gpu_check, "CACHES", (CHECKED,))
        for count in ("NEW_TOKENS", "WARM_TOKENS"):
            monkeypatch.setattr(gpu_tables, count, 1)
        lm, study = model_of("llama"), GpuCheck(longest=CHECKED, repeats=1, tests=False)
        study.check(lm)
        device.tokens = CHECKED
        numbers = study.measure(SimpleNamespace(lm=lm, context=watched_context(tmp_path)))
    rows = {work: [row for row in numbers["rows"] if row["what"] == work] for work in ("attention", "decode", "model")}
    assert [row["length"] for row in rows["attention"]] == [CHECKED] * len(gpu_check.GROUPS)
    assert len(rows["decode"]) == 1 and len(rows["model"]) == 2 * len(OF_EACH_KIND)
    assert not [row for row in numbers["rows"] if "refused" in row]
    assert all(row["peak_bytes"] > 0 and row["said_bytes"] > 0 for row in rows["model"])
    assert numbers["protocol"]["processor"] == NAME
