"""What run.py installs: the build of torch, the stamp, and what a start does after one that went wrong. No network."""

import json
import os
import re
from pathlib import Path

import pytest

import run

# --- which torch --------------------------------------------------------------------------------------------------


def offers(answers: dict):
    """A fake `resolve`: what the build asks for that pip finds, by question; every question is noted."""
    asked = []

    def resolve(arguments):
        asked.append(arguments)
        answer = answers["cpu index" if "--index-url" in arguments else arguments[0]]
        if answer is None:
            raise run.Refusal("pip failed: no network")
        return answer

    return resolve, asked


CPU = ["sympy>=1.13", "optree; extra == 'optree'"]
CUDA = [*CPU, 'nvidia-cudnn-cu13==9.20; platform_system == "Linux"']
EXACT, INDEX, PLAIN = ["torch==2.13.0"], ["torch==2.13.0", "--index-url", run.CPU_INDEX], ["torch>=2.11,<2.14"]


@pytest.mark.parametrize(
    "exact, index, plain, chosen, questions",
    [
        (CPU, CPU, CPU, EXACT, 1),
        (CUDA, CPU, CUDA, INDEX, 2),
        (None, CPU, CUDA, INDEX, 2),
        (CUDA, None, CPU, PLAIN, 3),
        (["cuda-bindings<14"], CPU, CPU, INDEX, 2),
        (["triton==3.7.1"], CPU, CPU, INDEX, 2),
    ],
)
def test_without_a_driver_the_first_answer_without_cuda_is_taken(exact, index, plain, chosen, questions):
    resolve, asked = offers({EXACT[0]: exact, "cpu index": index, PLAIN[0]: plain})
    assert run.torch_without_cuda(EXACT[0], resolve) == chosen
    assert asked == [EXACT, INDEX, PLAIN][:questions]


def test_cuda_packages_are_never_pulled_without_a_driver():
    resolve, asked = offers({EXACT[0]: CUDA, "cpu index": None, PLAIN[0]: CUDA})
    with pytest.raises(run.Refusal, match=r"no NVIDIA driver: allow access to https://\S+, set TORCH.*TORCH=cuda"):
        run.torch_without_cuda(EXACT[0], resolve)
    assert len(asked) == 3


def test_without_any_answer_the_sentence_is_pips():
    resolve, _ = offers({EXACT[0]: None, "cpu index": None, PLAIN[0]: None})
    with pytest.raises(run.Refusal, match="no network"):
        run.torch_without_cuda(EXACT[0], resolve)


def test_torch_variable(tmp_path):
    wheel = tmp_path / "torch-2.12.0+cpu-cp312-cp312-linux_x86_64.whl"
    wheel.touch()
    newer = tmp_path / "torch-2.14.0-cp312-cp312-linux_x86_64.whl"
    newer.touch()
    assert run.torch_pin("") == run.torch_pin("cuda") == "torch==2.13.0"
    assert run.torch_pin("2.12.1") == "torch==2.12.1" and run.torch_pin("2.11.0+cpu") == "torch==2.11.0+cpu"
    assert run.torch_pin(str(wheel)) == str(wheel)
    for wrong in ("2.10.0", "2.14", "latest", "2.13.0; rm", str(newer), str(tmp_path / "torch-2.13.0-gone.whl")):
        with pytest.raises(run.Refusal, match="is no version from 2.11 to 2.13"):
            run.torch_pin(wrong)


# --- installing, with a fake pip ----------------------------------------------------------------------------------


@pytest.fixture
def house(tmp_path, monkeypatch):
    """An empty folder with requirements, in place of the project; `.calls` are what pip was asked for."""
    for name in (run.BASE, run.DEV):
        (tmp_path / name).write_text(f"# {name}\n")
    venv = tmp_path / ".venv"
    for name, value in {
        "ROOT": tmp_path,
        "VENV": venv,
        "PYTHON": venv / "python",
        "STAMP": venv / "stamp.json",
    }.items():
        monkeypatch.setattr(run, name, value)
    monkeypatch.delenv("TORCH", raising=False)
    monkeypatch.setattr(run.shutil, "disk_usage", lambda path: type("Disk", (), {"free": 9e9}))
    monkeypatch.setattr(run, "NVIDIA_DRIVER", ())
    monkeypatch.setattr(run, "resolve", lambda arguments: CPU)

    class House:
        folder, calls, fails = tmp_path, [], {}

    def create_venv():
        House.calls.append("venv")
        venv.mkdir(exist_ok=True)
        run.PYTHON.touch()

    def pip(*arguments):
        what = " ".join(Path(word).name for word in arguments if word not in ("install", "-r"))
        House.calls.append(what)
        if what in House.fails:
            raise House.fails[what]

    House.calls, House.fails = [], {}
    monkeypatch.setattr(run, "create_venv", create_venv)
    monkeypatch.setattr(run, "pip", pip)
    return House


FIRST = ["venv", "torch==2.13.0", "requirements.txt"]


