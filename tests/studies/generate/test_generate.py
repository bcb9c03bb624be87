"""Text written on, dense beside others: what streams, what is held and gone, and what each new token read."""

import numpy as np
import pytest
import torch

from analysis.commands.quality import Generate
from analysis.corpus import partial_bytes
from analysis.errors import BadSetting, TooLarge
from analysis.methods.windows import StreamingLLM
from analysis.models import load_model
from analysis.seam.attention import apply
from analysis.studies.generate.generate import generate
from analysis.studies.generate.reading import AHEAD, HELD, checks
from analysis.studies.generate.writing import pieces, prompt
from tests.made.evaluating import TEXT

SNAPKV = {"name": "snapkv", "settings": {"ratio": 0.75, "window": 4}}
NEW = 6


@pytest.fixture(scope="module")
def ask(context, home):
    """`ask(methods, **arguments)` -> (Result, the answers that were shown before the end)."""

    def run(methods, text=TEXT, **arguments):
        key, answers = context.add_text("a text", text), []
        context.show, context.at = answers.append, lambda fraction, stage: None
        request_fields = {"length": 40, "new_tokens": NEW} | arguments
        request = Generate(model=str(home / "tiny"), text=key, methods=methods, **request_fields)
        return generate(request, context=context), answers

    return run


@pytest.fixture(scope="module")
def answered(ask):
    return ask([SNAPKV, {"name": "streaming_llm", "settings": {"window": 8, "n_sink": 2}}], question="the cat?")


def stays_of(result, side: int) -> np.ndarray:
    shape = result.numbers["layers"], result.numbers["kv_heads"], result.numbers["cut"]
    return np.unpackbits(result.arrays["kept"][side], count=int(np.prod(shape))).reshape(shape).astype(bool)


def test_answers_times_and_bytes(answered):
    result, updates = answered
    dense, snapkv, streaming = result.numbers["rows"]
    assert [row["label"] for row in (dense, snapkv)] == ["Dense", "SnapKV, ratio 0.75, window 4"]
    assert dense["kv_share"] == 1 and dense["kept_keys"] == result.numbers["prompt_tokens"] == result.numbers["cut"]
    budget = int(result.numbers["cut"] * 0.25)
    assert snapkv["kept_keys"] == budget and (stays_of(result, 1).sum(-1) == budget).all() and stays_of(result, 2).all()
    assert snapkv["kv_share"] == budget / result.numbers["cut"] and streaming["kv_share"] == 1
    assert dense["ms_first"] > 0 and streaming["masked"] and not snapkv["masked"]
    answers = result.tables["answers"]
    assert answers.groupby("side")["step"].count().tolist() == [row["tokens"] for row in result.numbers["rows"]]
    for side, row in enumerate(result.numbers["rows"]):
        side_tokens = answers[answers["side"] == side]["token"].tolist()
        ours = answers[answers["side"] == 0]["token"].tolist()
        apart = [step for step, pair in enumerate(zip(ours, side_tokens, strict=False)) if pair[0] != pair[1]]
        assert row["first_difference"] == (apart[0] if apart else None)
    assert [sum(update["tokens"]) for update in updates] == list(range(1, len(answers) + 1))
    assert updates[-1]["text"] == [row["text"] for row in result.numbers["rows"]]


def test_dense_tokens_and_what_they_read_are_the_stock_model_s(answered, home):
    result, _ = answered
    model = load_model(str(home / "tiny"))
    table, answers = result.tables["tokens"], result.tables["answers"]
    ids = model.tokenizer("".join(table["piece"]), add_special_tokens=False)["input_ids"]
    new = answers[answers["side"] == 0]["token"].tolist()
    model.lm.set_attn_implementation("eager")
    with torch.no_grad():
        out = model.lm(torch.tensor([[*ids, *new[:-1]]]), output_attentions=True, use_cache=False)
    assert out.logits[0, len(ids) - 1 :].argmax(-1).tolist() == new
    wanted = torch.stack(out.attentions)[:, 0, :, len(ids) - 1 :].numpy()  # [L, H, new, T]
    layers, heads = wanted.shape[:2]
    rows = np.concatenate(
        [wanted.mean((0, 1))[None], wanted.mean(1), wanted.reshape(layers * heads, *wanted.shape[2:])]
    )
    best = np.sort(rows, -1)[..., ::-1][..., : result.arrays["read"].shape[3]].swapaxes(0, 1)
    assert np.allclose(result.arrays["read_weight"][0], best, atol=2e-3)
    assert (result.arrays["gone"][0] == -1).all() and (result.arrays["lost"][0] == 0).all()


