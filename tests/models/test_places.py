"""Where a model is looked for: a name, a folder, the Hub."""

import pytest

from analysis import places
from analysis.errors import BadModel
from analysis.places import locate


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A `models_cache` with one model, `mine`, and one folder that is none."""
    monkeypatch.setattr(places, "CACHE", tmp_path / "models_cache")
    for name in ("mine", "state"):
        (tmp_path / "models_cache" / name).mkdir(parents=True)
    (tmp_path / "models_cache" / "mine" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "models_cache"


def test_a_model_in_models_cache_is_found_by_its_name_everywhere(cache):
    assert locate("mine") == cache / "mine" == locate("mine", cache)
    assert locate("demo") == cache / "demo"


def test_other_names_are_folders_or_of_the_hub(cache):
    assert locate("state") == "state", "a folder without a model hides no name of the Hub"
    assert locate(str(cache / "mine")) == cache / "mine" and locate("owner/name") == "owner/name"
    with pytest.raises(BadModel, match="Folders must lie below inner/"):
        locate(str(cache / "mine"), cache / "inner")
    with pytest.raises(BadModel):
        locate("../mine")
