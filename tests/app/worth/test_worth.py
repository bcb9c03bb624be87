"""Is it worth it?: the page in-process, the worker's arithmetic being the real one."""

import json
import shlex

import pytest

from analysis import costs
from analysis.cli.options import parser
from analysis.costs import KNOWN
from analysis.errors import BadModel
from app import cached
from app.selection.decide import CONTEXTS, GPUS
from app.ui.spelled import size
from app.worth import shape_costs, worth_charts
from tests.made.in_process import HOSTILE, captions, columns, figures as drawn_charts, go, markup, opened, part

VIEW = "worth"
LLAMA = "meta-llama/Llama-3.1-8B"
PHASES = ("attention", "decode")
OWN = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99}
OWN |= {"intermediate_size": 128, "max_position_embeddings": 2048, "dtype": "bfloat16"}


def page(**link: str):
    """The app at this page, with what a link carried."""
    return opened(VIEW, **link)


def lead(app) -> str:
    return next(line for line in markup(app).split("\n") if "fs-lead" in line)


def figures(app) -> dict[str, str]:
    return {metric.label: metric.value for metric in app.metric}


def paste(app, text: str, nonce: int = 0):
    app.text_area(key=f"config_paste_{nonce}").set_value(text).run()
    return app.button(key="read_config").click().run()


def test_it_opens_with_its_question_and_one_computed_sentence_about_the_loaded_model(client):
    app = page()
    assert not app.error and client.asked.count("worth") == 2
    assert "with 2,048 tokens and 1 sequence, attention is 40%" in lead(app)
    assert list(figures(app))[2:] == ["KV cache held, bfloat16", "Weights read in a step, bfloat16"]
    assert len(drawn_charts(app)) == 3 and "context" not in app.query_params, "a shown default is not a choice"


def test_the_well_known_shapes_are_those_of_the_worker(client):
    assert list(shape_costs.SHAPES) == list(KNOWN) and list(GPUS) == list(costs.GPUS)


def test_sliders_change_the_answer_and_stand_in_the_address(client):
    app = page(shape=LLAMA)
    before = lead(app)
    assert "with 131,072 tokens" in before
    asked = len(client.asked)
    app.select_slider(key="context_pick").set_value(4096).run()
    app.select_slider(key="sequences").set_value(64).run()
    assert len(client.asked) == asked, "context and batch are rows of one stored run"
    assert "with 4,096 tokens and 64 sequences at once" in lead(app)
    app.select_slider(key="keep").set_value(0.25).run()
    assert "reading 25% of the keys" in lead(app)
    app.segmented_control(key="counted").set_value("ffn").run()
    assert "beside the feed-forward blocks alone" in lead(app)
    link = {name: app.query_params[name] for name in ("shape", "context", "sequences", "keep", "counted")}
    assert link == {"shape": LLAMA, "context": "4096", "sequences": "64", "keep": "0.25", "counted": "ffn"}
    assert lead(page(**link)) == lead(app), "the link opens the same view"


def test_a_gpu_gives_times_at_best_and_what_fits(client):
    app = page(shape=LLAMA, context="8192", gpu="H100-SXM", shape_beside="openai-community/gpt2")
    assert not app.error and "Estimated from the data sheet" in markup(app) and "NVIDIA H100 datasheet" in markup(app)
    shown = part(app, "table", 1)["columns"]
    assert [column["label"] for column in shown] == ["estimated", "Llama 3.1 8B", "GPT-2 small"]
    llama = dict(zip(shown[0]["values"], shown[1]["values"], strict=True))
    assert llama["time to the first token, dense"] == "0.1 s" and llama["time per later token, dense"] == "4.8 ms"
    assert llama["weights and cache"] == "17.1 GB of 80 GB" and llama["largest batch at this context"] == "59"
    assert "8192" in app.query_params["context"] and app.query_params["gpu"] == "H100-SXM"
    assert "worth_beside" not in str(page(shape=LLAMA).get("bidi_component"))


def test_it_ends_in_a_card_with_commands_that_the_command_line_reads(client):
    app = paste(page(gpu="H100-SXM"), json.dumps(KNOWN[LLAMA]))
    assert markup(app).count(lead(app)) == 2, "the answer leads, and stands in the card"
    code = app.code[-1].value
    reads = parser("x")
    commands = [shlex.split(line)[3:] for line in code.splitlines() if line.startswith("python")]
    count, *timed = [vars(reads.parse_args(words)) for words in commands]
    asked = {"config": "CONFIG.json", "contexts": [131072], "batches": [1], "keep": 0.1}
    assert count | {"verb": "worth"} | asked == count
    asked = {"lengths": [131072], "heads": 32, "kv_heads": 8, "head_dim": 128, "groups": 10, "dtype": "bfloat16"}
    assert [one | {"verb": "bench", "what": what} | asked for one, what in zip(timed, PHASES, strict=True)] == timed
    known = page(counted="ffn").code[-1].value
    assert "worth --model demo" in known and "--no-projections" in known and "CONFIG.json" not in known