def test_a_draft_is_right_as_far_as_it_writes_the_answer_itself(answered, ask, home):
    """By hand; and drafting token by token, each time from the answer's own text, gives the same number of passes."""
    yes, no = True, False
    assert [checks(np.array(agrees), 4) for agrees in ([yes] * 10, [no] * 3, [yes, yes, no, yes, yes, yes])] == [
        2,
        3,
        2,
    ]
    result, _ = answered
    model, table = load_model(str(home / "tiny")), result.tables
    ids = model.tokenizer("".join(table["tokens"]["piece"]), add_special_tokens=False)["input_ids"]
    answer = table["answers"][table["answers"]["side"] == 0]["token"].tolist()
    method, place, passes = StreamingLLM(window=8, n_sink=2), 0, 0
    while place < len(answer):
        text, drafted = [*ids, *answer[:place]], 0
        with torch.no_grad(), apply(model, method):
            while drafted < AHEAD and place + drafted < len(answer):
                token = int(model.lm(torch.tensor([text]), use_cache=False).logits[0, -1].argmax())
                if token != answer[place + drafted]:
                    break
                text, drafted = [*text, token], drafted + 1
        place, passes = place + drafted + 1, passes + 1
    dense, snapkv, streaming = result.numbers["rows"]
    assert streaming["per_check"] == len(answer) / passes and not {"per_check"} & {*dense, *snapkv}


