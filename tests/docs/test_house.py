"""What run.py refuses and prints, and that the files around it agree. No network."""

import ast
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import run

ROOT = Path(__file__).resolve().parents[2]
GLIBC = ("glibc", "2.36")


@pytest.mark.parametrize(
    "arguments, words",
    [
        (((3, 10, 4), "Linux", "x86_64", GLIBC, 64), ["3.11 to 3.14", "this is Python 3.10", "start it with"]),
        (((3, 15), "Linux", "x86_64", GLIBC, 64), ["this is Python 3.15"]),
        (((3, 12), "Linux", "i686", GLIBC, 32), ["32-bit", "use a 64-bit Python"]),
        (((3, 12), "Windows", "AMD64", ("", ""), 64), ["Windows AMD64", "inside WSL"]),
        (((3, 12), "Darwin", "x86_64", ("", ""), 64), ["Darwin x86_64", "Apple silicon"]),
        (((3, 12), "Linux", "riscv64", GLIBC, 64), ["Linux riscv64"]),
        (((3, 12), "Linux", "x86_64", ("glibc", "2.17"), 64), ["glibc 2.17", "2.28 or newer"]),
        (((3, 12), "Linux", "x86_64", ("", ""), 64), ["glibc 2.28"]),
    ],
)
def test_unsupported_machines_get_one_sentence_and_supported_ones_pass(arguments, words):
    for system, machine in run.MACHINES:
        run.check((3, 11 + len(words)), system, machine, GLIBC if system == "Linux" else ("", ""), 64)
    with pytest.raises(run.Refusal) as error:
        run.check(*arguments)
    sentence = str(error.value)
    assert all(word in sentence for word in words), sentence
    assert sentence.count(". ") == 0 and "\n" not in sentence and sentence.endswith(".")


def test_refusal_comes_before_anything_is_touched(monkeypatch, capsys):
    monkeypatch.setattr(run.platform, "machine", lambda: "mips")
    monkeypatch.setattr(run, "install", lambda *names: pytest.fail("installed on an unsupported machine"))
    assert run.main([]) == 1
    assert capsys.readouterr().err.startswith("focuscope: Focuscope does not run on 64-bit Python on")


def test_the_script_needs_nothing_but_python():
    names = {"environment"}
    for file in ("run.py", "environment.py"):
        tree = ast.parse((ROOT / file).read_text(), feature_version=(3, 7))  # an older Python is refused in a sentence
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add(node.module)
    assert {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) == {"environment"}


def test_the_next_free_port_is_taken_and_ssh_brings_it_home():
    ssh = "10.0.0.9 52114 10.0.0.7 2222"
    assert run.ssh_line(8501, ssh, "ada") == "ssh -p 2222 -L 8501:127.0.0.1:8501 ada@10.0.0.7"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert run.free_port(port) > port
        with pytest.raises(run.Refusal, match=f"No port from {port} to {port} is free"):
            run.free_port(port, tries=1)
    assert run.free_port(port) == port


def test_serve_prints_the_address_and_binds_this_machine_only(monkeypatch, capsys):
    became = []
    monkeypatch.setattr(run, "install", lambda *names: None)
    monkeypatch.setattr(run, "become", lambda *arguments: became.append(arguments) or 0)
    monkeypatch.setattr(run, "free_port", lambda first: first + 2)
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.9 52114 10.0.0.7 22")
    assert run.main(["serve", "--port", "9000"]) == 0
    out = capsys.readouterr().out
    assert "http://127.0.0.1:9002" in out and "ssh -L 9002:127.0.0.1:9002" in out
    assert {"--server.address=127.0.0.1", "--server.port=9002", "--server.headless=true"} <= set(became[0])


def test_help_and_unknown_words_in_a_process_of_their_own(tmp_path):
    def start(*words):
        return subprocess.run([sys.executable, ROOT / "run.py", *words], cwd=tmp_path, capture_output=True, text=True)

    helped = start("--help")
    assert helped.returncode == 0 and all(
        f"python run.py {word}" in helped.stdout for word in run.COMMANDS if word != "serve"
    )
    usage = start("serve", "--help")
    assert usage.returncode == 0 and usage.stderr == "" and not (tmp_path / ".venvs").exists()
    assert all(word in usage.stdout for word in ("--port N", "127.0.0.1", "8501", "FOCUSCOPE_DEMO"))
    wrong = start("sevre")
    assert wrong.returncode == 1 and wrong.stderr == (
        "focuscope: `sevre` is not one of serve, test, lint, python: `python run.py --help` explains them.\n"
    )


def test_ci_runs_the_contract_on_the_oldest_versions_that_the_requirements_name(tmp_path):
    script = tmp_path / ".ci" / "oldest"
    for name, content in {
        ".ci/oldest": (ROOT / ".ci" / "oldest").read_text(),
        ".venv/bin/python": f'#!/bin/sh\n[ "$2" = venv ] || exec {sys.executable} "$@"\n'
        'mkdir -p "$3/bin" && cp tool "$3/bin/python"\n',
        "tool": f'#!/bin/sh\n[ "$1" = -c ] && exec echo {tmp_path}\necho "$@" >>{tmp_path / "asked"}\n',
        "requirements.txt": (ROOT / "requirements.txt").read_text(),
    }.items():
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
        place.chmod(0o755)
    for _ in range(2):
        subprocess.run([script, "-q"], check=True, env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    installed, *tested = (tmp_path / "asked").read_text().splitlines()
    bounds = re.findall(
        r"(?m)^(transformers|tokenizers|huggingface_hub)>=([\d.]+)", (ROOT / "requirements.txt").read_text()
    )
    assert len(bounds) == 3 and installed.split()[-3:] == [f"{name}=={version}" for name, version in bounds]
    assert tested == ["-m pytest tests/contract -q"] * 2, "made once, run twice"


def test_the_readme_names_the_range_of_transformers_that_the_requirements_name():
    oldest, beyond = re.search(r"transformers>=5\.(\d+),<5\.(\d+)", (ROOT / "requirements.txt").read_text()).groups()
    assert f"Models need transformers 5.{oldest} to 5.{int(beyond) - 1}." in (ROOT / "README.md").read_text()
