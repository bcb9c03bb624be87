"""`export-eviction`: files that are read back from their format alone, and what their certificates say."""

import hashlib
import io
import json
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from safetensors import safe_open

import analysis
from analysis.commands.quality import ExportEviction
from analysis.errors import BadSetting
from analysis.indexers import INDEXERS
from analysis.indexers.base import Inputs
from analysis.indexers.state import unpacked
from analysis.methods import METHODS
from analysis.methods.indexer import TRAINING
from analysis.studies.quality.eviction_files import export_eviction
from analysis.studies.quality.indexed import Indexed
from analysis.studies.quality.pattern import Pattern
from analysis.studies.quality.trial import KINDS, Newest, agreement, calibration_windows, kept_of
from analysis.studies.text.calibration import split_texts
from analysis.studies.text.scoring import score_window
from tests.made.evaluating import TEXT
from tests.routers.test_preferences import written_out

OTHER = "a dog ran to the house and a cat sat there on the old mat\n" * 12
SHORT = {"prefix": 24, "continuation": 8, "cuts": 6}


@pytest.fixture
def ask(context, home):
    """`ask(**arguments)` -> the answer for the tiny model, of two texts."""
    texts = [context.add_text(name, text) for name, text in (("one", TEXT), ("other", OTHER))]
    about = {"texts": texts, "model": str(home / "tiny"), **SHORT}
    return lambda **changes: export_eviction(ExportEviction(**about | changes), context=context)


def read_back(path, layer, head, keys, positions, now, rates):
    """Scores of keys [L, D] before their rotation, from the file alone, by what the format says."""
    file = torch.load(path, weights_only=True)
    assert [layer, head] in file["metadata"]["sampled_heads"] and file["metadata"]["rope_style"] == "half"
    about = file["stats"][f"layer{layer:02d}_head{head:02d}"]
    assert file["metadata"]["head_dim"] == keys.shape[1] == 2 * len(about["q_abs_mean"])
    mean, offsets = torch.complex(about["q_mean_real"], about["q_mean_imag"])[None], [1 << o for o in range(17)]
    return written_out(mean, about["q_abs_mean"][None], keys[None], positions, now, rates, offsets, 1.0)[0]


