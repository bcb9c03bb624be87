"""Decide: the page in-process, the worker's arithmetic and its table of stacks being the real ones."""

import json
import shlex

import pytest

from analysis import costs
from analysis.cli.options import parser
from analysis.costs import KNOWN
from analysis.errors import BadModel
from app import cached
from app.selection.decide import CONTEXTS, GPUS, LOADED, SEQUENCES
from app.selection.menu import DOORS
from app.ui.spelled import size
from app.worth import shapes
from tests.made.in_process import HOSTILE, captions, columns, go, markup, opened, part

VIEW = "worth"
LLAMA = "meta-llama/Llama-3.1-8B"
PHASES = ("attention", "decode")
OWN = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99}
KINDS = [name for name in KNOWN if name.split("/")[0] in ("openai", "Qwen", "zai-org", "deepseek-ai")]
OWN |= {"intermediate_size": 128, "max_position_embeddings": 2048, "dtype": "bfloat16"}


def page(**link: str):
    """The app at this page, with what a link carried."""
    return opened(VIEW, **link)


def live(app, role: str = "numbers") -> dict:
    """What the browser is sent for a place of the live part."""
    return part(app, "worth", ("inputs", "numbers", "picture").index(role))


def paste(app, text: str, nonce: int = 0):
    app.text_area(key=f"config_paste_{nonce}").set_value(text).run()
    return app.button(key="read_config").click().run()


def code(app) -> str:
    """The lines to copy."""
    return app.code[0].value


def test_it_opens_on_the_loaded_model_with_what_the_browser_counts_from(client):
    app = page()
    sent = live(app)
    assert not app.error and client.asked.count("worth") == 1 and sent["gpu"]["name"] == shapes.USUAL_GPU
    assert sent["now"] == {"context": 2048, "batch": 1, "keep": 0.1} and sent["longest"] == 2048
    assert sent["made"]["verdicts"] and live(app, "picture")["contexts"] == list(CONTEXTS)
    assert [slider["options"] for slider in live(app, "inputs")["sliders"]][:2] == [list(CONTEXTS), list(SEQUENCES)]
    assert not {"context", "gpu", "use_method"} & set(app.query_params), "what is shown by itself is no choice"


def test_the_well_known_shapes_and_gpus_are_those_of_the_worker(client):
    assert list(shapes.SHAPES) == list(KNOWN) and list(GPUS) == list(costs.GPUS)


def test_a_link_brings_every_input_and_another_gpu_other_times(client):
    link = {"shape": LLAMA, "context": "4096", "sequences": "64", "keep": "0.25", "counted": "ffn", "gpu": "L40S"}
    app = page(**link)
    sent = live(app)
    assert sent["now"] == {"context": 4096, "batch": 64, "keep": 0.25} and sent["gpu"]["name"] == "L40S"
    assert sent["made"]["gain"]["step_bytes"] < sent["made"]["time"]["step_bytes"], "feed-forward blocks alone"
    assert {name: app.query_params[name] for name in link} == link
    app.selectbox(key="gpu_pick").set_value("H200-SXM").run()
    assert app.query_params["gpu"] == "H200-SXM" and live(app)["gpu"]["memory"] == 141e9


def test_any_id_is_looked_up(client):
    client.refusals["worth"] = BadModel("owner/other is not on this machine: give its config.json.")
    app = page(shape="owner/other")
    assert len(app.error) == 1 and "owner/other" in app.selectbox(key="shape").options


def test_damaged_links_lose_only_what_is_damaged(client):
    app = opened(shape="0123456789ab", context="1000", sequences="many", keep="0")
    assert all(f"“{value}”" in captions(app) for value in ("1000", "many", "0"))
    go(app, VIEW)
    assert not app.error and "0123456789ab" in captions(app)
    assert not {"shape", "context", "sequences", "keep"} & set(app.query_params)
    assert "shape" not in page(shape=cached.samples()[0][0]).query_params, "a text is no config"


