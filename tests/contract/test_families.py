"""Families whose attention is more than a causal softmax: the logits and tokens of the stock model, exact statistics,
nothing from the future, and methods inside what the model itself lets be read; docs/models.md says what comes out
today."""

import pytest
import torch
from transformers import CONFIG_MAPPING

from analysis.groups.router import FocusRouter
from analysis.methods import METHODS
from analysis.models import load_model
from analysis.seam.attention import apply
from analysis.seam.hooks import Hooks
from analysis.studies.routing.passes import rotated_layers
from tests.contract import verified
from tests.made import full_tables
from tests.made.families import BY_KIND, small, token_ids
from tests.made.tiny_tokenizer import byte_level

# Its stock model gives no tables of attention in these: the reference is made by hand in the tests below.
NO_TABLES = ("longcat_flash", "falcon_h1")


class AllKeys(Hooks):
    """Everything that the model lets be read, through the reference."""


def logits(lm, ids, **options):
    with torch.no_grad():
        return lm(ids, use_cache=False, **options).logits


def generated(lm, ids):
    return lm.generate(ids, max_new_tokens=6, do_sample=False, eos_token_id=None)


@pytest.mark.parametrize("family", BY_KIND)
def test_a_family_computes_what_the_stock_model_does_and_nothing_from_the_future(family):
    lm = small(family)
    ids = token_ids(lm)
    stock, tokens = logits(lm, ids), generated(lm, ids)
    assert load_model(lm, tokenizer=byte_level()).lm is lm
    for method in (METHODS["dense"](), AllKeys()):
        with apply(lm, method):
            assert (logits(lm, ids) - stock).abs().max() <= 1e-5 * max(1, stock.abs().max())
            assert torch.equal(generated(lm, ids), tokens)
    assert torch.equal(logits(lm, ids), stock)
    lm = small(family)
    ids = token_ids(lm)
    changed = ids.clone()
    changed[:, 24:] = ids[:, 24:].flip(1)
    for method in (METHODS["dense"](), METHODS["oracle_topk"](k=5), METHODS["streaming_llm"](n_sink=2, window=4)):
        with apply(lm, method):
            moved = (logits(lm, ids) - logits(lm, changed))[:, :24].abs().max()
        assert moved < 1e-5


@pytest.mark.parametrize("family", [case for case in BY_KIND if case.values[0] not in NO_TABLES])
def test_statistics_are_those_of_full_tables_in_float64(family):
    lm = small(family)
    full_tables.agree(full_tables.read(lm, token_ids(lm)), full_tables.materialised(lm, token_ids(lm)))


def test_where_an_indexer_leaves_none_of_a_methods_keys_the_nearest_is_read():
    lm = small("deepseek_v32")
    blocks = []

    class Window(Hooks):
        def mask(self, block):
            return block.distances() < 1

    def watch(block, probabilities):
        blocks.append((block, probabilities))

    with apply(lm, Window(), watch):
        assert logits(lm, token_ids(lm)).isfinite().all()
    left_out = 0
    for block, probabilities in blocks:
        alone = probabilities.max(-1).values
        assert torch.allclose(alone, torch.ones_like(alone)), "every query reads one key"
        itself = block.columns == block.rows[:, None]
        visible = block.visible.expand_as(probabilities)
        without = ~(visible & itself).any(-1)
        left_out += int(without.sum())
        nearest = torch.where(visible, block.columns, -1).amax(-1)
        assert torch.equal(probabilities.argmax(-1), nearest)
    assert left_out, "the indexer left some query's own key out"


@pytest.mark.parametrize("name", ["snapkv", "focus"])
def test_a_cache_of_latents_is_read_as_the_reference_reads_it(name):
    lm = small("glm4_moe_lite")
    model = load_model(lm)
    assert model.head_dim == lm.config.v_head_dim, "sizes alone do not tell MLA"
    method = METHODS["snapkv"](ratio=0.5, window=4)
    if name == "focus":
        router = FocusRouter(model.num_layers, model.width, groups=4, top=1, window=8, seed=0)
        draw = torch.Generator().manual_seed(1)
        router.scale_to([torch.randn(256, model.width, generator=draw) for _ in range(model.num_layers)])
        method = METHODS["focus"].build(router)
    tokens = []
    for kernels in (False, True):
        with apply(lm, method, kernels=kernels):
            tokens.append(generated(lm, token_ids(lm)))
    assert torch.equal(*tokens)


@pytest.mark.parametrize("family", ["deepseek_v32", "minimax_m3_vl_text"])
def test_a_method_may_replace_the_models_own_indexer(family):
    lm, causal = small(family), []

    def watch(block, probabilities):
        causal.append(bool((block.visible == (block.distances() >= 0)).all()))

    with apply(lm, AllKeys(), watch, indexer=False):
        alone = logits(lm, token_ids(lm))
    assert causal and all(causal), "every past key may be read"
    with apply(lm, AllKeys()):
        assert (logits(lm, token_ids(lm)) - alone).abs().max() > 1e-3, "the indexer leaves something out"


def test_the_rotation_of_a_model_that_turns_queries_and_keys_one_by_one_is_undone():
    """DeepSeek-V4, with tables of its own in the layers that compress."""
    assert rotated_layers(load_model(small("deepseek_v4"), tokenizer=byte_level())) == [True] * 4


# Families whose attention can be replaced, and of which the page must say so.
AT_LEAST = 68
# Equal on one processor, a rounding apart on another, whose matrix products add in another order.
ROUNDED = {"bit for bit": "to 1e-5", "0": "below 1e-5"}


def but_for_rounding(cells: list[str]) -> list[str]:
    """What a row says on any processor."""
    return [ROUNDED.get(cell, cell) for cell in cells]


def page() -> dict[str, list[str]]:
    """The rows of the page: family -> its cells, or the sentence with which it is refused."""
    lines = verified.PLACE.read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return {family: cells for family, *cells in cells if family != "family"}


def test_the_page_says_of_every_family_that_it_agrees_or_why_it_is_refused():
    rows = page()
    loaded = {family: cells for family, cells in rows.items() if len(cells) > 1}
    assert len(rows) >= 75 and len(loaded) >= AT_LEAST
    assert all(len(cells) == 1 + len(verified.COLUMNS) for cells in loaded.values())
    assert not {"differ", "leaks"} & {cell for cells in loaded.values() for cell in cells}
    refused = [cells[0] for cells in rows.values() if len(cells) == 1]
    assert all(sentence.endswith(".") and len(sentence) < 400 for sentence in refused)


@pytest.mark.parametrize("family", [*BY_KIND, "llama", "mistral", "smollm3"])
def test_a_family_is_what_the_page_says(family):
    written = page()[family][1 : 1 + len(verified.CHEAP)]
    assert but_for_rounding(verified.row(family, verified.CHEAP)) == but_for_rounding(written)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gpt2", "gemma2", "phi3", "mixtral", "gpt_oss", "deepseek_v3", "nemotron_h"])
def test_a_family_is_all_that_the_page_says(family):
    if family not in CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {family}")
    assert but_for_rounding(verified.row(family)) == but_for_rounding(page()[family][1:])
