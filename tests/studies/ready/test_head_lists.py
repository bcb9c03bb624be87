"""Lists of heads in and out: what DuoAttention's own code writes and reads, and retrieval-head tools."""

import json

import numpy as np
import pytest

from analysis.commands.heads import Ablate
from analysis.commands.quality import ExportHeads, HeadSplit, ImportHeads
from analysis.errors import BadSetting
from analysis.studies.context import Context
from analysis.studies.ready.calibration import fitted_for
from analysis.studies.ready.head_lists import export_heads, head_split, import_heads

SCORES = [[0.5, 1.0], [0.0, 0.25], [1.0, 0.75]]  # 3 layers of 2 key-value heads


@pytest.fixture
def context(tmp_path):
    """A context with an empty state."""
    return Context(state=tmp_path / "state", browser=False)


def test_a_published_list_comes_in_is_used_and_goes_out_as_it_came(home, context, tmp_path):
    (tmp_path / "in.tsv").write_text("\n".join("\t".join(map(str, row)) for row in SCORES))
    model = str(home / "tiny")
    brought = import_heads(ImportHeads(model=model, table=str(tmp_path / "in.tsv")), context=context)
    assert brought.numbers["scores"] == SCORES
    assert fitted_for(context, context.model(model), "duo_attention")["far"].tolist() == SCORES
    (tmp_path / "out").mkdir()
    place = tmp_path / "out" / "full_attention_heads.tsv"
    export_heads(ExportHeads(model=model, output=str(place), n_sink=8, window=32), context=context)
    assert np.loadtxt(place, delimiter="\t").tolist() == SCORES
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == {"sink_size": 8, "recent_size": 32}
    with pytest.raises(BadSetting, match="is there already"):
        export_heads(ExportHeads(model=model, output=str(place)), context=context)
    export_heads(ExportHeads(model=model, output=str(tmp_path / "heads.json")), context=context)
    assert json.loads((tmp_path / "heads.json").read_text())["2-1"] == [0.75]


def test_scores_of_query_heads_are_averaged_over_those_that_share_keys(home, context, tmp_path):
    scores = {f"{layer}-{head}": [head / 10, head / 10] for layer in range(3) for head in range(4)}
    (tmp_path / "h.json").write_text(json.dumps(scores))
    request = ImportHeads(model=str(home / "tiny"), table=str(tmp_path / "h.json"))
    averaged = import_heads(request, context=context).numbers["scores"]
    np.testing.assert_allclose(averaged, [[0.05, 0.25]] * 3)


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("a.tsv", "retrieval\n", "holds no table of numbers"),
        ("a.tsv", "1 2 3\n", "has 1 lines of 3 numbers, and .* has 3 layers of 2 or 3 layers of 4 heads"),
        ("a.json", "[]", "holds no scores of heads"),
        ("a.json", "{}", "holds no scores of heads"),
        ("a.json", '{"2-3": [1]}', "leaves out 11 heads"),
        ("a.json", '{"99999999-99999999": [1]}', "names head 99999999-99999999"),
        ("a.json", '{"-1-0": [1]}', "holds no scores of heads"),
    ],
)
def test_other_files_are_refused_in_one_sentence(home, context, tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(BadSetting, match=message):
        import_heads(ImportHeads(model=str(home / "tiny"), table=str(tmp_path / name)), context=context)


def test_the_split_stands_beside_what_the_text_would_miss(home, context, tmp_path):
    (tmp_path / "in.tsv").write_text("\n".join("\t".join(map(str, row)) for row in SCORES))
    model, text = str(home / "tiny"), context.add_text("own", "One two three, said the old man to the sea. " * 4)
    import_heads(ImportHeads(model=model, table=str(tmp_path / "in.tsv")), context=context)
    split = head_split(HeadSplit(model=model, text=text, ratio=0.5), context=context)
    rows = split.numbers["rows"]
    whole_heads = {(row["layer"], row["head"]) for row in rows if row["whole"]}
    assert whole_heads == {(0, 1), (2, 0), (2, 1)}, "the half with the highest scores"
    estimate = (
        Ablate(model=model, text=text, exact=1).compute(context=context).arrays["estimate"]
    )  # [3 layers, 4 heads]
    for row in rows:
        of_group = estimate[row["layer"], 2 * row["head"] : 2 * row["head"] + 2]
        assert row["rise"] == pytest.approx(of_group.sum(), abs=1e-6)
        assert row["far"] == SCORES[row["layer"]][row["head"]]
    assert [row["rise"] for row in rows] == sorted((row["rise"] for row in rows), reverse=True)
    assert [row["missed"] for row in rows] == [True] * 3 + [False] * 3, "as many by what is missed"
    both = len(whole_heads & {(row["layer"], row["head"]) for row in rows[:3]})
    assert (split.numbers["kept"], split.numbers["both"], split.numbers["chance"]) == (3, both, 1.5)
    assert f"3 of 6 key-value heads keep every key. {both} of them" in split.numbers["sentence"]
    with pytest.raises(BadSetting, match="not by 'noise'"):
        head_split(HeadSplit(model=model, text=text, by="noise"), context=context)
