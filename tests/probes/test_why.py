"""A score taken apart: against the definition in float64, against the attention that stock models give, and by hand."""

import numpy as np
import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from analysis import why
from analysis.errors import BadModel, BadSetting
from analysis.models import load_model
from analysis.probes.writers import Stream
from analysis.routers.rotation import turned, unrotate
from analysis.seam.parity import small_config
from tests.contract.test_contract import copy_of
from tests.made import families, tiny
from tests.made.tiny_tokenizer import byte_level

# Learned positions, rotary ones of all sizes, of some, of neighbouring sizes, and none in some layers; blocks in
# parallel; norms of queries and keys, after blocks, with a mean, of 1 + w; biases; soft caps; shared keys; experts.
OLD = ["gpt2", "gpt_neox", "llama", "qwen2", "qwen3", "gemma2", "olmo2", "phi3", "smollm3", "mixtral"]
NEW = ["opt", "cohere", "phi", "glm", "gpt_oss", "deepseek_v3", "qwen3_next"]
ALL = [*OLD, *(pytest.param(name, marks=pytest.mark.slow) for name in NEW)]
QUERY, KEY, OTHER = 40, 33, 38


def model_and_ids(family: str):
    """A tiny random model and tokens [T]."""
    if family in OLD:
        return tiny.tiny(family), tiny.token_ids(1)[0]
    if family in families.MODERN:
        return families.small(family), families.token_ids(None)[0]
    torch.manual_seed(0)
    config = small_config(CONFIG_MAPPING[family]())
    lm = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    return lm, families.token_ids(None)[0]


@pytest.mark.parametrize("family", ALL)
def test_parts_add_up_to_the_score_that_the_model_gives(family):
    """Scores are known up to a constant of their query from the attention of the stock model, whatever makes them."""
    lm, ids = model_and_ids(family)
    model = load_model(lm, tokenizer=byte_level())
    layer, head = model.layer_numbers[-1], model.num_heads - 1
    of_key, of_other = (why(model, ids, layer, head, QUERY, key) for key in (KEY, OTHER))
    for explained in (of_key, of_other):
        assert abs(explained.parts["score"].sum() - explained.logit) <= 1e-4 * max(1, abs(explained.logit))
        assert {"embedding", "bias", "L0.mlp"} < set(explained.writers)
        assert len(explained.parts) == len(explained.writers) ** 2
        assert explained.frequencies is None or explained.by_frequency()["score"].sum() == pytest.approx(
            explained.logit, abs=1e-4
        )
    with torch.no_grad():
        attention = lm(ids[None], output_attentions=True, use_cache=False).attentions[-1][0, head, QUERY].double()
    assert of_key.attention == pytest.approx(float(attention[KEY]), abs=1e-5)
    if min(attention[KEY], attention[OTHER]) > 1e-30:
        wanted = float((attention[KEY] / attention[OTHER]).log())
        assert of_key.capped - of_other.capped == pytest.approx(wanted, abs=2e-4 * max(1, abs(of_key.logit)))