def test_the_answer_may_be_no(client):
    app = page(shape=LLAMA, context="1024")
    assert lead(app).startswith('<p class="fs-lead">No: with 1,024 tokens') and "would need about" in markup(app)
    beyond = page(shape="openai-community/gpt2", context="65536")
    assert "The model was made for 1,024 tokens." in markup(beyond)


def test_damaged_links_lose_only_what_is_damaged(client):
    app = opened(shape="0123456789ab", context="1000", sequences="many", keep="0")
    assert all(f"“{value}”" in captions(app) for value in ("1000", "many", "0"))
    go(app, VIEW)
    assert not app.error and "0123456789ab" in captions(app)
    assert not {"shape", "context", "sequences", "keep"} & set(app.query_params)
    text = cached.samples()[0][0]
    assert "shape" not in page(shape=text).query_params, "a text is no config"


def test_a_pasted_config_is_read_linked_and_kept_out_of_the_texts(client):
    app = paste(page(context="256"), json.dumps(OWN))
    assert not app.error and "with 2,048 tokens" in lead(app)
    key = app.query_params["shape"]
    assert client.store.text(key) == (f"{cached.CONFIG}the pasted config", json.dumps(OWN))
    assert key not in cached.texts() and key in [name for name, *_ in client.store.texts()]
    again = page(shape=key)
    assert lead(again) == lead(app) and "the pasted config" in again.selectbox(key="shape").options


def test_an_uploaded_config_is_read(client):
    app = page()
    app.file_uploader(key="config_upload_0").upload("mine.json", json.dumps(OWN).encode())
    app.run()
    assert not app.error and "with 2,048 tokens" in lead(app) and "mine.json" in app.selectbox(key="shape").options


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("{", "not valid JSON"),
        ("[1]", "an object in braces"),
        ('{"model_type": "bert", "architectures": ["BertForMaskedLM"]}', "not a causal language model"),
        ('{"model_type": "llama"}', "lacks num_hidden_layers, hidden_size, num_attention_heads, vocab_size"),
        (json.dumps(OWN | {"num_attention_heads": HOSTILE}), "where a whole number from 1"),
        ("[" * 100_000, "not valid JSON"),
        ('{"a": "' + "x" * 1_000_001 + '"}', "larger than 1 MB"),
    ],
    ids=lambda value: value[:20],
)
def test_a_bad_config_is_one_sentence_and_the_shape_in_use_stays(client, text, said):
    app = page(shape=LLAMA)
    before = lead(app)
    paste(app, text)
    assert len(app.error) == 1 and said in app.error[0].value.replace("\\", "")
    assert lead(app) == before and app.query_params["shape"] == LLAMA
    assert "<script" not in app.error[0].value.replace("\\<", "")
    app.select_slider(key="keep").set_value(0.2).run()
    assert app.error, "a rerun does not swallow the sentence"
    app.selectbox(key="shape").set_value("openai-community/gpt2").run()
    assert not app.error, "it goes with the next shape"


def test_a_worker_that_refuses_leaves_the_controls(client):
    client.refusals["worth"] = BadModel("This config lacks *everything*: give another.")
    app = page()
    assert len(app.error) == 1 and app.title and app.selectbox(key="shape").value == shape_costs.LOADED


def test_a_row_of_the_table_is_the_context_to_look_at(client):
    app = page(shape=LLAMA)
    table = part(app, "table", 1)
    assert table["columns"][0]["label"] == "context" and table["selected"] == CONTEXTS.index(131072)


def test_csas_table_stands_beside_ours(client):
    shown = columns(page())
    assert shown["share"] == ["20%", "20.0%", "14.3%", "12.5%", "33%", "33.3%", "25.0%", "22.2%"]
    assert shown["gain"] == ["1.22", "1.22", "1.15", "1.13", "1.43", "1.43", "1.29", "1.25"]


def test_figures_are_hollow_and_shade_what_the_model_was_not_made_for(client):
    app = page(shape=LLAMA, sequences="16")
    shares, gains, memory = drawn_charts(app)
    assert [trace["name"] for trace in shares["data"]][1:] == [
        f"later tokens, {n}" for n in ("1 sequence", "16 sequences", "64 sequences")
    ]
    marked = [
        trace["marker"]["symbol"] for figure in (shares, gains, memory) for trace in figure["data"] if "marker" in trace
    ]
    assert all(symbol.endswith("-open") for symbol in marked), "estimates are drawn hollow"
    assert any(shape["x0"] == 131072 and shape["type"] == "rect" for shape in shares["layout"]["shapes"])
    assert memory["data"][-1]["name"] == "weights read" and max(gains["data"][-1]["y"]) == pytest.approx(10)


@pytest.mark.parametrize(("chosen", "drawn"), [(1, [1, 8, 64]), (2, [2, 8, 64]), (32, [1, 8, 32]), (256, [1, 8, 256])])
def test_the_chosen_batch_takes_the_place_of_its_nearest(chosen, drawn):
    assert worth_charts.batches(chosen) == drawn


@pytest.mark.parametrize(
    ("count", "said"),
    [(17_179_869_184, "17.2 GB"), (274_877_906_944, "275 GB"), (3_145_728, "3.15 MB"), (12, "12 bytes")],
)
def test_sizes_are_said_as_a_person_says_them(count, said):
    assert size(count) == said
