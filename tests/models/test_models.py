"""Loading models: from disk, from memory and from the cache, and one sentence for everything that is refused."""

import json
import re
import shutil
import socket
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub.constants
import pytest
import torch
from huggingface_hub.errors import GatedRepoError
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoTokenizer, BertConfig

from analysis.errors import BadModel, BadSetting, TooLarge
from analysis.models import CACHE, load_model
from analysis.models.arithmetic import bfloat16_gain
from analysis.places import config_file, how, revision
from analysis.studies.context import Context
from analysis.studies.start.card import parity
from tests.made.tiny import tiny
from tests.made.tiny_tokenizer import byte_level, llama_like, save_model


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A tiny model's folder. Copy it before changing it."""
    return save_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    """A copy of the tiny model's folder that a test may damage."""
    return shutil.copytree(saved, tmp_path / "mine")


def configure(folder: Path, **changes) -> str:
    """Change entries of a folder's config.json; returns the folder's name."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return str(folder)


def refused(name, kind=BadModel, **options) -> str:
    """The one sentence with which a model is refused."""
    with pytest.raises(kind) as caught:
        load_model(name, **options)
    sentence = str(caught.value)
    assert type(caught.value) is kind and "\n" not in sentence and sentence.endswith(".") and len(sentence) < 400
    return sentence


def test_the_bundled_model_loads_without_a_network():
    model, config = load_model(), json.loads((CACHE / "demo" / "config.json").read_text())
    assert model.name == "demo" and model.family == config["model_type"] and model.width == config["hidden_size"]
    assert (model.num_layers, model.num_heads) == (config["num_hidden_layers"], config["num_attention_heads"])
    assert (model.num_kv_heads, model.head_dim) == (config["num_key_value_heads"], config["head_dim"])
    assert model.max_positions == config["max_position_embeddings"] and model.state_dir == CACHE / "demo"
    assert model.dtype == torch.float32 and model.device.type == "cpu" and not model.lm.training
    assert model.weight_bytes == 4 * model.parameters > 4_000_000 and re.fullmatch("[0-9a-f]{12}", model.revision)


def test_a_local_folder_loads_and_is_named_by_its_content(folder):
    model = load_model(str(folder))
    assert model.name == str(folder) and model.max_positions == 64 and model.tokenizer.is_fast
    assert model.state_dir.parent.parent == CACHE and model.state_dir.name == model.revision
    assert "/" not in model.state_dir.parent.name and ".." not in model.state_dir.parts
    assert load_model(str(folder)).revision == model.revision
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"][3] += 0.5
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    changed = load_model(str(folder)).revision
    configure(folder, rms_norm_eps=0.1)
    assert len({model.revision, changed, load_model(str(folder)).revision}) == 3


def test_a_context_reads_weights_again_when_they_changed(folder):
    context = Context(browser=False)
    first = context.model(str(folder))
    assert context.model(str(folder)) is first
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"][3] += 0.5
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    again = context.model(str(folder))
    assert again is not first and again.revision == revision(str(folder)) != first.revision


def test_a_large_weight_file_is_named_by_its_ends_too(folder, monkeypatch):
    monkeypatch.setattr("analysis.places.HASHED_WHOLE", 1000)
    before = load_model(str(folder)).revision
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"][-1] += 0.5
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert load_model(str(folder)).revision != before


def test_a_model_already_held_is_named_by_its_weights():
    lm = tiny("llama")
    model = load_model(lm, tokenizer=byte_level())
    assert model.lm is lm and model.tokenizer is byte_level() and model.name == "llama"
    copy = type(lm)(lm.config)
    model.name = "demo"
    assert model.state_dir == CACHE / "demo" / model.revision, "never the bundled model's own folder"
    copy.load_state_dict(lm.state_dict())
    assert load_model(copy).revision == model.revision
    with torch.no_grad():
        next(copy.parameters())[5] += 1
    assert load_model(copy).revision != model.revision


def test_another_tokenizer_type_precision_and_device_can_be_asked_for(saved, tmp_path):
    model = load_model(str(saved), tokenizer=llama_like(), dtype="bfloat16")
    assert model.tokenizer is llama_like() and model.dtype == torch.bfloat16
    model = load_model(f"{saved}@bfloat16@cpu")
    assert model.dtype == torch.bfloat16 and model.precision == "bfloat16" and parity(model).same
    assert (model.name, model.revision) == (str(saved), load_model(str(saved)).revision), "the same weights"
    assert load_model(f"{saved}@bfloat16", dtype="float16").dtype == torch.float16, "what is asked for wins"
    assert how("a/b@8bit@cuda:1") == ("a/b", "8bit", "cuda:1") and how("a/b") == ("a/b", "auto", "auto")
    assert how("a@b@spread") == ("a@b", "auto", "spread") and how("x@cuda:") == ("x@cuda:", "auto", "auto")
    shutil.copytree(saved, tmp_path / "odd@home")
    assert load_model("odd@home@float64", root=tmp_path).dtype == torch.float64


def test_a_large_model_is_loaded_in_what_the_processor_multiplies_fastest_in(saved, monkeypatch):
    quick = {True: torch.bfloat16, False: torch.float32}
    for gain in (1.1, 1.3):
        for place in ("arithmetic", "weights"):
            monkeypatch.setattr(f"analysis.models.{place}.bfloat16_gain", lambda gain=gain: gain)
        small = load_model(str(saved), device="cpu")
        assert small.dtype == torch.float32 and not small.why
        monkeypatch.setattr("analysis.models.weights.LARGE", 1000)
        large = load_model(str(saved), device="cpu")
        assert large.dtype == quick[gain > 1.2] and f"multiplies {gain} times as fast" in large.why
        monkeypatch.undo()
    assert bfloat16_gain() == bfloat16_gain() > 0, "measured once"


def test_few_bits_and_spreading_are_refused_where_their_library_is_missing(saved, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    message = refused(f"{saved}@8bit", BadSetting)
    assert (
        message == "8-bit weights need torchao or bitsandbytes, and neither is installed: pip install torchao, or "
        "choose bfloat16."
    )
    assert "needs accelerate" in refused(str(saved), BadSetting, device="spread")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "torchao")
    assert "4-bit weights need a GPU" in refused(f"{saved}@4bit@cpu", BadSetting)


def test_the_cache_is_used_before_the_network(saved, tmp_path, monkeypatch):
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "models--somebody--tiny"
    shutil.copytree(saved, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: pytest.fail("the network was asked"))
    monkeypatch.setattr(socket.socket, "connect", lambda *a: pytest.fail("the network was asked"))
    model = load_model("somebody/tiny")
    assert model.revision == commit[:12] and model.state_dir == CACHE / "somebody--tiny" / commit[:12]


def test_the_network_is_asked_second_and_only_for_a_hub_id(monkeypatch, tmp_path):
    requests = []

    def loader(place, **options):
        requests.append((str(place), options.get("local_files_only", False), options["trust_remote_code"]))
        raise OSError("We couldn't connect to the Hub")

    monkeypatch.setattr(AutoConfig, "from_pretrained", loader)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda api, place, timeout: requests.append(place))
    assert "is not on this machine and the Hugging Face Hub cannot be reached" in refused("somebody/tiny")
    assert requests == [("somebody/tiny", True, False), "somebody/tiny", ("somebody/tiny", False, False)]
    requests.clear()
    (tmp_path / "config.json").write_text("{}")
    refused(str(tmp_path))
    assert requests == [(str(tmp_path), True, False)]


def test_a_hub_that_is_not_there_is_asked_once_and_for_seconds(monkeypatch):
    timeouts = []

    class ConnectTimeout(Exception):
        """As the Hub's client names it."""

    def request(api, place, timeout):
        timeouts.append(timeout)
        raise ConnectTimeout("timed out")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", request)
    for read in (load_model, config_file):
        with pytest.raises(BadModel, match="is not on this machine and the Hugging Face Hub cannot be reached"):
            read("somebody/no-such-model")
    assert timeouts == [3.0, 3.0]


