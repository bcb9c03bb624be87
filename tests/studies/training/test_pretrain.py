"""Pretraining: the mixture's arithmetic, resuming, and the folder that comes out, on a corpus and models made here."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from analysis.commands.training import TRAINED_AS_PRINTED, Pretrain
from analysis.errors import BadSetting, BadText
from analysis.models import arithmetic
from analysis.studies import STUDIES
from analysis.studies.context import Context
from analysis.studies.training import pretrain as study
from analysis.training import mixture
from analysis.training.checkpoints import read_log
from analysis.training.pretrain import build_model, optimisers, train, trained, training_method
from analysis.training.recipe import Recipe
from analysis.training.yardsticks import bits_per_byte, evaluate
from tests.made.tuning import equal_numbers

SMALL = {"layers": 1, "width": 32, "heads": 4, "kv_heads": 2, "intermediate": 48}
TINY = Recipe(**SMALL, steps=8, warm_up=2, context=64, tokens_per_step=128, tokens_per_pass=64)
WORDS = "the dog saw a cat in old houses by sea while rain fell on green hills and nobody spoke of it again".split()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A corpus with the real layout: two novels, code, and one WikiText file per split."""
    root, rng = tmp_path_factory.mktemp("corpus"), np.random.default_rng(0)
    for split, words in (("train", 3000), ("valid", 400)):
        for folder, name, line in (("books", "{}.txt", "{}\n"), ("python", "{}.py", "def f():\n    return {}\n")):
            (root / folder / split).mkdir(parents=True)
            for n in range(2):
                text = "".join(line.format(" ".join(rng.choice(WORDS, 8))) for _ in range(words // 16))
                (root / folder / split / name.format(n)).write_text(text)
        (root / "wikitext2").mkdir(exist_ok=True)
        article = " \n = A thing = \n \n" + " The <unk> , a well @-@ known dog . \n" * (words // 16)
        (root / "wikitext2" / f"wiki.{split}.tokens").write_text(article * 2)
    return root


@pytest.fixture(scope="module")
def data(corpus, tmp_path_factory):
    """Shards of that corpus: (folder, tokens to train on, valid tokens, about)."""
    folder = tmp_path_factory.mktemp("tokens")
    about = mixture.build(corpus, folder, vocabulary=300, characters=20_000)
    return folder, *(mixture.read_shards(folder, about, split) for split in mixture.SPLITS), about


@pytest.fixture
def training(data, tmp_path):
    """`training(name, recipe, **more)` trains in a work folder of this name."""

    def training(name, recipe=TINY, **options):
        (tmp_path / name).mkdir(exist_ok=True)
        return train(recipe, *data[1:], tmp_path / name, **{"evaluate_every": 8} | options)

    return training


def test_wikitext_becomes_written_text_and_keeps_its_unknown_words():
    raw = " = A Thing = \n \n The <unk> , ( a well @-@ known dog ) cost 1 @,@ 000 , "
    raw += '" he said " ; it \'s fine . \n = = Then = = \n'
    written = '= A Thing =\n\nThe <unk>, (a well-known dog) cost 1,000, "he said"; it\'s fine.\n== Then =='
    assert mixture.detokenise(raw) == written
    parts = mixture.articles(" = A = \n x \n = = s = = \n y \n = B = \n z \n")
    assert [part.split("\n")[0] for part in parts] == [" = A = ", " = B = "]


def test_shards_hold_the_documents_and_their_sizes(corpus, data):
    folder, *tokens_of, about = data
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.token_to_id(mixture.END_OF_TEXT) == 0
    for domain in mixture.MIXTURE:
        files = [set(mixture.files(corpus, domain, split)) for split in mixture.SPLITS]
        assert all(files) and not files[0] & files[1], "train and valid are disjoint"
        for split, tokens in zip(mixture.SPLITS, tokens_of, strict=True):
            texts, size = list(mixture.documents(corpus, domain, split)), about["domains"][domain.name][split]
            assert size["documents"] == len(texts) == 2 == (tokens[domain.name] == 0).sum()
            assert size["bytes"] == sum(len(text.encode()) for text in texts)
            assert size["tokens"] == len(tokens[domain.name])
            back = tokenizer.decode(tokens[domain.name].tolist(), skip_special_tokens=False)
            assert sorted(back.split(mixture.END_OF_TEXT)[1:]) == sorted(texts)
    assert "\n    return " in tokenizer.decode(tokens_of[0]["python"].tolist())


@pytest.fixture
def corpus_of_two(tmp_path):
    """A corpus of two folders of somebody's own, the second with three times the text."""
    for name, times in (("code", 1), ("web", 3)):
        for split in mixture.SPLITS:
            (tmp_path / "own" / name / split).mkdir(parents=True)
            (tmp_path / "own" / name / split / "a.txt").write_text(f"{split} {name} " * 400 * times)
    return tmp_path / "own"


def test_other_folders_are_domains_and_another_tokenizer_is_taken_as_it_is(corpus_of_two, tmp_path):
    """That of Llama divides documents by `</s>`, which is not its token 0."""
    tokenizer = mixture.train_tokenizer(corpus_of_two, mixture.of_corpus(corpus_of_two), 300, 5000)
    vocabulary = json.loads(tokenizer.to_str())
    written = (
        json.dumps(vocabulary)
        .replace(mixture.END_OF_TEXT, "</s>")
        .replace('"</s>": 0', '"</s>": 65')
        .replace(f'"{tokenizer.id_to_token(65)}": 65', f'"{tokenizer.id_to_token(65)}": 0')
    )
    written = json.loads(written)
    written["added_tokens"][0]["id"] = 65
    (tmp_path / "theirs.json").write_text(json.dumps(written))
    about = mixture.build(corpus_of_two, tmp_path / "t", tokenizer=tmp_path / "theirs.json")
    assert about["end"] == 65 and about["given"] and list(about["domains"]) == ["code", "web"]
    shares = {name: part["share"] for name, part in about["domains"].items()}
    assert shares["web"] == pytest.approx(30 / 41) and sum(shares.values()) == pytest.approx(1)
    tokens = mixture.read_shards(tmp_path / "t", about, "train")
    assert all(ids[0] == 65 and (ids == 65).sum() == 1 for ids in tokens.values())
    config = build_model(TINY, about["vocabulary"], about["end"]).config
    assert config.eos_token_id == config.bos_token_id == 65
    even = mixture.build(corpus_of_two, tmp_path / "e", 300, 5000, shares=[1.0, 1.0])
    assert [part["share"] for part in even["domains"].values()] == [0.5, 0.5] and not even["given"]
    with pytest.raises(BadSetting, match="code, web"):
        mixture.build(corpus_of_two, tmp_path / "u", 300, shares=[1.0])
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(BadSetting, match=r"no tokenizer\.json"):
        mixture.build(corpus_of_two, tmp_path / "u", tokenizer=tmp_path / "no.json")


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
    # 0.8 epochs of the one, and of the other 40 blocks from 15, in whole rounds; every row has a target.
    assert of_a.max() == 1 and of_b[:-1].min() >= 2 and of_b.max() <= 3
    assert max(r.max() + n for r, n in zip(rows, lengths, strict=True)) < sum(tokens.values())


def test_the_schedule_warms_up_and_falls_to_its_floor():
    recipe = Recipe(steps=1000, warm_up=100)
    assert recipe.rate(0) == 0.01 and recipe.rate(99) == recipe.rate(100) == 1
    assert recipe.rate(550) == pytest.approx((1 + recipe.floor) / 2) and recipe.rate(999) < 1.01 * recipe.floor + 1e-4
    assert recipe.phases()[-1] == (750, 1000, 2048), "the last quarter at full length"
    assert replace(recipe, growing=False).phases() == [(0, 1000, 2048)]


@pytest.mark.parametrize(("family", "count"), [("llama", 7), ("gpt2", 4)])
def test_muon_gets_the_hidden_matrices_and_nothing_else(family, count):
    parameters = trained(build_model(replace(TINY, family=family), 300), None)
    muon, adam = optimisers(parameters, TINY)
    shapes = [tuple(p.shape) for p in muon.param_groups[0]["params"]]
    assert (300, 32) not in shapes and (64, 32) not in shapes and all(len(shape) == 2 for shape in shapes)
    assert len(shapes) == count == len(parameters) - len(adam.param_groups[0]["params"])


def test_adamw_as_printed_takes_one_step_by_hand():
    """Of every parameter, decayed by rate x 0.05, then moved by the rate against the sign of its first gradient."""
    recipe = replace(TINY, optimiser="adamw", weight_decay=0.05, matrix_rate=0.01, other_rate=0.002)
    parameters = trained(build_model(recipe, 300), None)
    matrices, remaining = optimisers(parameters, recipe)
    assert len(matrices.param_groups[0]["params"]) == 7 and matrices.products == arithmetic.quick_type("cpu")
    before = {name: p.detach().double() for name, p in parameters.items()}
    of_matrices = {id(p) for p in matrices.param_groups[0]["params"]}
    for p in parameters.values():
        p.grad = torch.where(p > 0, 0.3, -0.2)
    for opt in (matrices, remaining):
        assert opt.param_groups[0]["betas"] == (0.9, 0.95)
        opt.step()
    for name, p in parameters.items():
        rate = 0.01 if id(p) in of_matrices else 0.002
        wanted = before[name] * (1 - rate * 0.05) - rate * torch.where(before[name] > 0, 1.0, -1.0)
        assert torch.allclose(p.double(), wanted, atol=1e-6), name
    assert "AdamW" in recipe.optimised() and "Muon" not in recipe.optimised()


def test_sizes_and_settings_that_are_named_decide_the_recipe():
    where = {"corpus": "a", "output": "b"}
    assert study.recipe_of(Pretrain(**where)) == Recipe(), "what is usual is what it was"
    small = study.recipe_of(Pretrain(**where, layers=2, width=64, heads=4, steps=40))
    assert (small.layers, small.width, small.kv_heads, small.intermediate, small.warm_up) == (2, 64, 2, 192, 10)
    assert study.recipe_of(Pretrain(**where, family="gpt2", heads=3)).kv_heads == 3
    options = {"attention": "focal_learned", "steps": 9000, "layers": 1, "width": 32, "heads": 4}
    printed = study.recipe_of(Pretrain(**where, **options, **TRAINED_AS_PRINTED))
    assert (printed.optimiser, printed.weight_decay, printed.floor) == ("adamw", 0.05, 0.1)
    assert printed.rate(999) == 0.5 and printed.rate(8999) == pytest.approx(0.1, abs=1e-4)
    method = training_method(printed, "cpu")
    assert (method.mean, method.tau_min, method.tau_max, method.weights.offset) == ("literal", 5.0, 10.0, 0.0)
    assert training_method(replace(printed, attention="focal", t=0.3), "cpu").t == 0.3


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_an_interrupted_run_ends_at_the_same_weights(family, training, tmp_path):
    recipe = replace(TINY, family=family)
    straight, _ = training("whole", recipe, evaluate_every=4)
    for stop in (3, 6):
        training("cut", recipe, stop_at=stop, evaluate_every=4)
    with (tmp_path / "cut" / "log.jsonl").open("a") as file:
        # Written after the last checkpoint, the second torn.
        file.write('{"step": 8, "loss": 1.0}\n{"step": 9, "lo')
    resumed, _ = training("cut", recipe, evaluate_every=4)
    logs = [read_log(tmp_path / name) for name in ("whole", "cut")]
    assert equal_numbers(straight, resumed) and [entry["step"] for entry in logs[1]] == [4, 8]
    assert logs[0][-1]["valid_novels"] == logs[1][-1]["valid_novels"]
    (tmp_path / "cut" / "checkpoint.safetensors").write_bytes(b"torn")
    with pytest.raises(BadSetting, match="damaged"):
        training("cut", recipe)


@pytest.mark.slow
def test_a_run_that_goes_on_multiplies_in_the_type_that_it_began_with(training, monkeypatch):
    """Which type is quick is measured, and a busy machine may measure another the next time."""
    monkeypatch.setattr(arithmetic, "bfloat16_gain", lambda: 2.0)
    straight, _ = training("whole")
    training("cut", stop_at=3)
    monkeypatch.setattr(arithmetic, "bfloat16_gain", lambda: 0.5)
    assert equal_numbers(straight, training("cut")[0]) and not equal_numbers(straight, training("other")[0])


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["dense", "focus"])
def test_the_loss_falls_and_focus_trains_its_router(attention, training, tmp_path):
    _, method = training(attention, replace(TINY, steps=40, attention=attention), evaluate_every=20)
    first, last = (read_log(tmp_path / attention)[place] for place in (0, -1))
    assert last["loss"] < first["loss"] < math.log(300) and last["valid_python"] < first["valid_python"]
    if attention == "focus":
        fresh = type(method.router)(1, 32, seed=0)
        assert method.window == 4 and not torch.equal(method.router.centroids, fresh.centroids)


def test_the_verb_writes_a_folder_that_loads_and_repeats_its_numbers(corpus, tmp_path, monkeypatch):
    monkeypatch.setitem(study.SIZES, "llama", SMALL)
    out = tmp_path / "out"
    sizes = {"steps": 6, "length": 64, "tokens_per_step": 128, "vocabulary": 300, "work": str(tmp_path / "work")}
    sizes |= {"corpus": str(corpus), "output": str(out), "context": Context(device="cpu")}
    numbers = STUDIES["pretrain"](**sizes).numbers
    names = {path.name for path in out.iterdir()}
    assert names >= {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"}
    assert names >= {"generation_config.json", "log.jsonl", "pretrain.json"} and numbers["tokens"] == 6 * 128
    model = AutoModelForCausalLM.from_pretrained(out)
    assert model.dtype == torch.bfloat16 and model.config.max_position_embeddings == 64
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer.decode(tokenizer("def f():\n    return a")["input_ids"]) == "def f():\n    return a"
    about = json.loads((tmp_path / "work" / "tokens" / "mixture.json").read_text())
    valid = mixture.read_shards(tmp_path / "work" / "tokens", about, "valid")["python"]
    size = about["domains"]["python"]["valid"]
    bits = bits_per_byte(evaluate(model.float().eval(), valid, 64), size["tokens"], size["bytes"])
    assert bits == pytest.approx(numbers["bits_per_byte"]["python"], abs=1e-3)
    card = (out / "README.md").read_text()
    assert all(f"**{value:.3f}**" in card for value in numbers["bits_per_byte"].values())
    again = STUDIES["pretrain"](**sizes).numbers
    assert json.dumps(numbers | {"protocol": 0}) == json.dumps(again | {"protocol": 0}), "nothing is trained twice"
    with pytest.raises(BadSetting, match="other_rate"):
        STUDIES["pretrain"](**sizes, other_rate=0.001)


def test_bad_input_is_one_sentence(tmp_path):
    empty, half = tmp_path / "empty", tmp_path / "half"
    empty.mkdir()
    with pytest.raises(BadSetting, match="missing or empty"):
        mixture.build(empty, tmp_path / "t")
    (half / "books" / "train").mkdir(parents=True)
    with pytest.raises(BadText, match="no train file for novels"):
        mixture.build(half, tmp_path / "t")
    (half / "books" / "train" / "a.txt").write_bytes(b"caf\xe9")
    (half / "books" / "valid").mkdir()
    (half / "books" / "valid" / "b.txt").write_text(" \n")
    for split, message in (("train", "not UTF-8"), ("valid", "b.txt is empty")):
        with pytest.raises(BadText, match=message):
            list(mixture.documents(half, mixture.MIXTURE[0], split))
    with pytest.raises(BadSetting, match="no folder 'python'"):
        mixture.build(half, tmp_path / "t")
    with pytest.raises(BadText, match="needs one more"):
        mixture.plan(TINY.phases(), 128, {"a": 64}, {"a": 1.0}, 0)
    for wrong in (
        {"family": "rnn"},
        {"attention": "none"},
        {"context": 60},
        {"steps": 2},
        {"heads": 5},
        {"optimiser": "sgd"},
    ):
        with pytest.raises(BadSetting):
            replace(TINY, **wrong)