def test_a_config_is_pasted_or_dropped_linked_and_kept_out_of_the_texts(client):
    app = paste(page(context="256"), json.dumps(OWN))
    assert not app.error and live(app)["now"]["context"] == 2048
    key = app.query_params["shape"]
    assert client.store.text(key) == (f"{cached.CONFIG}the pasted config", json.dumps(OWN))
    assert key not in cached.texts() and key in [name for name, *_ in client.store.texts()]
    again = page(shape=key)
    assert live(again) == live(app) and "the pasted config" in again.selectbox(key="shape").options
    assert 'from_pretrained("MODEL"' in code(again)
    app.file_uploader(key="config_upload_1").upload("mine.json", json.dumps(OWN | {"vocab_size": 9}).encode())
    app.run()
    assert not app.error and "mine.json" in app.selectbox(key="shape").options


BAD = {  # a pasted config -> a part of the sentence about it
    "": "is empty",
    "{": "not valid JSON",
    "[1]": "an object in braces",
    '{"model_type": "bert", "architectures": ["BertForMaskedLM"]}': "not a causal language model",
    '{"model_type": "llama"}': "lacks num_hidden_layers, hidden_size, num_attention_heads, vocab_size",
    json.dumps(OWN | {"num_attention_heads": HOSTILE}): "where a whole number from 1",
    "[" * 100_000: "not valid JSON",
    '{"a": "' + "x" * 1_000_001 + '"}': "larger than 1 MB",
}


def test_a_bad_config_is_one_sentence_and_the_shape_in_use_stays(client):
    app = page(shape=LLAMA)
    before = live(app)
    for nonce, (text, sentence) in enumerate(BAD.items()):
        paste(app, text, nonce)
        assert len(app.error) == 1 and sentence in app.error[0].value.replace("\\", ""), text[:20]
        assert live(app) == before and app.query_params["shape"] == LLAMA
        assert "<script" not in app.error[0].value.replace("\\<", "")
    app.selectbox(key="gpu_pick").set_value("T4").run()
    assert app.error, "a rerun does not swallow the sentence"
    app.selectbox(key="shape").set_value("openai-community/gpt2").run()
    assert not app.error, "it goes with the next shape"


def test_stacks_have_lines_or_are_grey_with_the_reason(client):
    link = {"shape": LLAMA, "context": "32768", "gpu": "H100-SXM"}
    app = page(**link)
    stacks = [tab.label for tab in app.tabs if tab.label not in {page.title for page in DOORS["decide"].pages}]
    assert stacks == ["transformers", "OpenVINO", ":gray[vLLM]", ":gray[TensorRT-LLM]"]
    assert f'from_pretrained("{LLAMA}", attn_implementation="focuscope"' in code(app)
    assert "really shrinks" in markup(app) and "use_stack" not in app.query_params
    assert app.button(key="use_snapkv_make").label == "Make the zip"
    app = page(**link, use_stack="tensorrt_llm")
    assert "RocketKV needs compute capability 10.0" in markup(app) and not app.code
    app = page(**link, use_stack="openvino")
    assert "max_cache_size=3264" in code(app) and app.query_params["use_stack"] == "openvino"
    app = page(**link, use_stack="transformers", use_method="streaming_llm")
    assert "saves neither time nor memory" in markup(app), "said before the zip is made"
    assert not page(**link, use_stack="abacus").error, "a stack that nobody knows is the first that can"
    app = page(shape="deepseek-ai/DeepSeek-V3.2", use_stack="transformers")
    assert "an indexer of its own" in markup(app) and "use_snapkv_make" not in [button.key for button in app.button]


@pytest.mark.slow
def test_a_pasted_config_of_any_kind_has_an_answer(client):
    """Its notes stand on the page, its kinds of layers in the details."""
    app, shapes_met = page(worth_details="yes"), set()
    for nonce, name in enumerate(KINDS):
        paste(app, json.dumps(KNOWN[name]), nonce)
        assert not app.error and app.query_params["shape"] and live(app)["made"]["gain"]["entries"], name
        shapes_met.add(app.query_params["shape"])
        counted = costs.read_shape(KNOWN[name])
        assert all(note in markup(app) for note in counted.notes), name
        assert f"{counted.parameters / 1e9:,.4g} billion weights" in markup(app) or counted.parameters < 1e9
    assert len(shapes_met) == len(KINDS)


