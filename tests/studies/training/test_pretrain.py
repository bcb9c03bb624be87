"""Pretraining: the mixture's arithmetic, resuming, and the folder that comes out, on a corpus and models made here."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from analysis.errors import BadSetting, BadText
from analysis.models import arithmetic
from analysis.studies import STUDIES
from analysis.studies.context import Context
from analysis.studies.training import pretrain as study
from analysis.training import mixture
from analysis.training.checkpoints import read_log
from analysis.training.pretrain import Recipe, build_model, optimisers, train, trained
from analysis.training.yardsticks import bits_per_byte, evaluate

SMALL = {"layers": 1, "width": 32, "heads": 4, "kv_heads": 2, "intermediate": 48}
TINY = Recipe(**SMALL, steps=8, warm_up=2, context=64, tokens_per_step=128, tokens_per_pass=64)
WORDS = "the dog saw a cat in old houses by sea while rain fell on green hills and nobody spoke of it again".split()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A corpus with the real layout: two novels, code, and one WikiText file per split."""
    root, rng = tmp_path_factory.mktemp("corpus"), np.random.default_rng(0)
    for split, words in (("train", 3000), ("valid", 400)):
        for folder, suffix in (("books", "txt"), ("python", "py")):
            (root / folder / split).mkdir(parents=True)
            for n in range(2):
                line = "def f():\n    return {}\n" if suffix == "py" else "{}\n"
                text = "".join(line.format(" ".join(rng.choice(WORDS, 8))) for _ in range(words // 16))
                (root / folder / split / f"{n}.{suffix}").write_text(text)
        (root / "wikitext2").mkdir(exist_ok=True)
        article = " \n = A thing = \n \n" + " The <unk> , a well @-@ known dog . \n" * (words // 16)
        (root / "wikitext2" / f"wiki.{split}.tokens").write_text(article * 2)
    return root


@pytest.fixture(scope="module")
def data(corpus, tmp_path_factory):
    """Shards of that corpus: (folder, about, train tokens, valid tokens)."""
    folder = tmp_path_factory.mktemp("tokens")
    about = mixture.build(corpus, folder, vocabulary=300, characters=20_000)
    return folder, about, mixture.read_shards(folder, about, "train"), mixture.read_shards(folder, about, "valid")


def test_wikitext_becomes_written_text_and_keeps_its_unknown_words():
    raw = " = A Thing = \n \n The <unk> , ( a well @-@ known dog ) cost 1 @,@ 000 , "
    raw += '" he said " ; it \'s fine . \n = = Then = = \n'
    assert mixture.detokenise(raw) == (
        '= A Thing =\n\nThe <unk>, (a well-known dog) cost 1,000, "he said"; it\'s fine.\n== Then =='
    )
    assert [part.split("\n")[0] for part in mixture.articles(" = A = \n x \n = = s = = \n y \n = B = \n z \n")] == [
        " = A = ",
        " = B = ",
    ]


def test_shards_hold_the_documents_and_their_sizes(corpus, data):
    folder, about, train_tokens, valid_tokens = data
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.token_to_id(mixture.END_OF_TEXT) == 0
    for domain in mixture.MIXTURE:
        for split, tokens in (("train", train_tokens), ("valid", valid_tokens)):
            texts, size = list(mixture.documents(corpus, domain, split)), about["domains"][domain.name][split]
            assert size["documents"] == len(texts) == 2 == (tokens[domain.name] == 0).sum()
            assert size["bytes"] == sum(len(text.encode()) for text in texts)
            assert size["tokens"] == len(tokens[domain.name])
            back = tokenizer.decode(tokens[domain.name].tolist(), skip_special_tokens=False)
            assert sorted(back.split(mixture.END_OF_TEXT)[1:]) == sorted(texts)
    assert "\n    return " in tokenizer.decode(train_tokens["python"].tolist())


def test_train_and_valid_files_are_disjoint(corpus):
    for domain in mixture.MIXTURE:
        there = {split: set(mixture.files(corpus, domain, split)) for split in mixture.SPLITS}
        assert there["train"] and there["valid"] and not there["train"] & there["valid"]


def test_the_plan_keeps_the_shares_and_reads_nothing_twice_within_an_epoch():
    recipe = Recipe(steps=100, warm_up=5, context=64, tokens_per_step=128)
    tokens, shares = {"a": 200 * 64 + 1, "b": 15 * 64 + 1}, {"a": 0.8, "b": 0.2}
    rows = mixture.plan(recipe.phases(), 128, tokens, shares, seed=0)
    lengths = [length for _, _, length in recipe.phases()]
    assert lengths == [8, 16, 32, 64]
    assert [len(r) * n for r, n in zip(rows, lengths, strict=True)] == [128 * (b - a) for a, b, _ in recipe.phases()]
    read = np.concatenate([(r[:, None] + np.arange(n)).ravel() for r, n in zip(rows, lengths, strict=True)])
    times = np.bincount(read, minlength=sum(tokens.values()))
    of_a, of_b = times[: tokens["a"]], times[tokens["a"] :]
    assert of_a.sum() / 12_800 == pytest.approx(0.8, abs=0.01) and of_b.sum() + of_a.sum() == 12_800
    assert of_a.max() == 1  # 0.8 epochs
    assert of_b[:-1].min() >= 2 and of_b.max() <= 3  # 40 blocks from 15, in whole rounds
    assert max(r.max() + n for r, n in zip(rows, lengths, strict=True)) < sum(tokens.values())  # a target for each row


def test_the_schedule_warms_up_and_falls_to_its_floor():
    recipe = Recipe(steps=1000, warm_up=100)
    assert recipe.rate(0) == 0.01 and recipe.rate(99) == recipe.rate(100) == 1
    assert recipe.rate(550) == pytest.approx((1 + recipe.floor) / 2) and recipe.rate(999) < 1.01 * recipe.floor + 1e-4
    assert recipe.phases()[-1] == (750, 1000, 2048)  # the last quarter at full length


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_muon_gets_the_hidden_matrices_and_nothing_else(family):
    parameters = trained(build_model(replace(TINY, family=family), 300), None)
    muon, adam = optimisers(parameters, TINY)
    shapes = {tuple(p.shape) for p in muon.param_groups[0]["params"]}
    assert (300, 32) not in shapes and (64, 32) not in shapes and all(len(shape) == 2 for shape in shapes)
    assert len(muon.param_groups[0]["params"]) == (7 if family == "llama" else 4)
    assert sum(len(opt.param_groups[0]["params"]) for opt in (muon, adam)) == len(parameters)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_an_interrupted_run_ends_at_the_same_weights(family, data, tmp_path):
    _, about, train_tokens, valid_tokens = data
    recipe, whole, cut = replace(TINY, family=family), tmp_path / "whole", tmp_path / "cut"
    whole.mkdir(), cut.mkdir()
    straight, _ = train(recipe, train_tokens, valid_tokens, about, whole, evaluate_every=4)
    train(recipe, train_tokens, valid_tokens, about, cut, stop_at=3, evaluate_every=4)
    train(recipe, train_tokens, valid_tokens, about, cut, stop_at=6, evaluate_every=4)
    with (cut / "log.jsonl").open("a") as file:
        file.write('{"step": 8, "loss": 1.0}\n{"step": 9, "lo')  # written after the last checkpoint, the second torn
    resumed, _ = train(recipe, train_tokens, valid_tokens, about, cut, evaluate_every=4)
    for (name, a), (_, b) in zip(straight.named_parameters(), resumed.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    assert [entry["step"] for entry in read_log(cut)] == [4, 8]
    assert read_log(cut)[-1]["valid_novels"] == read_log(whole)[-1]["valid_novels"]


def test_a_run_that_goes_on_multiplies_in_the_type_that_it_began_with(data, tmp_path, monkeypatch):
    """Which type is quick is measured, and a busy machine may measure another the next time."""
    _, about, train_tokens, valid_tokens = data
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for work in (whole, cut, tmp_path / "other"):
        work.mkdir()
    monkeypatch.setattr(arithmetic, "bfloat16_gain", lambda: 2.0)
    straight, _ = train(TINY, train_tokens, valid_tokens, about, whole, evaluate_every=8)
    train(TINY, train_tokens, valid_tokens, about, cut, stop_at=3, evaluate_every=8)
    monkeypatch.setattr(arithmetic, "bfloat16_gain", lambda: 0.5)
    resumed, _ = train(TINY, train_tokens, valid_tokens, about, cut, evaluate_every=8)
    other, _ = train(TINY, train_tokens, valid_tokens, about, tmp_path / "other", evaluate_every=8)
    weights = [torch.cat([p.flatten() for p in model.parameters()]) for model in (straight, resumed, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_the_loss_falls_and_focus_trains_its_router(data, tmp_path):
    _, about, train_tokens, valid_tokens = data
    for attention in ("dense", "focus"):
        recipe, work = replace(TINY, steps=40, attention=attention), tmp_path / attention
        work.mkdir()
        _, method = train(recipe, train_tokens, valid_tokens, about, work, evaluate_every=20)
        first, last = read_log(work)[0], read_log(work)[-1]
        assert last["loss"] < first["loss"] < math.log(300) and last["valid_python"] < first["valid_python"]
    assert method.window == 4
    fresh = type(method.router)(1, 32, seed=0)
    assert not torch.equal(method.router.centroids, fresh.centroids)


def test_the_verb_writes_a_folder_that_loads_and_repeats_its_numbers(corpus, tmp_path, monkeypatch):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    monkeypatch.setitem(study.SIZES, "llama", SMALL)
    asked = {"steps": 6, "length": 64, "tokens_per_step": 128, "vocabulary": 300, "work": str(tmp_path / "work")}
    asked["context"] = Context(device="cpu")
    numbers = STUDIES["pretrain"](corpus=str(corpus), output=str(tmp_path / "out"), **asked).numbers
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names >= {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"}
    assert names >= {"generation_config.json", "log.jsonl", "pretrain.json"} and numbers["tokens"] == 6 * 128
    json.dumps(numbers)  # plain numbers only
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert model.dtype == torch.bfloat16 and model.config.max_position_embeddings == 64
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.decode(tokenizer("def f():\n    return a")["input_ids"]) == "def f():\n    return a"
    about = json.loads((tmp_path / "work" / "tokens" / "mixture.json").read_text())
    valid = mixture.read_shards(tmp_path / "work" / "tokens", about, "valid")["python"]
    size = about["domains"]["python"]["valid"]
    again = bits_per_byte(evaluate(model.float().eval(), valid, 64), size["tokens"], size["bytes"])
    assert again == pytest.approx(numbers["bits_per_byte"]["python"], abs=1e-3)
    card = (tmp_path / "out" / "README.md").read_text()
    assert all(f"**{value:.3f}**" in card for value in numbers["bits_per_byte"].values())
    again = STUDIES["pretrain"](
        corpus=str(corpus), output=str(tmp_path / "out"), **asked
    ).numbers  # nothing is trained twice
    assert {k: v for k, v in again.items() if k != "protocol"} == {k: v for k, v in numbers.items() if k != "protocol"}
    with pytest.raises(BadSetting, match="other_rate"):
        STUDIES["pretrain"](corpus=str(corpus), output=str(tmp_path / "out"), **asked, other_rate=0.001)


def test_bad_input_is_one_sentence(corpus, data, tmp_path):
    _, about, train_tokens, valid_tokens = data
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadSetting, match="missing or empty"):
        mixture.build(tmp_path / "empty", tmp_path / "t")
    (tmp_path / "half" / "books" / "train").mkdir(parents=True)
    with pytest.raises(BadText, match="no train file for novels"):
        mixture.build(tmp_path / "half", tmp_path / "t")
    (tmp_path / "half" / "books" / "train" / "a.txt").write_bytes(b"caf\xe9")
    (tmp_path / "half" / "books" / "valid").mkdir()
    (tmp_path / "half" / "books" / "valid" / "b.txt").write_text(" \n")
    with pytest.raises(BadText, match="not UTF-8"):
        list(mixture.documents(tmp_path / "half", mixture.MIXTURE[0], "train"))
    with pytest.raises(BadText, match="b.txt is empty"):
        list(mixture.documents(tmp_path / "half", mixture.MIXTURE[0], "valid"))
    with pytest.raises(BadSetting, match="no folder 'python'"):
        mixture.build(tmp_path / "half", tmp_path / "t")
    with pytest.raises(BadText, match="needs one more"):
        mixture.plan(TINY.phases(), 128, {"a": 64}, {"a": 1.0}, 0)
    for wrong in ({"family": "rnn"}, {"attention": "none"}, {"context": 60}, {"steps": 2}, {"heads": 5}):
        with pytest.raises(BadSetting):
            replace(TINY, **wrong)
    work = tmp_path / "work"
    work.mkdir()
    (work / "checkpoint.safetensors").write_bytes(b"torn")
    with pytest.raises(BadSetting, match="damaged"):
        train(TINY, train_tokens, valid_tokens, about, work)
