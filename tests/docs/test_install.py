"""How run.py installs, with a fake pip: beside what serves, and what a start does after one that went wrong."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import environment
import run

FIRST = ["venv", "torch==2.13.0", "requirements.txt"]
ADDED = "requirements.txt requirements-dev.txt"
OFFLINE = run.Refusal("pip failed: no network")


class House:
    """An empty project; `.calls` are what pip was asked for, `.fails` what a call raises, `.within`: whether what is
    installed is within the ranges."""

    def __init__(self, folder: Path):
        self.folder, self.calls, self.fails, self.within = folder, [], {}, True

    def create_venv(self, env: Path):
        self.calls.append("venv")
        if "venv" in self.fails:
            raise self.fails["venv"]
        (env / "bin").mkdir()
        (env / "bin" / "python").touch()
        (env / "pyvenv.cfg").write_text(f"command = python -m venv {env}\n")
        (env / "bin" / "tool").write_text(f"#!{env}/bin/python\n")
        (env / "bin" / "tool").chmod(0o755)

    def pip(self, env: Path, *arguments: str):
        words = " ".join(arguments).partition(" --constraint")[0].split()
        packages = " ".join(
            Path(word).name for word in words if word not in ("install", "-r", "--no-deps", "--prefer-binary")
        )
        self.calls.append(packages)
        (env / "half").write_text(packages)
        if packages in self.fails:
            raise self.fails[packages]
        (env / "half").unlink()

    @property
    def python(self) -> str:
        """The version that the environment in use was made with."""
        return environment.read_stamp(environment.VENV)["python"]

    def environments(self) -> list[Path]:
        return sorted((self.folder / ".venvs").iterdir())


@pytest.fixture
def house(tmp_path, monkeypatch):
    for name in (run.BASE, run.DEV):
        (tmp_path / name).write_text(f"# {name}\n")
    (tmp_path / "constraints.txt").write_text("streamlit==1.60.0\ntorch==2.13.0\n")
    house = House(tmp_path)
    for name, value in {
        "ROOT": tmp_path,
        "VENV": tmp_path / ".venv",
        "VENVS": tmp_path / ".venvs",
        "LINK": tmp_path / ".venv.new",
        "NVIDIA_DRIVER": (),
        "resolve": lambda env, arguments: ["sympy>=1.13", "optree; extra == 'optree'"],
        "create_venv": house.create_venv,
        "pip": house.pip,
        "serves": lambda names: bool(environment.read_stamp(environment.VENV)) and house.within,
    }.items():
        monkeypatch.setattr(environment, name, value)
    other_python(monkeypatch, 12)
    monkeypatch.delenv("TORCH", raising=False)
    monkeypatch.setattr(environment.shutil, "disk_usage", lambda path: type("Disk", (), {"free": 9e9}))
    return house


def other_python(monkeypatch, minor: int = 13):
    monkeypatch.setattr(environment.sys, "version_info", (3, minor, 0, "final", 0))


def test_first_start_installs_and_says_so_before_the_second_does_nothing(house, capsys):
    run.install(run.BASE)
    assert house.calls == FIRST
    assert re.search(r"First start: [\d.]+ GB to download, [\d.]+ GB on disk, \d+ minutes", capsys.readouterr().out)
    run.install(run.BASE)
    assert house.calls == FIRST and capsys.readouterr().out == ""
    assert environment.VENV.is_symlink() and environment.VENV.resolve() == house.environments()[0]


def test_tests_add_their_requirements_to_a_copy_that_takes_the_place_of_the_first(house):
    run.install(run.BASE)
    (old,) = house.environments()
    (old / "library").write_text("the same file")
    file = (old / "library").stat().st_ino
    run.install(run.BASE, run.DEV)
    (new,) = house.environments()
    assert house.calls == [*FIRST, ADDED] and new != old
    assert environment.VENV.resolve() == new and (new / "library").stat().st_ino == file
    assert (new / "bin" / "tool").read_text() == f"#!{new}/bin/python\n" and os.access(new / "bin" / "tool", os.X_OK)
    run.install(run.BASE)
    assert len(house.calls) == 4


@pytest.mark.parametrize("file", [run.BASE, "constraints.txt"])
def test_changed_requirements_or_versions_are_installed_without_building_anew(house, file):
    run.install(run.BASE)
    (house.folder / file).write_text("streamlit==1.61.0\ntorch==2.13.0\n")
    run.install(run.BASE)
    assert house.calls == [*FIRST, "requirements.txt"] and len(house.environments()) == 1


def test_another_torch_or_python_builds_anew_and_the_choice_stays(house, monkeypatch):
    run.install(run.BASE)
    monkeypatch.setenv("TORCH", "newest")
    with pytest.raises(run.Refusal, match="TORCH=newest"):
        run.install(run.BASE)
    monkeypatch.setenv("TORCH", "2.12.1")
    run.install(run.BASE)
    built = ["venv", "torch==2.12.1", "requirements.txt"]
    assert house.calls == FIRST + built
    monkeypatch.delenv("TORCH")
    run.install(run.BASE)
    other_python(monkeypatch)
    run.install(run.BASE)
    assert house.calls == FIRST + built * 2 and house.python == "3.13" and len(house.environments()) == 1


@pytest.mark.parametrize("damage", [None, '{"python": "3.', "[1]", "no python"])
def test_a_half_made_environment_is_built_anew(house, damage):
    run.install(run.BASE)
    stamp = environment.VENV / environment.STAMP
    if damage == "no python":
        (environment.VENV / "bin" / "python").unlink()
    elif damage is None:
        stamp.unlink()
    else:
        stamp.write_text(damage)
    run.install(run.BASE)
    assert house.calls == FIRST * 2 and len(house.environments()) == 1


@pytest.mark.parametrize("step", FIRST)
@pytest.mark.parametrize("error", [OFFLINE, OSError(errno.ENOSPC, "No space left")])
def test_where_another_python_cannot_install_the_old_environment_serves(house, monkeypatch, step, error, capsys):
    run.install(run.BASE)
    (old,) = house.environments()
    other_python(monkeypatch)
    house.fails[step] = error
    run.install(run.BASE)
    assert house.python == "3.12" and house.environments() == [old] and environment.VENV.resolve() == old
    (line,) = capsys.readouterr().err.splitlines()
    assert "Python 3.12" in line and str(error) in line
    house.fails.clear()
    run.install(run.BASE)
    assert house.python == "3.13" and old not in house.environments()


@pytest.mark.parametrize("first", [True, False])
def test_without_space_nothing_is_begun_and_the_old_environment_serves(house, monkeypatch, first, capsys):
    if not first:
        run.install(run.BASE)
    other_python(monkeypatch)
    monkeypatch.setattr(environment.shutil, "disk_usage", lambda path: type("Disk", (), {"free": 1e9}))
    if first:
        with pytest.raises(run.Refusal, match=r"need 2.2 GB of disk and 1.0 GB are free"):
            run.install(run.BASE)
        assert house.calls == [] and not environment.VENV.exists()
    else:
        run.install(run.BASE)
        assert house.calls == FIRST and house.python == "3.12" and "1.0 GB are free" in capsys.readouterr().err


@pytest.mark.parametrize("before", [True, False])
def test_without_a_network_what_is_outside_the_ranges_or_a_first_start_is_an_error(house, before):
    if before:
        run.install(run.BASE)
        (house.folder / run.BASE).write_text("streamlit>=2\n")
    house.within, house.fails["requirements.txt"] = False, OFFLINE
    with pytest.raises(run.Refusal, match="no network"):
        run.install(run.BASE)
    assert len(house.environments()) == before == os.path.lexists(environment.VENV)


@pytest.mark.parametrize("step", FIRST)
def test_killed_at_any_step_the_old_environment_serves_and_what_was_begun_is_removed(house, monkeypatch, step):
    """As a killed process leaves it: nothing is cleaned up behind it."""
    run.install(run.BASE)
    (old,) = house.environments()
    other_python(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(environment.shutil, "rmtree", lambda *arguments, **how: None)
        house.fails[step] = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            run.install(run.BASE)
    assert len(house.environments()) == 2 and environment.VENV.resolve() == old and house.python == "3.12"
    house.fails.clear()
    other_python(monkeypatch, 12)
    run.install(run.BASE)
    assert house.environments() == [old]


def test_an_environment_that_venv_links_to_elsewhere_stays_as_it_is(house, tmp_path_factory):
    place = tmp_path_factory.mktemp("elsewhere") / "env"
    place.mkdir()
    house.create_venv(place)
    environment.VENV.symlink_to(place)
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    run.install(run.BASE)
    assert environment.VENV.resolve().parent == environment.VENVS
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before


def test_an_environment_that_a_process_uses_stays_until_that_ends(house):
    run.install(run.BASE)
    (old,) = house.environments()
    script = (
        "import os, pathlib, sys, environment; environment.VENV = pathlib.Path(sys.argv[1]); environment.use()\n"
        "os.execv(sys.executable, [sys.executable, '-c', 'print(flush=True); input()'])"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": Path(run.__file__).parent}
    with subprocess.Popen([sys.executable, "-c", script, str(old)], **pipes) as user:
        user.stdout.readline()
        run.install(run.BASE, run.DEV)
        assert old in house.environments() and environment.VENV.resolve() != old
        user.communicate(b"\n")
    run.install(run.BASE, run.DEV)
    assert old not in house.environments()


def test_where_a_tested_version_has_no_wheel_the_range_is_taken_and_said(house, monkeypatch, capsys):
    def pip(env, *arguments):
        if "--constraint" in arguments:
            raise run.Refusal("Could not find a version that satisfies the requirement numba==9.9 (from versions: 1)")
        house.calls.append("range" if "--prefer-binary" in arguments else arguments[-1])

    monkeypatch.setattr(environment, "pip", pip)
    run.install(run.BASE)
    assert house.calls[-1] == "range" and "numba==9.9" in capsys.readouterr().out


@pytest.mark.parametrize("driver, torch", [(True, ""), (False, "cuda")])
def test_with_a_driver_or_on_demand_the_cuda_build_comes_without_a_search(house, monkeypatch, driver, torch, capsys):
    monkeypatch.setattr(environment, "NVIDIA_DRIVER", (str(house.folder),) if driver else ())
    monkeypatch.setenv("TORCH", torch)
    monkeypatch.setattr(environment, "resolve", lambda env, arguments: pytest.fail("asked for a CPU build"))
    monkeypatch.setattr(environment.platform, "system", lambda: "Linux")
    run.install(run.BASE)
    assert house.calls == FIRST and f"{environment.COSTS['cuda'][0]} GB to download" in capsys.readouterr().out


@pytest.mark.skipif(os.name != "posix", reason="the fake Python is a shell script")
def test_a_failing_pip_is_told_in_one_line_with_its_last_words(tmp_path, capsys):
    fake = tmp_path / "bin" / "python"
    fake.parent.mkdir()
    fake.write_text(
        "#!/bin/sh\necho '  Downloading x-1.whl (3 MB)'\necho 'ERROR: No matching distribution' >&2\nexit 1\n"
    )
    fake.chmod(0o755)
    with pytest.raises(run.Refusal, match=r"^pip failed.*PIP_INDEX_URL.*ERROR: No matching distribution$"):
        environment.pip(tmp_path, "install", "x")
    assert capsys.readouterr().out.strip() == "Downloading x-1.whl (3 MB)"
