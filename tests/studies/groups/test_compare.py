"""Two routers side by side, groups beside their controls, and Sinkhorn by hand, on a tiny model."""

import json

import numpy as np
import pytest

from analysis.errors import BadSetting
from analysis.groups.router import FocusRouter
from analysis.models import load_model
from analysis.runs import RunStore
from analysis.runs.brought import corpora, corpus_folder
from analysis.runs.stored import read_study, study_files, study_folders
from analysis.studies import STUDIES
from analysis.studies.groups.compare import chance, matched_table
from analysis.studies.groups.contents import ARMS
from tests.made.evaluating import TEXT
from tests.made.studied import studied_home


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = studied_home(tmp_path_factory.mktemp("compare"))
    model = load_model(str(home / "tiny"))
    about = {"model": model.name, "revision": model.revision, "corpus": "corpus", "kind": "trained"}
    for name, groups, seed in (("k4-top1-again", 4, 9), ("k6-top1", 6, 5)):
        router = FocusRouter(model.num_layers, model.width, groups=groups, window=4, n_sink=1, seed=seed)
        for kind in ("", "random-"):
            router.save(home / "state" / "focus" / f"{kind}{name}.safetensors", **about)
    return home


@pytest.fixture
def ask(home, context):
    def ask(verb, words=TEXT, **arguments):
        text = context.add_text("a text", words)
        usual = {"model": str(home / "tiny"), "text": text, "router": "k4-top1"}
        return STUDIES[verb](**usual | arguments, context=context)

    return ask


def test_the_matching_by_hand():
    """Group 0 is the other's 2, 1 its 0, 2 its 1; one token of eight moved."""
    first, second = np.array([0, 0, 0, 1, 1, 1, 2, 2]), np.array([2, 2, 2, 0, 0, 1, 1, 1])
    agreement, matched, table = matched_table(first, second, 3, 3)
    assert agreement == 7 / 8 and matched.tolist() == [2, 0, 1]
    assert table.tolist() == [[0, 0, 3], [2, 1, 0], [0, 2, 0]]
    agreement, matched, table = matched_table(np.array([0, 0, 1, 1]), np.array([1, 1, 2, 0]), 2, 3)
    assert agreement == 0.75 and matched[0] == 1 and matched[1] in (0, 2) and table.shape == (2, 3)
    assert matched_table(np.array([0, 1, 2, 2]), np.array([0, 0, 1, 1]), 3, 2)[1].max() >= 2, "one group stays alone"
    first = np.repeat(np.arange(4), 500)
    assert 0.25 <= chance(first, np.random.default_rng(0).permutation(first), 4) < 0.32, "what shuffles agree on"
    assert chance(np.zeros(10, int), np.zeros(10, int), 4) == 1, "one group on both sides always agrees"


def test_a_router_agrees_with_itself_and_less_with_another(ask, home):
    with_itself = ask("compare", other="k4-top1", other_model=str(home / "tiny"))
    assert with_itself.numbers["mean"] == 1 and all(row["agreement"] == 1 for row in with_itself.numbers["layers"])
    assert (with_itself.tables["matching"]["group"] == with_itself.tables["matching"]["other"]).all()
    with_another = ask("compare", other="k4-top1-again")
    assert 0.25 <= with_another.numbers["chance"] <= with_another.numbers["mean"] < 1
    cells, tokens = with_another.tables["confusion"], with_another.numbers["protocol"]["tokens"]
    for row in with_another.numbers["layers"]:
        of_layer = cells[cells["layer"] == row["layer"]]
        assert len(of_layer) == 16 and of_layer["tokens"].sum() == tokens
        diagonal = of_layer[of_layer["group"] == of_layer["place"]]["tokens"].sum()
        assert diagonal / tokens == pytest.approx(row["agreement"]), "matched groups stand on the diagonal"
        assert 0.25 <= row["share"] <= 1 and 0 < row["chance"] <= 1
    six = ask("compare", other="k6-top1")
    assert (six.numbers["K"], six.numbers["K_other"]) == (4, 6) and len(six.tables["confusion"]) == 3 * 24
    back = ask("compare", router="k6-top1", other="k4-top1").tables["matching"]
    assert back["other"].isna().sum() == 3 * 2 and back[back["other"].isna()]["shared"].fillna(0).eq(0).all()


