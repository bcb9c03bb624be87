"""Every method reads a prompt and goes on from it on an accelerator that computes shapes alone: no tensor is left
behind on another device, and the host asks at most once a layer in a prompt and never in a step after it."""

from collections.abc import Set

import pytest

from lab.rehearsal.device import NAME, fake_device
from lab.rehearsal.rehearsal import LEFT_OUT, Rehearsed, read_and_write
from lab.rehearsal.shapes import LAYERS, SHAPES, methods, on_devices

# Blocks of queries in a prompt: what is asked in each of them shows.
BLOCKS = 2


def rehearse(
    shape: str, length: int, kernels: bool, devices: int = 1, left_out: Set[str] = frozenset()
) -> dict[str, Rehearsed]:
    """Every method on a model of this shape; fails with the names and reasons of those that stop or ask too often."""
    config, failed, found = SHAPES[shape](), [], {}
    at_once = 4 * config.num_attention_heads * length * -(-length // BLOCKS)
    with fake_device(at_once) as device:
        lm = on_devices(config, *(f"{NAME}:{number}" for number in range(devices)))
        for name, made in methods(config).items():
            if name in left_out:
                continue
            try:
                found[name] = about = read_and_write(lm, made(), device, length, kernels)
                if about.asked_in_prompt > LAYERS or about.asked_in_steps:
                    failed.append(
                        f"{name} asks {about.asked_in_prompt} times in a prompt and {about.asked_in_steps} after it"
                    )
            except Exception as error:
                failed.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
    assert not failed, "\n".join(failed)
    return found


# Tokens of a prompt that has several pages, blocks and buckets; the longer ones run with `--all`.
SHORT = 1024


@pytest.mark.slow
def test_methods_get_through_on_two_devices():
    found = rehearse("llama", SHORT, kernels=True, devices=2)
    assert {("prefill", "groups (torch)"), ("decode", "group-major cache")} <= found["focus"].kernels
    assert ("decode", "gathered pages") in found["quest"].kernels
    assert ("decode", "compacted cache") in found["ada_kv"].kernels
    assert ("prefill", "kept blocks") in found["xattention"].kernels


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_with_kernels_and_masks(shape, kernels, devices):
    rehearse(shape, 4096, kernels, devices)


@pytest.mark.slow
@pytest.mark.parametrize(("length", "left_out"), [(1 << 15, set()), (1 << 17, set(LEFT_OUT))])
@pytest.mark.parametrize("shape", SHAPES)
def test_long_texts(shape, length, left_out):
    rehearse(shape, length, kernels=True, devices=2, left_out=left_out)