def test_what_is_gone_is_not_read_and_what_was_read_is_held(answered):
    result, _ = answered
    cached, heads = stays_of(result, 1), result.numbers["heads"]
    group, cut = heads // result.numbers["kv_heads"], result.numbers["cut"]
    first = 1 + result.numbers["layers"]
    for layer in range(result.numbers["layers"]):
        for head in range(heads):
            row, group_kept = first + layer * heads + head, cached[layer, head // group]
            read = result.arrays["read"][1][1:, row]
            gone = result.arrays["gone"][1][1:, row]
            assert group_kept[read[(read >= 0) & (read < cut)]].all() and not group_kept[gone[gone >= 0]].any()
    assert (result.arrays["lost"][1][0] == 0).all()  # the prompt's last token still read everything
    assert (result.arrays["lost"][1][1:, 0] > 0).all() and (result.arrays["lost"][2][:, 0] > 0).all()


def test_a_film_says_what_left_when_and_which_later_step_wanted_it(ask, home):
    """Two heads of three layers hold 8 keys after the prompt and after every second token; a key is put back."""
    budget = {"name": "h2o", "settings": {"budget": 8, "every": 2}}
    result, _ = ask([budget], question="the cat?")
    numbers, left = result.numbers, result.arrays["left"][1]
    prompt, (dense, row) = numbers["prompt_tokens"], numbers["rows"]
    assert (result.arrays["left"][0] == HELD).all()
    # its own key is among them
    for step, held_keys in enumerate((prompt, 9, 10, 9, 10, 9)):
        assert ((left[:, :, : prompt + step] > step).sum(-1) == held_keys).all()
    model = load_model(str(home / "tiny"))
    of_key = numbers["layers"] * numbers["kv_heads"] * 2 * model.head_dim * 4
    assert row["read_bytes"] == (8 + 9 + 8 + 9 + 8) * of_key
    assert dense["read_bytes"] == sum(range(prompt, prompt + NEW - 1)) * of_key
    assert row["held_bytes"] > 9 * of_key and row["most_bytes"] >= row["held_bytes"]
    answers = result.tables["answers"]
    new = answers[answers["side"] == 1]["token"].tolist()
    ids = model.tokenizer("".join(result.tables["tokens"]["piece"]), add_special_tokens=False)["input_ids"]
    model.lm.set_attn_implementation("eager")
    with torch.no_grad():
        out = model.lm(torch.tensor([[*ids, *new[:-1]]]), output_attentions=True, use_cache=False)
    weights = torch.stack(out.attentions)[:, 0, :, len(ids) - 1 :].numpy()  # [L, H, new, T]
    shared = weights.reshape(*left.shape[:2], -1, *weights.shape[2:]).sum(2)  # [L, G, new, T]
    steps = np.arange(NEW)[:, None]
    # what comes after the first word apart is another text
    before = steps <= (NEW if row["first_difference"] is None else row["first_difference"])
    wanted = shared * (left[:, :, None, : shared.shape[3]] <= steps) * before
    best = np.sort(wanted.sum(2).ravel())[::-1]
    listed = numbers["missed"]
    assert np.allclose([missed["attention"] for missed in listed], best[: len(listed)], atol=1e-4)
    first = listed[0]
    place = first["layer"], first["head"], first["position"]
    missed_weight = wanted[place[0], place[1], :, place[2]]
    assert first["step"] == missed_weight.argmax() and first["left"] == left[place]
    again, _ = ask([budget], question="the cat?", put_back=list(place))
    assert len(again.numbers["rows"]) == 3 and again.arrays["left"][2][place] == HELD
    assert (again.arrays["left"][1] == left).all() and "put back" in again.numbers["rows"][2]["label"]
    with pytest.raises(BadSetting, match="give that method a budget"):
        ask([SNAPKV], put_back=list(place))
    with pytest.raises(BadSetting, match="no key-value head 99.0"):
        ask([budget], put_back=[99, 0, 0])


def test_a_question_behind_the_compression(ask, answered):
    result, _ = ask([SNAPKV], question="the cat?", known=False)
    before = answered[0].numbers
    assert result.numbers["prompt_tokens"] == before["prompt_tokens"] and result.numbers["cut"] < before["cut"]
    assert result.numbers["rows"][0]["text"] == before["rows"][0]["text"]
    assert result.numbers["rows"][1]["kept_keys"] == int(result.numbers["cut"] * 0.25)
    assert (result.arrays["lost"][1][0, 0] > 0) and "after the KV cache was compressed" in result.numbers["notes"][-1]


def test_the_chat_template_stands_around_text_and_question(context, home):
    lm = load_model(str(home / "begins"))
    lm.tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}<{{ m.role }}> {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    key = context.add_text("a text", TEXT)
    chat = prompt(context, lm, Generate(text=key, question="who sat?", length=12, chat=True), 60)
    assert chat.reading.text.startswith("<user> the cat") and chat.reading.text.endswith("\n\nwho sat?\n<assistant>")
    assert chat.ids[0] == lm.tokenizer.bos_token_id and (chat.ids == lm.tokenizer.bos_token_id).sum() == 1
    inside = "".join(chat.reading.tokens.pieces[chat.reading.tokens.begin : chat.cut])
    assert inside.lstrip("▁").startswith("<user> the cat") and "who" not in inside and chat.templated
    plain = prompt(context, lm, Generate(text=key, question="who sat?", length=12, chat=False), 60)
    assert plain.reading.text.endswith("\n\nwho sat?") and not plain.templated


def test_new_tokens_spell_the_text_and_a_number_beyond_the_tokenizer_is_shown_as_itself(context, home):
    tokenizer = load_model(str(home / "tiny")).tokenizer
    ids = tokenizer("the cat — ᚠᛇ sat", add_special_tokens=False)["input_ids"]
    new_pieces = pieces(tokenizer, np.array(tokenizer("mat", add_special_tokens=False)["input_ids"]), ids)
    decoded, spans = tokenizer.decode(ids), list(zip(new_pieces["start"], new_pieces["end"], strict=True))
    assert "".join(decoded[start:end] for start, end in dict.fromkeys(spans)) == decoded
    for piece, (start, end) in zip(new_pieces["piece"], spans, strict=True):
        assert piece == decoded[start:end] or piece in "".join(f"⟨{byte:02X}⟩" for byte in decoded[start:end].encode())
    assert sum("⟨" in piece for piece in new_pieces["piece"]) >= 6  # two runes of three bytes
    # Models have more rows than their tokenizer has tokens, rounded up to a multiple of 64 or 128.
    tokenizer = context.model(str(home / "tiny")).tokenizer
    (token,) = tokenizer("mat", add_special_tokens=False)["input_ids"][-1:]
    new_pieces = pieces(tokenizer, np.array([token]), [token, 10_000_000, token])
    assert new_pieces["piece"][1] == "⟨10000000⟩" and new_pieces["piece"][0] == new_pieces["piece"][2]
    assert partial_bytes(tokenizer, 10_000_000) is None


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        ({"new_tokens": 400}, BadSetting, "between 2 and 256"),
        ({"length": 63}, BadSetting, "choose between 2 and"),
        ({"question": "the cat sat on the mat " * 20}, TooLarge, "ask a shorter one"),
    ],
)
def test_refusals(ask, arguments, error, words):
    with pytest.raises(error, match=words):
        ask([SNAPKV], **arguments)


def test_at_most_two_methods(ask):
    with pytest.raises(BadSetting, match="at most 2 beside dense"):
        ask([{"name": name} for name in ("snapkv", "tova", "h2o")])