def test_a_router_that_is_not_there_is_refused_and_never_fitted(ask, home):
    for wrong in ({"other": "k9-top1"}, {"other": "../x"}, {"router": "nothing", "other": "k4-top1"}):
        with pytest.raises(BadSetting, match="has no router"):
            ask("compare", **wrong)
    assert not list((home / "state" / "focus").glob("k9*"))
    with pytest.raises(BadSetting, match="made for other weights"):
        ask("compare", other="k4-top1", other_model=str(home / "begins"))


def test_section_five_by_layer_beside_its_controls(ask):
    numbers = ask("group-controls").numbers
    assert [(row["layer"], row["arm"]) for row in numbers["rows"]] == [(n, arm) for n in range(3) for arm in ARMS]
    for row in numbers["rows"]:
        assert 0.25 <= row["share"] <= 1 and 0 <= row["smallest"] <= 0.25 and row["labels"]
        assert 0 < row["purity_random"] <= 1 and 0 < row["purity"] <= 1
        assert (row["confidence"] is None) == (row["arm"] == "k-means")
    assert numbers["sentence"] and numbers["labels_by"]
    with pytest.raises(BadSetting, match="tokens and 4 groups are compared"):
        ask("group-controls", words="ab")


def test_sinkhorn_live_on_kept_scores(ask, context):
    context.kept.clear()
    first = ask("balance")
    scores = context.kept["scores"][1]
    assert scores.shape == (3, 64, 4) and first.tables["layers"]["layer"].tolist() == [0, 1, 2]
    softly = ask("balance", temperature=0.2, iterations=0)
    assert context.kept["scores"][1] is scores, "nothing is read again"
    assert softly.numbers["worst"] == softly.tables["iterations"]["worst"][0]
    at_ten = first.tables["iterations"].set_index("iterations").loc[10]
    assert (at_ten["mean"], at_ten["worst"]) == (first.numbers["mean"], first.numbers["worst"])
    for wrong in ({"temperature": 0.0}, {"iterations": -1}):
        with pytest.raises(BadSetting):
            ask("balance", **wrong)


def test_a_corpus_is_stored_texts_or_a_folder_below_the_root(tmp_path):
    store, root = RunStore(tmp_path / "state"), tmp_path / "corpora"
    (root / "books").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (root / "way-out").symlink_to(tmp_path / "secret")
    keys = [store.put_text(words, "mine") for words in ("one text", "another text")]
    folder = corpus_folder(store, "+".join(keys), root)
    assert sorted(p.read_text() for p in folder.iterdir()) == ["another text", "one text"]
    assert folder == corpus_folder(store, "+".join(reversed(keys)), root) and store.root in folder.parents
    assert corpus_folder(store, "books", root) == root / "books" and "books" in corpora(root)
    for name in ("", "..", "../secret", "/etc", "way-out", "absent", "a/b", str(root / "books"), "0123456789ab"):
        with pytest.raises(BadSetting):
            corpus_folder(store, name, root)
    assert corpora(tmp_path / "nowhere") == []


def test_stored_studies_are_read_and_damaged_ones_are_said(tmp_path):
    store = RunStore(tmp_path / "state")
    (folder,) = study_folders(store, "owner/tiny", "abc")
    folder.mkdir(parents=True)
    good = {"sentence": "It holds.", "protocol": {"command": "x"}}
    study = good | {"rows": [], "columns": [], "panels": []}
    files = {
        "groups-k8-top1": json.dumps(good),
        "grid": json.dumps(study),
        "dominance": json.dumps(good | {"rows": []}),
    }
    files |= {"broken": "{", "list": "[]", "nan": '{"sentence": NaN}', "half": json.dumps(good | {"panels": []})}
    for name, words in files.items():
        (folder / f"{name}.json").write_text(words)
    read = {path.stem: read_study(path) for path in study_files([folder, tmp_path / "absent"])}
    sentences = " ".join(sentence for _, sentence in read.values() if sentence)
    assert {name for name, (numbers, _) in read.items() if numbers} == {"groups-k8-top1", "grid"}
    assert sentences.count("is left out") == 5 and "dominance is left out (it has no curves)" in sentences
