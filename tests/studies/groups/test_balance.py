"""The verb `balance`: Sinkhorn on scores that are kept between its calls."""

import pytest

from analysis.errors import BadSetting
from analysis.studies import STUDIES
from tests.made.evaluating import TEXT, watched_context
from tests.made.studied import studied_home


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return studied_home(tmp_path_factory.mktemp("balance"))


def test_sinkhorn_live_on_kept_scores(home):
    context = watched_context(home)
    text = context.add_text("a text", TEXT)
    given = {"model": str(home / "tiny"), "text": text, "router": "k4-top1", "context": context}
    first = STUDIES["balance"](**given)
    kept = context.kept["scores"][1]
    assert kept.shape == (3, 64, 4) and first.tables["layers"]["layer"].tolist() == [0, 1, 2]
    softly = STUDIES["balance"](**given, temperature=0.2, iterations=0)
    assert context.kept["scores"][1] is kept, "nothing is read again"
    assert softly.numbers["worst"] == softly.tables["iterations"]["worst"][0]
    at_ten = first.tables["iterations"].set_index("iterations").loc[10]
    assert (at_ten["mean"], at_ten["worst"]) == (first.numbers["mean"], first.numbers["worst"])
    for bad in ({"temperature": 0.0}, {"iterations": -1}):
        with pytest.raises(BadSetting):
            STUDIES["balance"](**given, **bad)
