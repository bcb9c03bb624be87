"""Which versions run.py installs: the build of torch, and the tested one of every requirement. No network."""

import contextlib
import re
from importlib import metadata

import pytest
from packaging.requirements import Requirement

import environment
import run

# --- which torch --------------------------------------------------------------------------------------------------


def offers(answers: dict):
    """A fake `resolve`: what the build asks for that pip finds, by question; every question is noted."""
    questions = []

    def resolve(arguments):
        questions.append(arguments)
        answer = answers["cpu index" if "--index-url" in arguments else arguments[0]]
        if answer is None:
            raise run.Refusal("pip failed: no network")
        return answer

    return resolve, questions


CPU = ["sympy>=1.13", "optree; extra == 'optree'"]
CUDA = [*CPU, 'nvidia-cudnn-cu13==9.20; platform_system == "Linux"']
EXACT, INDEX, PLAIN = ["torch==2.13.0"], ["torch==2.13.0", "--index-url", environment.CPU_INDEX], ["torch>=2.11,<2.14"]


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
    resolve, questioned = offers({EXACT[0]: exact, "cpu index": index, PLAIN[0]: plain})
    assert environment.torch_without_cuda(EXACT[0], resolve) == chosen
    assert questioned == [EXACT, INDEX, PLAIN][:questions]


def test_cuda_packages_are_never_pulled_without_a_driver():
    resolve, questioned = offers({EXACT[0]: CUDA, "cpu index": None, PLAIN[0]: CUDA})
    with pytest.raises(run.Refusal, match=r"no NVIDIA driver: allow access to https://\S+, set TORCH.*TORCH=cuda"):
        environment.torch_without_cuda(EXACT[0], resolve)
    assert len(questioned) == 3


def test_without_any_answer_the_sentence_is_pips():
    resolve, _ = offers({EXACT[0]: None, "cpu index": None, PLAIN[0]: None})
    with pytest.raises(run.Refusal, match="no network"):
        environment.torch_without_cuda(EXACT[0], resolve)


def test_torch_variable(tmp_path):
    wheel = tmp_path / "torch-2.12.0+cpu-cp312-cp312-linux_x86_64.whl"
    wheel.touch()
    newer = tmp_path / "torch-2.14.0-cp312-cp312-linux_x86_64.whl"
    newer.touch()
    assert environment.torch_pin("") == environment.torch_pin("cuda") == "torch==2.13.0"
    assert environment.torch_pin("2.12.1") == "torch==2.12.1"
    assert environment.torch_pin("2.11.0+cpu") == "torch==2.11.0+cpu"
    assert environment.torch_pin(str(wheel)) == str(wheel)
    for wrong in ("2.10.0", "2.14", "latest", "2.13.0; rm", str(newer), str(tmp_path / "torch-2.13.0-gone.whl")):
        with pytest.raises(run.Refusal, match="is no version from 2.11 to 2.13"):
            environment.torch_pin(wrong)


# --- the tested versions ------------------------------------------------------------------------------------------


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def required() -> list[Requirement]:
    """What the requirements files ask for; flash-attn is compiled on the machine that wants it."""
    files = [path for path in environment.ROOT.glob("requirements*.txt") if path.name != "requirements-flash.txt"]
    lines = [line for path in files for line in path.read_text().splitlines()]
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "-r"))]


def test_every_requirement_has_a_tested_version_within_its_range():
    pins = {canonical(name): version for name, version in environment.tested().items()}
    assert len(required()) > 30
    for requirement in required():
        assert requirement.specifier.contains(pins[canonical(requirement.name)]), requirement


def test_the_tested_versions_are_one_a_line_without_local_labels_or_cuda():
    lines = (environment.ROOT / environment.CONSTRAINTS).read_text().splitlines()
    lines = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\d.]+(\.?(post|rc|a|b)\d+)?", line) for line in lines)
    names = [canonical(line.partition("==")[0]) for line in lines]
    assert len(set(names)) == len(names) and not [name for name in names if name.startswith(environment.CUDA_PACKAGES)]
    assert environment.SOURCES <= set(environment.tested())


def test_what_these_tests_run_with_is_complete_in_the_tested_versions():
    """The dependencies of dependencies too, as far as they are installed here."""
    pins, todo, reached = {canonical(name) for name in environment.tested()}, required(), set()
    while todo:
        requirement = todo.pop()
        extras = [{"extra": extra} for extra in requirement.extras] or [{"extra": ""}]
        with contextlib.suppress(metadata.PackageNotFoundError):
            for line in metadata.requires(requirement.name) or []:
                needed = Requirement(line)
                wanted = needed.marker is None or any(needed.marker.evaluate(extra) for extra in extras)
                if wanted and (key := (canonical(needed.name), *sorted(needed.extras))) not in reached:
                    reached.add(key)
                    todo.append(needed)
    names = {name for name, *_ in reached}
    assert len(names) > 100
    assert [name for name in names - pins if not name.startswith(environment.CUDA_PACKAGES)] == []


def test_the_image_installs_the_tested_torch():
    assert f"ARG TORCH={environment.tested()['torch']}\n" in (environment.ROOT / "Dockerfile").read_text()