def test_a_gated_repository_names_the_token(monkeypatch):
    class Gated(GatedRepoError):
        def __init__(self):
            """As the Hub raises it, without the answer of the Hub."""

    def loader(place, **options):
        if options.get("local_files_only"):
            raise OSError("not in the cache")
        raise OSError("refused") from Gated()

    monkeypatch.setattr(AutoConfig, "from_pretrained", loader)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda api, place, timeout: None)
    sentence = refused("meta-llama/Llama-2-7b-hf")
    assert sentence.startswith("meta-llama/Llama-2-7b-hf is gated") and "HF_TOKEN" in sentence


@pytest.mark.parametrize(
    "name", ["", "a b", "a" * 5000, "x/y/z", "../x", "http://x/y", "a\0b", "<script>", "~nobody/x"]
)
def test_a_name_that_is_neither_folder_nor_id_is_refused(name, tmp_path):
    sentence = refused(name, root=tmp_path)
    assert "is no folder here and no Hugging Face id" in sentence and f"below {tmp_path.name}/" in sentence


def test_from_the_browser_only_folders_below_the_root_are_read(saved, tmp_path, monkeypatch):
    root = tmp_path / "root"
    shutil.copytree(saved, root / "inside")
    shutil.copytree(saved, tmp_path / "outside")
    (root / "leaving").symlink_to(tmp_path / "outside")
    monkeypatch.chdir(tmp_path)
    assert load_model("inside", root=root).name == "inside"
    outside = ["../outside", "inside/../../outside", "leaving", "outside", ".", "/", "root"]
    for name in [str(tmp_path / "outside"), *outside]:
        assert "is no folder here" in refused(name, root=root), name
    assert load_model("outside").name == "outside", "code and the command line are not restricted"


