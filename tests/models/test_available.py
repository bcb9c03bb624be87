"""Which models can be chosen and where they lie: a name, a folder, a made-up Hub cache; what the Hub says is read, and
a download is stopped."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest

from analysis import available, places
from analysis.commands.text import Fetch
from analysis.errors import BadModel, Cancelled, TooLarge
from analysis.places import locate
from analysis.studies.context import Context
from analysis.studies.start import fetch as fetching
from tests.made.tiny_tokenizer import save_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def disk(tmp_path, monkeypatch) -> SimpleNamespace:
    """An empty models_cache (`here`) and an empty cache of the Hub (`hub`)."""
    folders = SimpleNamespace(here=tmp_path / "models_cache", hub=tmp_path / "hub")
    folders.here.mkdir()
    folders.hub.mkdir()
    monkeypatch.setattr(places, "CACHE", folders.here)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folders.hub))
    return folders


def cached(disk, name: str) -> Path:
    """A tiny model in the cache of the Hub; the folder of its files."""
    repository = disk.hub / f"models--{name.replace('/', '--')}"
    save_model(repository / "snapshots" / COMMIT)
    (repository / "blobs").mkdir()
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    return repository / "snapshots" / COMMIT


def test_what_lies_on_the_disk_is_listed_unless_it_cannot_be_loaded(disk):
    part = cached(disk, "owner/part")
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (part / "model.safetensors.index.json").write_text(json.dumps(index))
    for name, change in (("bert", {"model_type": "bert"}), ("gpt_neo", {"model_type": "gpt_neo"}), ("broken", None)):
        folder = save_model(disk.here / name)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | change) if change else "{no")
    (save_model(disk.here / "bare") / "model.safetensors").unlink()
    assert available.on_hand() == []
    assert available.on_hand() == []
    save_model(disk.here / "mine")
    cached(disk, "owner/tiny")
    local, theirs = available.on_hand()
    assert (local.name, theirs.name) == ("mine", "owner/tiny") and local.family == "llama" and local.context == 64
    assert local.size == (disk.here / "mine" / "model.safetensors").stat().st_size
    assert abs(local.parameters * 4 / local.size - 1) < 0.05


def test_what_fits_is_said_by_the_most_exact_type():
    free = 10_000
    types = {2250: "float32", 2251: "bfloat16", 4500: "bfloat16", 4501: "8bit", 9000: "8bit", 9001: None}
    assert {count: available.fitting(count, free) for count in types} == types, "weights take 90% of it at most"


def told_by_the_hub(monkeypatch, **changes) -> None:
    files = {"model.safetensors": 1000, "config.json": 10, "pytorch_model.bin": 1000, "original/a.safetensors": 1000}
    siblings = [SimpleNamespace(rfilename=name, size=size) for name, size in files.items()]
    answer = {"siblings": siblings, "safetensors": SimpleNamespace(total=500), "card_data": {"license": "mit"}}
    answer |= {"gated": False} | changes

    def model_info(api, name, timeout, files_metadata):
        assert timeout == 3 and files_metadata
        return SimpleNamespace(**answer)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)


def test_what_the_hub_says_and_that_it_cannot_be_reached(monkeypatch):
    told_by_the_hub(monkeypatch)
    assert available.on_the_hub("a/b") == available.OnTheHub("a/b", 500, 1010, "mit", False), "no other format"
    told_by_the_hub(monkeypatch, safetensors=None, card_data=None, gated="manual")
    assert available.on_the_hub("a/b") == available.OnTheHub("a/b", None, 1010, "", True)

    def model_info(api, name, timeout, files_metadata):
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    with pytest.raises(BadModel, match="^a/b is not on this machine and the Hugging Face Hub cannot be reached"):
        available.on_the_hub("a/b")


ARRIVE = """
import json, pathlib, sys, time
asked = json.loads(sys.argv[1])
blobs = pathlib.Path(asked["cache_dir"], "models--a--b", "blobs")
blobs.mkdir(parents=True, exist_ok=True)
part = blobs / "x.incomplete"
held = part.stat().st_size if part.exists() else 0
part.write_bytes(b"x" * (held + 505))
{then}
"""


def test_a_download_tells_how_far_it_is_is_stopped_and_goes_on(disk, monkeypatch):
    told_by_the_hub(monkeypatch)
    monkeypatch.setattr(fetching, "LOOK", 0.05)
    monkeypatch.setattr(fetching, "FETCH", ARRIVE.replace("{then}", "time.sleep(60)"))

    def progress(fraction, stage):
        if fraction == 0.5:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        fetching.fetch(Fetch(model="a/b"), context=Context(progress=progress))
    monkeypatch.setattr(fetching, "FETCH", ARRIVE.replace("{then}", "part.rename(blobs / 'x')"))
    fetched = fetching.fetch(Fetch(model="a/b@bfloat16"), context=Context())
    assert fetched.numbers["name"] == "a/b" and fetched.numbers["size"] == 1010 and fetched.numbers["licence"] == "mit"
    assert (places.hub_folder("a/b") / "blobs" / "x").stat().st_size == 1010, "what had arrived stayed"


def test_a_download_that_fails_or_does_not_fit_is_one_sentence(disk, monkeypatch):
    told_by_the_hub(monkeypatch)
    monkeypatch.setattr(fetching, "FETCH", "raise SystemExit('a line\\nthe Hub is busy')")
    with pytest.raises(BadModel, match=r"^a/b could not be downloaded \(the Hub is busy\): try again"):
        fetching.fetch(Fetch(model="a/b"), context=Context())
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=5))
    with pytest.raises(TooLarge, match="^a/b takes 1 MB and 1 MB are free on the disk of"):
        fetching.fetch(Fetch(model="a/b"), context=Context())


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A `models_cache` with one model, `mine`, and one folder that is none."""
    monkeypatch.setattr(places, "CACHE", tmp_path / "models_cache")
    for name in ("mine", "state"):
        (tmp_path / "models_cache" / name).mkdir(parents=True)
    (tmp_path / "models_cache" / "mine" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "models_cache"


def test_names_are_in_models_cache_folders_or_of_the_hub(cache):
    assert locate("mine") == cache / "mine" == locate("mine", cache)
    assert locate("demo") == cache / "demo"
    assert locate("state") == "state", "a folder without a model hides no name of the Hub"
    assert locate(str(cache / "mine")) == cache / "mine" and locate("owner/name") == "owner/name"
    with pytest.raises(BadModel, match="Folders must lie below inner/"):
        locate(str(cache / "mine"), cache / "inner")
    with pytest.raises(BadModel):
        locate("../mine")
