"""`export-eviction`: files that are read back from their format alone, and what their certificates say."""

import cmath
import hashlib
import json
import math

import numpy as np
import pytest
import torch
import yaml
from safetensors import safe_open

import analysis
from analysis.commands.quality import ExportEviction
from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.studies.quality.eviction_files import export_eviction
from analysis.studies.quality.pattern import Pattern
from analysis.studies.quality.trial import KINDS, Newest, agreement, calibration_windows, kept_of
from analysis.studies.text.calibration import split_texts
from tests.made.evaluating import TEXT

OTHER = "a dog ran to the house and a cat sat there on the old mat\n" * 12
SHORT = {"prefix": 24, "continuation": 8, "cuts": 6}


@pytest.fixture
def ask(context, home):
    """`ask(**arguments)` -> the answer for the tiny model, of two texts."""
    texts = [context.add_text(name, text) for name, text in (("one", TEXT), ("other", OTHER))]
    about = {"texts": texts, "model": str(home / "tiny"), **SHORT}
    return lambda **more: export_eviction(ExportEviction(**about, **more), context=context)


def read_back(path, layer, head, keys, positions, now, rates):
    """Scores of keys [L, D] before their rotation, from the file alone: what the format says, in loops."""
    file = torch.load(path, weights_only=True)
    assert [layer, head] in file["metadata"]["sampled_heads"] and file["metadata"]["rope_style"] == "half"
    about, half = file["stats"][f"layer{layer:02d}_head{head:02d}"], file["metadata"]["head_dim"] // 2
    scores = []
    for key, s in zip(keys.tolist(), positions.tolist(), strict=True):
        score = 0.0
        for f in range(half):
            q = complex(float(about["q_mean_real"][f]), float(about["q_mean_imag"][f]))
            k = complex(key[f], key[f + half])
            turns = [(now - s + (1 << o)) * float(rates[f]) + cmath.phase(q * k.conjugate()) for o in range(17)]
            score += abs(q) * abs(k) * sum(map(math.cos, turns)) / 17
            score += (float(about["q_abs_mean"][f]) - abs(q)) * abs(k)
        scores.append(score)
    return torch.tensor(scores, dtype=torch.float64)


@pytest.mark.slow
def test_statistics_read_back_from_the_format_alone_give_the_same_scores(ask, context, home, tmp_path):
    path = tmp_path / "triattention.pt"
    made = ask(output=str(path), budget=512, share="union")
    lm = context.model(str(home / "tiny"))
    windows = calibration_windows(lm, split_texts(context, ask.__closure__[0].cell_contents["texts"], None).calibrate)
    fitted = METHODS["triattention"]().fit(lm, windows).fitted
    keys = torch.randn(lm.num_kv_heads, 5, lm.head_dim, generator=torch.Generator().manual_seed(0)).double()
    places, now = torch.tensor([0, 7, 30, 900, 4000]), 5000
    for layer in range(lm.num_layers):
        mean = torch.complex(fitted["mean_real"][layer].double(), fitted["mean_imaginary"][layer].double())
        rates = fitted["rates"][layer].double()
        found = analysis.triattention_scores(mean, fitted["size"][layer].double(), keys, places, now, rates)
        for head in range(lm.num_heads):
            own = keys[head * lm.num_kv_heads // lm.num_heads]
            wanted = read_back(path, layer, head, own, places, now, rates)
            assert ((found[head] - wanted).abs() / wanted.abs()).max() < 1e-6
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
    assert made.certificate == {name: value for name, value in certificate.items() if name != "protocol"}
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
    kept = kept_of(lm, KINDS["ada_kv"].method(lm, shares, 0.75, ""), ids)
    counts = torch.stack([kept[layer][0].sum(-1) for layer in kept]).double()
    assert counts.sum() == 6 * counts.numel()
    assert (counts / counts.mean() - torch.as_tensor(shares / shares.mean())).abs().max() < 0.2
    with pytest.raises(BadSetting, match="leaves as FILE.pt"):
        ask(output=str(tmp_path / "wrong.npy"))


@pytest.mark.slow
def test_a_pattern_leaves_as_a_line_with_its_nulls(ask, context, home, tmp_path):
    lm = context.model(str(home / "tiny"))
    made = ask(output=str(tmp_path / "pattern.txt"), method="layer_reuse", anchors=2, ratio=0.75)
    pattern = (tmp_path / "pattern.txt").read_text().strip()
    assert len(pattern) == lm.num_layers and pattern[0] == "F" and pattern.count("F") == 2
    certificate = json.loads((tmp_path / "pattern.json").read_text())
    assert set(certificate["held_out"]) >= {"change_low", "null_low", "random_low", "against_null", "against_random"}
    assert {certificate["agreement_between_halves"]} <= {0, 0.5, 1} and 0 < certificate["agreement_by_chance"] < 1
    assert pattern in made.sentence and not made.notes
    kind = Pattern(2, 6)
    assert [kept[2].tolist() for kept in kind.choices(None, "FFS")] == [[False, True, False]]
    assert [one.pattern for one in kind.nulls(lm, 0.5)["null"]] == ["FFS"]
    with pytest.raises(BadSetting, match="cannot choose"):
        ask(output=str(tmp_path / "more.txt"), method="layer_reuse", anchors=4)


def test_the_null_and_the_agreement_by_hand(context, home):
    lm = context.model(str(home / "tiny"))
    kept = kept_of(lm, Newest(ratio=0.5), torch.arange(3, 19))
    assert kept[0][0, 0].nonzero().flatten().tolist() == [0, 1, 2, 3, 12, 13, 14, 15]
    one, other = torch.tensor([[[True, True, False, False]]]), torch.tensor([[[True, False, True, False]]])
    assert agreement([{0: one}], [{0: other}]) == 0.5