def test_a_cache_in_fewer_bits_goes_into_the_address_the_count_and_the_command(client):
    app = page(shape=LLAMA, worth_details="yes")
    full_bytes = live(app)["made"]["gain"]["entries"][0]["bytes"]
    app.segmented_control(key="kv_bits").set_value("8").run()
    assert app.query_params["kv_bits"] == "8" and live(app)["made"]["gain"]["entries"][0]["bytes"] == full_bytes / 2
    assert "--kv-bytes 1" in app.code[-1].value


def test_details_hold_every_context_a_second_model_csas_table_and_commands(client):
    app = page(shape=LLAMA, context="8192", worth_details="yes", shape_beside="openai-community/gpt2")
    by_context, beside = columns(app), columns(app, 1)
    assert len(by_context["context"]) == len(CONTEXTS) and part(app, "table")["selected"] == CONTEXTS.index(8192)
    assert list(beside) == ["estimated", "Llama 3.1 8B", "GPT-2 small"]
    llama = dict(zip(beside["estimated"], beside["Llama 3.1 8B"], strict=True))
    assert llama["time to the first token, dense"] == "0.1 s" and llama["time per later token, dense"] == "4.8 ms"
    assert llama["weights and cache"] == "17.1 GB of 80 GB" and llama["largest batch at this context"] == "59"
    csa = columns(app, 3)
    assert csa["share"] == ["20%", "20.0%", "14.3%", "12.5%", "33%", "33.3%", "25.0%", "22.2%"]
    assert csa["gain"] == ["1.22", "1.22", "1.15", "1.13", "1.43", "1.43", "1.29", "1.25"]


def test_the_commands_are_ones_that_the_command_line_reads(client):
    app = paste(page(worth_details="yes", context="131072"), json.dumps(KNOWN[LLAMA]))
    reads = parser("x")
    written = app.code[-1].value
    commands = [shlex.split(line)[3:] for line in written.splitlines() if line.startswith("python")]
    count, *timed = [vars(reads.parse_args(words)) for words in commands]
    wanted = {"config": "CONFIG.json", "contexts": [131072], "batches": [1], "keep": 0.1, "gpu": "H100-SXM"}
    assert count | {"verb": "worth"} | wanted == count
    wanted = {"lengths": [131072], "heads": 32, "kv_heads": 8, "head_dim": 128, "groups": 10, "dtype": "bfloat16"}
    assert [run | {"verb": "bench", "what": phase} | wanted for run, phase in zip(timed, PHASES, strict=True)] == timed
    code = page(counted="ffn", worth_details="yes").code[-1].value
    assert "worth --model demo" in code and "--no-projections" in code and "CONFIG.json" not in code


def test_a_worker_that_refuses_leaves_the_controls(client):
    client.refusals["worth"] = BadModel("This config lacks *everything*: give another.")
    app = page()
    assert len(app.error) == 1 and app.selectbox(key="shape").value == LOADED


def test_the_chosen_shape_goes_along_to_other_pages_until_it_is_left(client):
    app = page(shape=LLAMA, context="32768")
    go(app, "methods")
    assert "Deciding for Llama 3.1 8B, H100 SXM, 32,768 tokens." in markup(app)
    assert f"python -m analysis search TEXT --model {LLAMA} --lose 0.05" in markup(app)
    app.button(key="deciding_end").click().run()
    assert "Deciding for" not in markup(app) and "shape" not in app.query_params


def test_sizes_are_spelled_in_three_digits():
    sizes = {17_179_869_184: "17.2 GB", 274_877_906_944: "275 GB", 3_145_728: "3.15 MB", 12: "12 bytes"}
    assert [size(count) for count in sizes] == list(sizes.values())