def test_every_part_of_a_llama_is_the_definition_in_float64():
    """Each writer times the norm's weight and scale, projected, rotated; products of those of query and key."""
    lm = copy_of(tiny.tiny("llama")).double()
    ids, layer, head = tiny.token_ids(1)[0], 2, 3
    wrote: dict[str, torch.Tensor] = {"embedding": lm.model.embed_tokens(ids)}
    handles = []
    for number, block in enumerate(lm.model.layers[:layer]):
        weight = block.self_attn.o_proj.weight

        def heads(module, args, number=number, weight=weight):
            for number_of_head in range(4):
                columns = slice(8 * number_of_head, 8 * number_of_head + 8)
                wrote[f"L{number}.H{number_of_head}"] = args[0][0, :, columns] @ weight[:, columns].T

        handles.append(block.self_attn.o_proj.register_forward_pre_hook(heads))
        keep = lambda module, args, out, number=number: wrote.__setitem__(f"L{number}.mlp", out[0])  # noqa: E731
        handles.append(block.mlp.register_forward_hook(keep))
    with torch.no_grad():
        lm(ids[None])
        block = lm.model.layers[layer]
        stream = sum(wrote.values())
        scale = (stream.pow(2).mean(-1, keepdim=True) + lm.config.rms_norm_eps) ** -0.5
        tables = lm.model.rotary_emb(stream[None], torch.arange(len(ids))[None])
        rows, columns = slice(8 * head, 8 * head + 8), slice(8 * (head // 2), 8 * (head // 2) + 8)
        sides = []
        for weight in (block.self_attn.q_proj.weight[rows], block.self_attn.k_proj.weight[columns]):
            normed = {name: part * scale * block.input_layernorm.weight for name, part in wrote.items()}
            vectors = torch.stack([part @ weight.T for part in normed.values()])[:, None]
            sides.append(turned(vectors, block.self_attn, *(table.double() for table in tables))[:, 0])
    for handle in handles:
        handle.remove()
    wanted = (sides[0][:, QUERY] @ sides[1][:, KEY].T) / 8**0.5
    explained = why(load_model(lm, tokenizer=byte_level()), ids, layer, head, QUERY, KEY)
    assert explained.writers == [*wrote, "bias"]
    # its norm and its tables are float32 all the same
    np.testing.assert_allclose(explained.scores[:-1, :-1], wanted, atol=1e-6 * float(wanted.abs().max()))
    assert np.abs(explained.scores[-1]).max() == 0, "a llama has no bias"


def test_positions_biases_and_rounding_are_writers_of_their_own():
    lm, ids = model_and_ids("gpt2")
    lm = copy_of(lm)
    with torch.no_grad():
        lm.transformer.h[2].ln_1.bias.normal_()
    parts = why(load_model(lm, tokenizer=byte_level()), ids, 2, 0, QUERY, KEY)
    assert parts.writers[:2] == ["embedding", "position"] and parts.writers[-1] == "bias"
    assert np.abs(parts.scores[-1]).max() > 0 and np.abs(parts.scores[1]).max() > 0
    first = why(load_model(lm, tokenizer=byte_level()), ids, 0, 0, QUERY, KEY)
    assert first.writers == ["embedding", "position", "bias"]
    lm = copy_of(tiny.tiny("llama")).bfloat16()
    parts = why(load_model(lm, tokenizer=byte_level()), model_and_ids("llama")[1], 2, 1, QUERY, KEY)
    assert parts.writers[-1] == "rounding" and parts.parts["score"].sum() == pytest.approx(parts.logit, rel=1e-6)


@pytest.mark.parametrize("family", ["llama", "gpt_neox", pytest.param("cohere", marks=pytest.mark.slow)])
def test_the_score_at_another_distance_is_that_of_the_key_rotated_to_it(family):
    lm, ids = model_and_ids(family)
    model = load_model(lm, tokenizer=byte_level())
    explained = why(model, ids, 1, 1, QUERY, KEY)
    stream = Stream(lm, ids, 1, [QUERY, KEY])
    prompt = stream.prompt
    plain = unrotate(prompt.key[:, :, KEY : KEY + 1], prompt.module, tuple(t[:, KEY : KEY + 1] for t in prompt.tables))
    group = 1 * prompt.key.shape[1] // prompt.query.shape[1]
    for place in (2, 39):
        moved = turned(plain, prompt.module, *(table[:, place : place + 1] for table in prompt.tables))
        wanted = prompt.scoring.factor * float(prompt.query[0, 1, QUERY] @ moved[0, group, 0])
        assert explained.at_distances(np.array([QUERY - place]))[0] == pytest.approx(wanted, abs=1e-4)
    table = explained.by_frequency()
    assert (table["most"] >= table["score"].abs() - 1e-9).all()
    assert table["wavelength"][0] == pytest.approx(2 * np.pi, abs=1e-5)
    best = table["distance"][0]
    assert 0 <= best <= table["wavelength"][0]
    alone = explained.by_frequency("embedding", "L0.mlp")["score"].sum()
    pair = explained.parts.set_index(["query_writer", "key_writer"])["score"]["embedding", "L0.mlp"]
    assert alone == pytest.approx(pair, abs=1e-9)


def test_what_is_no_sum_or_not_there_is_refused():
    lm, ids = model_and_ids("llama")
    model = load_model(lm, tokenizer=byte_level())
    before = [(len(m._forward_hooks), len(m._forward_pre_hooks), *vars(m)) for m in lm.modules()]
    why(model, ids, 2, 0, QUERY, KEY)
    for layer, head, query, key in [(3, 0, 4, 2), (0, 4, 4, 2), (0, 0, 2, 4), (0, 0, 48, 2)]:
        with pytest.raises(BadSetting):
            why(model, ids, layer, head, query, key)
    assert before == [(len(m._forward_hooks), len(m._forward_pre_hooks), *vars(m)) for m in lm.modules()]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["doge", "deepseek_v4", "longcat_flash"])
def test_families_whose_scores_are_no_such_sum_are_refused(family):
    lm, ids = model_and_ids(family)
    model = load_model(lm, tokenizer=byte_level())
    with pytest.raises(BadModel, match="choose another model"):
        why(model, ids, model.layer_numbers[-1], 0, QUERY, KEY)