DAMAGE = {
    "no configuration": (lambda f: (f / "config.json").unlink(), "has no config.json"),
    "a configuration that is no JSON": (lambda f: (f / "config.json").write_text("{no"), "not a valid JSON"),
    "a configuration that is a list": (lambda f: (f / "config.json").write_text("[1]"), "does not know"),
    "no safetensors": (lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"), "no safetensors weights"),
    "truncated weights": (lambda f: truncate(f / "model.safetensors"), "weights of .* are damaged"),
    "empty weights": (lambda f: (f / "model.safetensors").write_bytes(b""), "weights of .* are damaged"),
    "weights of another size": (lambda f: configure(f, intermediate_size=64), "do not have the shapes"),
    "weights that lack a layer": (lambda f: configure(f, num_hidden_layers=4), "lack 9 tensors .*layers.3"),
    "an unknown kind": (lambda f: configure(f, model_type="strange"), "transformers does not know"),
    "no causal language model": (lambda f: configure(f, model_type="t5"), "'t5' is not a causal language model"),
    "an absurd width": (lambda f: configure(f, vocab_size=10**18), "could not be loaded"),
    "a negative vocabulary": (lambda f: configure(f, vocab_size=-(10**12)), "could not be loaded"),
    "absurdly many layers": (lambda f: configure(f, num_hidden_layers=10**9), "1,000,000,000 layers"),
    "no heads": (lambda f: configure(f, num_attention_heads=0), "could not be loaded"),
    "a word for a number": (lambda f: configure(f, hidden_size="big"), "expected int, got str"),
    "an unknown activation": (lambda f: configure(f, hidden_act="nope"), "could not be loaded"),
    "no tokenizer": (lambda f: [p.unlink() for p in f.glob("tokenizer*")], "could not be loaded"),
    "a damaged tokenizer": (lambda f: (f / "tokenizer.json").write_text("{}"), "could not be loaded"),
}


def truncate(path: Path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_folder_is_refused_in_one_sentence(case, folder):
    damage, message = DAMAGE[case]
    damage(folder)
    sentence = refused(str(folder))
    assert re.search(message, sentence), sentence


def test_a_repository_s_own_code_is_never_run(folder):
    (folder / "theirs.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    theirs = {"AutoConfig": "theirs.Config", "AutoModelForCausalLM": "theirs.Model"}
    assert "needs code from its own repository" in refused(configure(folder, model_type="theirs", auto_map=theirs))
    assert not (folder / "ran").exists()


def test_models_without_a_fast_tokenizer_or_that_read_both_ways_are_refused(tmp_path, saved, monkeypatch):
    from transformers import BertLMHeadModel

    sizes = dict(vocab_size=300, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
    BertLMHeadModel(BertConfig(**sizes)).save_pretrained(tmp_path)
    byte_level().save_pretrained(tmp_path)
    assert "reads in both directions" in refused(str(tmp_path))
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda *a, **k: SimpleNamespace(is_fast=False))
    assert "has no fast tokenizer" in refused(str(saved))


def test_sizes_beyond_memory_are_refused_before_weights_are_read_or_made(folder, saved, monkeypatch):
    configure(folder, hidden_size=1 << 20, num_hidden_layers=900)
    assert "choose a smaller model" in refused(str(folder), TooLarge)
    monkeypatch.setattr("analysis.models.weights.psutil.virtual_memory", lambda: SimpleNamespace(available=100_000))
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", lambda *a, **k: pytest.fail("read"))
    sentence = refused(str(saved), TooLarge)
    assert "needs 0.0 GB for its weights in float32" in sentence and "smaller model" in sentence
    assert "float32 and 0.0 GB are free on cpu: bfloat16 takes 0.0 GB, or choose" in refused(str(saved), TooLarge)


def test_devices_types_and_models_that_are_not_here_are_refused(saved):
    for device in ("nonsense", "meta", "cuda:99"):
        assert "cannot be used on this machine" in refused(str(saved), BadSetting, device=device)
    assert "float32" in refused(str(saved), BadSetting, dtype="int8")
    assert "no-such/model-at-all is not on this machine" in refused("no-such/model-at-all")