def test_first_start_installs_and_says_so_before_the_second_does_nothing(house, capsys):
    run.install(run.BASE)
    assert house.calls == FIRST
    assert re.search(r"First start: [\d.]+ GB to download, [\d.]+ GB on disk, \d+ minutes", capsys.readouterr().out)
    run.install(run.BASE)
    assert house.calls == FIRST and capsys.readouterr().out == ""


def test_tests_add_their_requirements_to_the_same_venv(house):
    run.install(run.BASE)
    run.install(run.BASE, run.DEV)
    assert house.calls == [*FIRST, "requirements.txt requirements-dev.txt"]
    run.install(run.BASE)
    assert len(house.calls) == 4


def test_changed_requirements_are_installed_without_building_anew(house):
    run.install(run.BASE)
    (house.folder / run.BASE).write_text("streamlit\n")
    run.install(run.BASE)
    assert house.calls == [*FIRST, "requirements.txt"]


def test_another_torch_or_python_builds_anew_and_the_choice_stays(house, monkeypatch):
    run.install(run.BASE)
    monkeypatch.setenv("TORCH", "2.12.1")
    run.install(run.BASE)
    assert house.calls[3:] == ["venv", "torch==2.12.1", "requirements.txt"]
    monkeypatch.delenv("TORCH")
    run.install(run.BASE)
    assert len(house.calls) == 6
    monkeypatch.setattr(run.sys, "version_info", (3, 14, 0, "final", 0))
    run.install(run.BASE)
    assert house.calls[6:] == ["venv", "torch==2.12.1", "requirements.txt"]


@pytest.mark.parametrize("damage", ["no stamp", "torn stamp", "a list", "no python"])
def test_a_half_made_venv_is_built_anew(house, damage):
    run.install(run.BASE)
    if damage == "no python":
        run.PYTHON.unlink()
    elif damage == "no stamp":
        run.STAMP.unlink()
    else:
        run.STAMP.write_text('{"python": "3.' if damage == "torn stamp" else "[1]")
    run.install(run.BASE)
    assert house.calls == FIRST * 2


def test_an_interrupted_installation_leaves_no_stamp(house):
    run.install(run.BASE)
    house.fails["requirements.txt requirements-dev.txt"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run.install(run.BASE, run.DEV)
    assert not run.STAMP.exists()
    run.install(run.BASE)
    assert house.calls[4:] == FIRST


def test_a_failing_pip_leaves_a_working_venv_in_use(house):
    run.install(run.BASE)
    house.fails["requirements.txt requirements-dev.txt"] = run.Refusal("pip failed")
    with pytest.raises(run.Refusal):
        run.install(run.BASE, run.DEV)
    run.install(run.BASE)  # the app still starts, without pip
    assert len(house.calls) == 4 and json.loads(run.STAMP.read_text())[run.BASE]


def test_a_failing_first_installation_leaves_no_stamp(house):
    house.fails["requirements.txt"] = run.Refusal("pip failed")
    with pytest.raises(run.Refusal):
        run.install(run.BASE)
    assert not run.STAMP.exists()


def test_a_wrong_torch_or_a_full_disk_is_refused_before_the_venv_is_touched(house, monkeypatch):
    run.install(run.BASE)
    monkeypatch.setenv("TORCH", "newest")
    with pytest.raises(run.Refusal, match="TORCH=newest"):
        run.install(run.BASE)
    monkeypatch.setenv("TORCH", "cuda")
    with pytest.raises(run.Refusal, match=r"need \d.* GB of disk and 1.0 GB are free"):
        run.announce(True, 1.0)
    monkeypatch.delenv("TORCH")
    run.install(run.BASE)
    assert house.calls == FIRST


@pytest.mark.parametrize("driver, torch", [(True, ""), (False, "cuda")])
def test_with_a_driver_or_on_demand_the_cuda_build_comes_without_a_search(house, monkeypatch, driver, torch, capsys):
    monkeypatch.setattr(run, "NVIDIA_DRIVER", (str(house.folder),) if driver else ())
    monkeypatch.setenv("TORCH", torch)
    monkeypatch.setattr(run, "resolve", lambda arguments: pytest.fail("asked for a CPU build"))
    monkeypatch.setattr(run.platform, "system", lambda: "Linux")
    run.install(run.BASE)
    assert house.calls == FIRST and f"{run.COSTS['cuda'][0]} GB to download" in capsys.readouterr().out


@pytest.mark.skipif(os.name != "posix", reason="the fake Python is a shell script")
def test_a_failing_pip_is_told_in_one_line_with_its_last_words(tmp_path, monkeypatch, capsys):
    fake = tmp_path / "python"
    fake.write_text(
        "#!/bin/sh\necho '  Downloading x-1.whl (3 MB)'\necho 'ERROR: No matching distribution' >&2\nexit 1\n"
    )
    fake.chmod(0o755)
    monkeypatch.setattr(run, "PYTHON", fake)
    with pytest.raises(run.Refusal, match=r"^pip failed.*PIP_INDEX_URL.*ERROR: No matching distribution$"):
        run.pip("install", "x")
    assert capsys.readouterr().out.strip() == "Downloading x-1.whl (3 MB)"
