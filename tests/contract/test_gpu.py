"""On a CUDA device: the verbs of every page run, and statistics, methods and kernels give what the processor gives."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from analysis.corpus import sample_texts
from analysis.errors import NotFitted
from analysis.kernels.blocks import block_attention
from analysis.methods import METHODS
from analysis.models import load_model
from analysis.seam.attention import apply
from analysis.seam.cache import DynamicCache
from analysis.statistics import HeadReading
from analysis.statistics.reader import Reader
from analysis.studies.context import Context
from analysis.studies.ready.candidates import FAMILIES as SAVED, candidates
from analysis.studies.speed.bench_model import bench_model
from analysis.timing.inference import next_token
from tests.contract.test_contract import CASES
from tests.made.tiny import FAMILIES, tiny, token_ids
from tests.made.tiny_tokenizer import save_model

pytestmark = pytest.mark.gpu


def on(device: str, family: str):
    """A tiny model of its own on a device."""
    return copy.deepcopy(tiny(family)).to(device)


def test_the_verbs_of_every_page_run(tmp_path):
    model = save_model(tmp_path / "tiny", max_position_embeddings=256)
    numbers = bench_model(str(model), "", [300], Context(device="cuda", browser=False)).numbers
    assert not [row for row in numbers["rows"] if row["refused"]]
    assert numbers["protocol"]["device"].startswith("cuda")


@pytest.mark.parametrize("family", FAMILIES)
def test_statistics_and_what_a_watcher_sees(family):
    ids, readings, masses = token_ids(1, 60), {}, {}
    for device in ("cpu", "cuda"):
        model = load_model(on(device, family))
        readings[device], masses[device] = HeadReading(model.num_layers, model.num_heads), torch.zeros(60)

        def watch(block, probabilities, sums=masses[device]):
            sums[: probabilities.shape[-1]] += probabilities[0].sum((0, 1)).float().cpu()

        readings[device].read(model, ids, reader=Reader(readings[device], [watch]))
    np.testing.assert_allclose(readings["cuda"].means(), readings["cpu"].means(), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(masses["cuda"], masses["cpu"], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_methods(name, kernels):
    logits = {}
    for device in ("cpu", "cuda"):
        lm = on(device, "llama")
        with apply(lm, CASES[name](), kernels=kernels):
            logits[device] = lm(token_ids(1, 40).to(device), use_cache=False).logits.float().cpu()
    torch.testing.assert_close(logits["cuda"], logits["cpu"], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", METHODS)
@torch.no_grad()
def test_every_method_in_bfloat16_reads_and_writes_as_in_float32(name):
    """The bundled model over 1,500 tokens: the loss of its own kernels on a GPU in 16 bits beside that of the masked
    pass on the processor, and the tokens that follow a prompt."""
    context, losses, written = Context(device="cpu", browser=False), {}, {}
    models = {"cpu": load_model("demo", "cpu"), "cuda": load_model("demo", "cuda", dtype="bfloat16")}
    try:
        method = candidates(context, models["cpu"], [{"name": name}], tuple(SAVED))[0].method
    except NotFitted:
        pytest.skip("nothing was fitted for it")
    ids = models["cpu"].tokenizer(sample_texts()["story"][1], return_tensors="pt")["input_ids"][:, :1500]
    for device, model in models.items():
        text = ids.to(model.device)
        with apply(model, method, kernels=True):
            logits = model.lm(text, use_cache=False).logits.float()
            losses[device] = F.cross_entropy(logits[0, :-1], text[0, 1:]).item()
            cache, token, tokens = method.cache(model.lm) or DynamicCache(config=model.lm.config), text[:, :600], []
            for _ in range(6):
                token = next_token(model.lm, token, cache)
                tokens.append(int(token))
        written[device] = tokens
    assert abs(losses["cuda"] - losses["cpu"]) < 0.02
    assert written["cuda"][:3] == written["cpu"][:3]


@pytest.mark.parametrize(("kind", "bound"), [(torch.float32, 1e-3), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize(("size", "length", "block"), [(64, 700, 128), (8, 300, 16), (128, 2048, 64), (64, 1030, 256)])
def test_attention_over_kept_blocks(kind, bound, size, length, block):
    draw, count = torch.Generator().manual_seed(0), -(-length // block)
    q, k, v = (torch.randn(2, heads, length, size, generator=draw).to(kind) for heads in (8, 2, 2))
    blocks = (torch.rand(2, 8, count, count, generator=draw) < 0.5) | torch.eye(count, dtype=torch.bool)
    wanted = block_attention(q.float(), k.float(), v.float(), blocks, block)
    on_gpu = block_attention(*(x.cuda() for x in (q, k, v, blocks)), block)
    for ours, reference_part in zip(on_gpu, wanted, strict=True):
        torch.testing.assert_close(ours.float().cpu(), reference_part, rtol=bound, atol=bound)