@pytest.mark.slow
def test_statistics_read_back_from_the_format_alone_give_the_same_scores(ask, context, home, tmp_path):
    path = tmp_path / "triattention.pt"
    answer = ask(output=str(path), budget=512, share="union")
    lm = context.model(str(home / "tiny"))
    windows = calibration_windows(lm, split_texts(context, ask.__closure__[0].cell_contents["texts"], None).calibrate)
    fitted = METHODS["triattention"]().fit(lm, windows).fitted
    keys = torch.randn(lm.num_kv_heads, 5, lm.head_dim, generator=torch.Generator().manual_seed(0)).double()
    places, now = torch.tensor([0, 7, 30, 900, 4000]), 5000
    for layer in range(lm.num_layers):
        mean = torch.complex(fitted["mean_real"][layer].double(), fitted["mean_imaginary"][layer].double())
        rates = fitted["rates"][layer].double()
        scores = analysis.triattention_scores(mean, fitted["size"][layer].double(), keys, places, now, rates)
        for head in range(lm.num_heads):
            group_keys = keys[head * lm.num_kv_heads // lm.num_heads]
            wanted = read_back(path, layer, head, group_keys, places, now, rates)
            assert ((scores[head] - wanted).abs() / wanted.abs()).max() < 1e-6
    options = yaml.safe_load((tmp_path / "triattention.yaml").read_text())["kv_cache_compression_config"]
    assert options == {
        **{"algorithm": "triattention", "eviction_mode": "union", "budget": 512, "beta": 128},
        "calibration_path": str(path),
    }
    certificate = json.loads((tmp_path / "triattention.json").read_text())
    assert certificate["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert certificate["calibration_tokens"] == windows.numel() and 0 < certificate["agreement_between_halves"] <= 1
    assert [row["domain"] for row in certificate["transfer"]] == ["story", "essay", "program", "register"]
    assert set(certificate["held_out"]) >= {"change", "change_low", "null", "against_null"}
    assert answer.certificate == {name: value for name, value in certificate.items() if name != "protocol"}
    with pytest.raises(BadSetting, match="is there already"):
        ask(output=str(path))


@pytest.mark.slow
def test_lines_and_shares_read_back(ask, context, home, tmp_path):
    lm = context.model(str(home / "tiny"))
    ask(output=str(tmp_path / "lines" / "kvzap.safetensors"), method="kvzap")
    config = json.loads((tmp_path / "lines" / "config.json").read_text())
    assert config["n_modules"] == lm.num_layers and config["hidden_dim"] is None
    with safe_open(tmp_path / "lines" / "kvzap.safetensors", "pt") as file:
        assert file.get_tensor("layers.1.weight").shape == (config["output_dim"], config["input_dim"])
        assert file.get_tensor("layers.1.bias").shape == (lm.num_kv_heads,)
    ask(output=str(tmp_path / "shares.npy"), method="ada_kv", ratio=0.75)
    shares = np.load(tmp_path / "shares.npy")
    assert shares.shape == (lm.num_layers, lm.num_kv_heads) and shares.mean() == pytest.approx(0.25, abs=0.03)
    ids = torch.arange(3, 27) % 20
    kept_keys = kept_of(lm, KINDS["ada_kv"].method(lm, shares, 0.75, ""), ids)
    counts = torch.stack([kept_keys[layer][0].sum(-1) for layer in kept_keys]).double()
    assert counts.sum() == 6 * counts.numel()
    assert (counts / counts.mean() - torch.as_tensor(shares / shares.mean())).abs().max() < 0.2
    with pytest.raises(BadSetting, match="leaves as FILE.pt"):
        ask(output=str(tmp_path / "wrong.npy"))


def class_of(config, path):
    """The indexer of transformers that config.json names, with the tensors of the file for the second layer."""
    module = {"dsa": "deepseek_v32", "m3": "minimax_m3_vl", "qsa": "qwen4_exp"}[config["kind"]]
    room = pytest.importorskip(f"transformers.models.{module}.modeling_{module}")
    indexer = getattr(room, config["class"])(SimpleNamespace(**config), 1).float()
    begin = "model.layers.1.self_attn.indexer."
    with safe_open(path, "pt") as file:
        of_layer = {name.removeprefix(begin): file.get_tensor(name) for name in file.keys() if begin in name}
        assert len(file.keys()) == config["n_modules"] * len(of_layer)
    indexer.load_state_dict(of_layer, strict=True)
    return indexer


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dsa", "m3", "qsa"])
def test_an_indexer_is_read_back_by_its_class_from_the_format_alone(ask, home, tmp_path, monkeypatch, kind):
    """What the class of transformers hands to topk is what our indexer of the same tensors scores."""
    path = tmp_path / "indexer.safetensors"
    monkeypatch.setitem(TRAINING, "steps", 2)
    answer = ask(output=str(path), method="indexer", kind=kind, prefix=52, ratio=0.2)
    config = json.loads((tmp_path / "config.json").read_text())
    indexer, handed, stock = class_of(config, path), [], torch.Tensor.topk
    monkeypatch.setattr(torch.Tensor, "topk", lambda x, *a, **b: (handed.append(x.clone()), stock(x, *a, **b))[1])
    hidden = torch.randn(40, config["hidden_size"], generator=torch.Generator().manual_seed(0))
    places, sizes = torch.arange(40), config["qk_rope_head_dim"]
    angles = torch.outer(places, config["rope_theta"] ** (-torch.arange(0, sizes, 2) / sizes)).repeat(1, 2)
    tables, causal = (angles.cos()[None], angles.sin()[None]), torch.ones(40, 40, dtype=torch.bool).tril()
    with torch.no_grad():
        if kind == "dsa":
            indexer(hidden[None], hidden[None], tables, torch.zeros(1, 40, 40).masked_fill(~causal, -torch.inf), None)
            theirs = handed[0][0]
        elif kind == "m3":
            indexer(hidden[None], tables, None, places[None])
            theirs = handed[0][0][..., 0]
        else:
            indexer(hidden[None], tables, causal[None, None], None)
            theirs = handed[-1]
    state, about = dict(indexer.named_parameters()), {"block": config.get("indexer_compress_ratio")}
    ours = analysis.indexer_scores(kind, state, hidden, angles.cos(), angles.sin(), **about)
    if kind == "m3":
        # The first block, beyond the reach of the own one, which the class puts first.
        ours = ours[..., : config["index_block_size"]].amax(-1)[:, 32:]
        theirs = theirs[:, 32:]
    ours = ours[-1] if kind == "qsa" else ours
    finite = ~theirs.isneginf()
    assert torch.equal(finite, ~ours.isneginf()) and finite.any()
    assert (ours[finite] - theirs[finite]).abs().max() < 1e-5 * max(1, theirs[finite].abs().max())

    certificate = json.loads((tmp_path / "indexer.json").read_text())
    assert certificate["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest() and certificate["kind"] == kind
    assert certificate["calibration_tokens"] > 0 and len(certificate["transfer"]) == 4
    assert 0 < certificate["agreement_by_chance"] < certificate["agreement_between_halves"] <= 1
    assert set(certificate["held_out"]) >= {"change", "change_low", "null", "against_null"}
    assert INDEXERS[kind].title in answer.sentence and not answer.notes


def gate_of(config, tensors, queries, keys):
    """[G, T, blocks] of SeerAttention-R from the file alone, in loops over blocks: queries [T, H, D] and keys [T, G, D]
    before their rotation."""
    wide, block, sizes = config["gate_hidden_size"], config["block_size"], config["qk_rope_head_dim"]

    def normed(x, name):
        root = (x.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"]).sqrt()
        return x / root * tensors[f"attngate_{name}norm.weight"].double()

    def turned(x, place):
        rates = config["rope_theta"] ** (-torch.arange(0, sizes, 2, dtype=torch.float64) / sizes)
        pairs = torch.complex(*x[..., :sizes].chunk(2, -1)) * torch.polar(torch.ones_like(rates), place * rates)
        return torch.cat([pairs.real, pairs.imag, x[..., sizes:]], -1)

    to_gate, to_block = (tensors[f"attngate_linear_{name}.weight"].double() for name in "qk")
    grouped = queries.unflatten(1, to_gate.shape[:2])
    gates = normed(sum(grouped[:, :, head, None] @ to_gate[:, head] for head in range(to_gate.shape[1]))[:, :, 0], "q")
    gates = torch.stack([turned(gate, place) for place, gate in enumerate(gates)])  # [T, G, wide]
    scores = []
    for start in range(0, len(keys), block):
        some = keys[start : start + block]
        three = torch.cat([some.amax(0), some.amin(0), some.mean(0)], -1)  # [G, 3 D]
        means = turned(normed((three[:, None] @ to_block)[:, 0], "k"), start)
        scores.append((gates * means).sum(-1) / wide**0.5)
    return torch.stack(scores, -1).transpose(0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["seer", "low_rank"])
def test_what_no_class_reads_is_read_back_by_its_formula(ask, context, home, tmp_path, monkeypatch, kind):
    path, states = tmp_path / "indexer.safetensors", []
    monkeypatch.setitem(TRAINING, "steps", 2)
    write = Indexed.write
    monkeypatch.setattr(Indexed, "write", lambda *args: states.append(args[-1]) or write(*args))
    ask(output=str(path), method="indexer", kind=kind, prefix=52, ratio=0.2)
    config, lm = json.loads((tmp_path / "config.json").read_text()), context.model(str(home / "tiny"))
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(32, lm.width, generator=draw).double()
    queries, keys = (
        torch.randn(32, heads, lm.head_dim, generator=draw).double() for heads in (lm.num_heads, lm.num_kv_heads)
    )
    indexers, _ = unpacked(states[0], kind, lm.num_layers)
    for layer, indexer in enumerate(indexers):
        begin, tensors = f"model.layers.{layer}.self_attn.indexer.", {}
        with safe_open(path, "pt") as file:
            tensors = {name.removeprefix(begin): file.get_tensor(name) for name in file.keys() if begin in name}
        rows = torch.arange(32)
        tables = indexer.tables(rows)
        ours = indexer.scores(indexer.features(Inputs(hidden, None, queries, keys)), tables, tables, rows)
        if kind == "seer":
            wanted = gate_of(config, tensors, queries, keys)
        else:
            assert len(tensors["q.weight"]) == config["rank"]
            wanted = (hidden @ tensors["q.weight"].double().T @ (hidden @ tensors["k.weight"].double().T).T)[None]
        assert ours.shape == wanted.shape and ours.abs().max() > 1e-3
        assert (ours - wanted).abs().max() < 1e-5 * max(1, wanted.abs().max())


@pytest.mark.slow
def test_a_page_keeps_the_files_of_an_indexer_with_its_run(ask, context, home, monkeypatch):
    monkeypatch.setitem(TRAINING, "steps", 2)
    monkeypatch.setattr("analysis.studies.context.CACHE", home)
    monkeypatch.setattr(context, "browser", True)
    answer = ask(method="indexer", kind="low_rank", prefix=52, ratio=0.2)
    archive = zipfile.ZipFile(io.BytesIO(answer.arrays["zip"].tobytes()))
    assert archive.namelist() == ["config.json", "low_rank.json", "low_rank.safetensors"] and answer.path is None
    digest = hashlib.sha256(archive.read("low_rank.safetensors")).hexdigest()
    assert json.loads(archive.read("low_rank.json"))["sha256"] == digest == answer.certificate["sha256"]
    for wrong in ({"output": "x.safetensors", "method": "indexer"}, {"method": "kvzap"}):
        with pytest.raises(BadSetting, match="page"):
            ask(**wrong)
    monkeypatch.setattr(context, "browser", False)
    with pytest.raises(BadSetting, match="-o FILE"):
        ask(method="indexer")


def test_nulls_of_an_indexer_and_of_keys_and_the_agreement_by_hand(context, home):
    lm = context.model(str(home / "tiny"))
    ids = torch.arange(3, 99) % 20 + 3
    # A block may hold keys that are read anyway.
    for kind, off in (("dsa", 1e-9), ("m3", 0.06)):
        trial = Indexed(kind, 48)
        method = trial.method(lm, trial.fit(lm, ids.expand(2, -1), 0.5), 0.5, "")
        (null,) = trial.nulls(lm, 0.5)["null"]
        reads = [score_window(lm, method, ids)[1].attended for method in (method, null)]
        assert reads[0] == pytest.approx(reads[1], rel=off)
    lm = context.model(str(home / "tiny"))
    newest = kept_of(lm, Newest(ratio=0.5), torch.arange(3, 19))
    assert newest[0][0, 0].nonzero().flatten().tolist() == [0, 1, 2, 3, 12, 13, 14, 15]
    first, second = torch.tensor([[[True, True, False, False]]]), torch.tensor([[[True, False, True, False]]])
    assert agreement([{0: first}], [{0: second}]) == 0.5


@pytest.mark.slow
def test_a_pattern_leaves_as_a_line_with_its_nulls(ask, context, home, tmp_path):
    lm = context.model(str(home / "tiny"))
    answer = ask(output=str(tmp_path / "pattern.txt"), method="layer_reuse", anchors=2, ratio=0.75)
    pattern = (tmp_path / "pattern.txt").read_text().strip()
    assert len(pattern) == lm.num_layers and pattern[0] == "F" and pattern.count("F") == 2
    certificate = json.loads((tmp_path / "pattern.json").read_text())
    assert set(certificate["held_out"]) >= {"change_low", "null_low", "random_low", "against_null", "against_random"}
    assert {certificate["agreement_between_halves"]} <= {0, 0.5, 1} and 0 < certificate["agreement_by_chance"] < 1
    assert pattern in answer.sentence and not answer.notes
    kind = Pattern(2, 6)
    assert [choice[2].tolist() for choice in kind.choices(None, "FFS")] == [[False, True, False]]
    assert [null.pattern for null in kind.nulls(lm, 0.5)["null"]] == ["FFS"]
    with pytest.raises(BadSetting, match="cannot choose"):
        ask(output=str(tmp_path / "more.txt"), method="layer_reuse", anchors=4)
