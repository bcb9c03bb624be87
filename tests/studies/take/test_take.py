"""Taking a setting of a stored run along: three methods run outside as they do here, and what is refused."""

import copy
import io
import json
import os
import subprocess
import sysconfig
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import jsonschema
import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from safetensors.torch import load_file

from analysis.commands.quality import Take
from analysis.declaration.undeclared import Undeclared
from analysis.errors import BadSetting
from analysis.runs import RunStore
from analysis.seam.arguments import as_past, past_of
from analysis.seam.attention import apply
from analysis.studies import STUDIES
from analysis.studies.context import Context
from analysis.studies.ready.candidates import FAMILIES, candidates
from analysis.studies.take.take import take
from analysis.take.schema import schema
from tests import take as rooms
from tests.made.evaluating import TEXT

SETTINGS = {
    "focus": {"name": "focus", "settings": {"window": 8}, "router": "k4-top1"},
    "csa": {"name": "csa", "policy": {"name": "policy", "keys_per_head": 9}},
    "snapkv": {"name": "snapkv", "settings": {"ratio": 0.5, "window": 8}},
}
CUT, NEW = 40, 8


@pytest.fixture(scope="module")
def zips(home):
    """`context`, the ids of two stored runs, and `take_of(name, **more)` -> Result."""
    store = RunStore(home / "state", home / "examples")
    context = Context(store=store, state=home / "state", browser=False)
    model, text = str(home / "tiny"), store.put_text(TEXT, "a text")
    requests = {
        "evaluate": {"model": model, "text": text, "methods": [{"name": "dense"}, SETTINGS["focus"], SETTINGS["csa"]]},
        "continuation": {
            "model": model,
            "texts": [text],
            "methods": [SETTINGS["snapkv"]],
            "continuation": 8,
            "cuts": 2,
        },
    }
    runs = {}
    for verb, request in requests.items():
        result = STUDIES[verb](**request, context=context)
        runs[verb] = store.put(Undeclared(verb, request), result, result.numbers["protocol"], 1.0).id

    def take_of(name, **options):
        run = runs["continuation" if name == "snapkv" else "evaluate"]
        return take(Take(run=run, method={"name": name}, **options), context=context)

    yield context, runs, take_of


@pytest.fixture(scope="module")
def job(zips, home, tmp_path_factory):
    """A file of jobs for `tests/take/outside.py`, and the ids of the prompt with what follows it."""
    folder, (context, _, take_of) = tmp_path_factory.mktemp("zips"), zips
    ids = context.model(str(home / "tiny")).tokenizer(TEXT)["input_ids"][: CUT + 12]
    jobs = []
    for name in SETTINGS:
        take_of(name, output=str(folder / f"{name}.zip"))
        zipfile.ZipFile(folder / f"{name}.zip").extractall(folder / name)
        shared_fields = {
            "model": str(home / "tiny"),
            "folder": str(folder / name),
            "ids": [ids],
            "mask": [[1] * len(ids)],
        }
        jobs.append(shared_fields | {"cut": CUT, "new": NEW, "out": str(folder / f"{name}.safetensors")})
    (folder / "jobs.json").write_text(json.dumps(jobs))
    return folder / "jobs.json", torch.tensor([ids])


def outside(python: str | Path, jobs: Path) -> None:
    """Runs the jobs in a process that has neither this folder nor its environment variables."""
    script = Path(rooms.__file__).with_name("outside.py")
    env = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "HF_HUB_OFFLINE")}
    done = subprocess.run([python, "-I", script, jobs], cwd=jobs.parent, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def check(context, home, jobs, ids) -> None:
    """Every answer from outside is that of the program's own method."""
    model = context.model(str(home / "tiny"))
    generation = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False}
    for name, spec in SETTINGS.items():
        with torch.no_grad(), apply(model, candidates(context, model, [spec], FAMILIES)[0].method):
            outputs = model.lm(ids).logits
            begun = model.lm(ids[:, :CUT], use_cache=True)
            after = model.lm(ids[:, CUT:], **as_past(model.lm, past_of(begun))).logits
            written = model.lm.generate(ids[:, :CUT], **generation)
        loaded = load_file(jobs.with_name(f"{name}.safetensors"))
        torch.testing.assert_close(loaded["whole"], outputs, atol=1e-4, rtol=0)
        torch.testing.assert_close(loaded["after"], after, atol=1e-4, rtol=0)
        assert loaded["written"].tolist() == written.tolist(), name


