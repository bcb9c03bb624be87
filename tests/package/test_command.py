"""The command `focuscope`: what it serves, and what it says of itself."""

import subprocess

import pytest

from focuscope.__main__ import main


@pytest.mark.parametrize("words", [["serve", "--port", "9001"], ["serve"], []])
def test_it_serves_this_machine_at_the_port_that_is_named(words, monkeypatch):
    called = []
    monkeypatch.setattr(subprocess, "call", lambda command, cwd, env: called.append(command) or 0)
    assert main(words) == 0
    assert "--server.address=127.0.0.1" in called[0]
    assert ("--server.port=9001" in called[0]) == ("9001" in words)


def test_its_help_explains_its_option_and_serves_nothing(monkeypatch, capsys):
    monkeypatch.setattr(subprocess, "call", lambda *arguments, **options: pytest.fail("it serves"))
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--help"])
    output = capsys.readouterr().out
    assert ended.value.code == 0 and "--port N" in output and "8501" in output


@pytest.mark.parametrize("words", [["--port", "99999999"], ["--port", "x"], ["--port"], ["--nothing"], ["9001"]])
def test_what_it_does_not_take_is_refused(words, monkeypatch, capsys):
    monkeypatch.setattr(subprocess, "call", lambda *arguments, **options: pytest.fail("it serves"))
    with pytest.raises(SystemExit) as ended:
        main(["serve", *words])
    assert ended.value.code == 2 and "focuscope serve: error" in capsys.readouterr().err
