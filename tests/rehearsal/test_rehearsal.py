"""Every method reads a prompt and goes on from it on an accelerator that computes shapes alone: no tensor is left
behind on another device, and the host asks at most once a layer in a prompt and never in a step after it."""

from collections.abc import Set

import pytest

from analysis.methods import METHODS
from lab.rehearsal.device import NAME, fake_device
from lab.rehearsal.rehearsal import LEFT_OUT, Rehearsed, read_and_write
from lab.rehearsal.shapes import LAYERS, LONGEST, SHAPES, methods, on_devices

# Blocks of queries in a prompt: what is asked in each of them shows.
BLOCKS = 2
# Tokens of a prompt that has several pages, blocks and buckets.
SHORT = 4096
pytestmark = pytest.mark.slow


def rehearse(
    shape: str, length: int, kernels: bool = True, names: Set[str] = frozenset(METHODS)
) -> dict[str, Rehearsed]:
    """These methods on a model of this shape whose two layers lie on two devices; fails with the names and reasons of
    those that stop or ask too often."""
    config, failed, rehearsed = SHAPES[shape](), [], {}
    at_once = 4 * config.num_attention_heads * length * -(-length // BLOCKS)
    with fake_device(at_once) as device:
        lm = on_devices(config, f"{NAME}:0", f"{NAME}:1")
        for name, make in methods(config).items():
            if name not in names:
                continue
            try:
                rehearsed[name] = about = read_and_write(lm, make(), device, length, kernels)
                if about.asked_in_prompt > LAYERS or about.asked_in_steps:
                    failed.append(
                        f"{name} asks {about.asked_in_prompt} times in a prompt and {about.asked_in_steps} after it"
                    )
            except Exception as error:
                failed.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
    assert not failed, "\n".join(failed)
    return rehearsed


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_method_gets_through_on_two_devices(shape, kernels):
    ran = {name: about.kernels for name, about in rehearse(shape, SHORT, kernels).items()}
    if kernels:
        assert {("prefill", "groups (torch)"), ("decode", "group-major cache")} <= ran["focus"]
        assert ("decode", "gathered pages") in ran["quest"]
        assert ("decode", "compacted cache") in ran["ada_kv"]
        assert ("prefill", "kept blocks") in ran["xattention"]


@pytest.mark.parametrize(
    ("length", "names"), [(LONGEST, METHODS.keys() - LEFT_OUT.keys()), (4 * SHORT, LEFT_OUT.keys())]
)
def test_long_texts(length, names):
    """On the shape that has a sliding window and learned sinks."""
    rehearse("gpt_oss", length, names=names)