def needed(name: str) -> set[str]:
    """A package with all that it needs here."""
    names, waiting = set(), [name]
    while waiting:
        names.add(now := canonicalize_name(waiting.pop()))
        for line in metadata.requires(now) or ():
            wanted = Requirement(line)
            if (wanted.marker is None or wanted.marker.evaluate({"extra": ""})) and wanted.name not in names:
                waiting.append(wanted.name)
    return names


@pytest.mark.slow
def test_the_zips_run_in_an_environment_that_has_only_what_their_readme_asks_for(zips, job, home, tmp_path):
    jobs, ids = job
    venv.create(tmp_path / "fresh")
    site = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "fresh")}))
    for name in set.union(*map(needed, ("torch", "transformers", "safetensors"))):
        package = metadata.distribution(name)
        for top in {file.parts[0] for file in package.files or () if file.parts[0] != ".."}:
            (site / top).exists() or (site / top).symlink_to(package.locate_file(top))
    assert not (site / "numba").exists() and not (site / "streamlit").exists()
    outside(tmp_path / "fresh" / "bin" / "python", jobs)
    check(zips[0], home, jobs, ids)


@pytest.mark.slow
def test_the_zip_says_what_it_is_how_good_and_how_measured(zips, home):
    context, runs, _ = zips
    page, loaded = copy.copy(context), context.model(str(home / "tiny"))
    page.browser, page.model = True, lambda name: loaded  # a page keeps the zip with the run
    answer = take(Take(run=runs["evaluate"], method={"name": "csa"}), context=page)
    with zipfile.ZipFile(io.BytesIO(answer.arrays["zip"].tobytes())) as file:
        assert file.namelist() == ["policy.json", "focuscope_attention.py", "README.md"]  # budgets have no tensors
        policy, readme = json.loads(file.read("policy.json")), file.read("README.md").decode()
    numbers = context.store.open(runs["evaluate"]).numbers
    row, window = numbers["rows"][2], numbers["window"]
    assert f"Measured: perplexity {row['perplexity']:.2f}, {row['difference']:+.1%} against dense attention" in readme
    assert f"windows of {window} tokens" in readme and "dtype float32" in readme and "; torch " in readme
    assert "python -m analysis evaluate TEXT" in readme and len(readme.strip().splitlines()) <= 12
    jsonschema.validate(policy, schema())
    with pytest.raises(jsonschema.ValidationError, match="'reading' was unexpected"):
        jsonschema.validate(policy | {"settings": {"reading": "soft"}}, schema())
    context.state, own_state = home / "elsewhere", context.state
    again = STUDIES["import-policy"](model=str(home / "tiny"), name="back", policy=policy, context=context)
    context.state = own_state
    assert [*sum(again.numbers["budgets"], []), again.numbers["cap"]] == policy["policy"]
    for wrong, message in (
        ({"format": 2}, "has format 2, and format 1"),
        ({"method": "focus"}, "setting of focus"),
    ):
        with pytest.raises(BadSetting, match=message):
            STUDIES["import-policy"](model=str(home / "tiny"), name="back", policy=policy | wrong, context=context)


def test_what_is_refused(zips, tmp_path):
    context, runs, take_of = zips
    with pytest.raises(BadSetting, match="-o FILE.zip"):
        take_of("focus")
    (tmp_path / "there.zip").write_bytes(b"")
    with pytest.raises(BadSetting, match="is there already"):
        take_of("focus", output=str(tmp_path / "there.zip"))
    new = str(tmp_path / "new.zip")
    with pytest.raises(BadSetting, match="has 2 settings: say which with --method and --set: focus"):
        take(Take(run=runs["evaluate"], output=new), context=context)
    with pytest.raises(BadSetting, match="no such method; it has: focus"):
        take_of("streaming_llm", output=new)
    with pytest.raises(BadSetting, match="leave the model out"):
        take_of("focus", output=new, model="demo")
    assert not Path(new).exists()
