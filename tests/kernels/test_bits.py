"""Numbers in a few bits: worked by hand, against the definitions in float64, and every byte counted."""

import numpy as np
import pytest
import torch

from analysis import quantize
from analysis.errors import BadSetting
from analysis.kernels.bits import lloyd_max, pack, rotation, unpack


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def groups_in_float64(x, bits, group):
    """Every `group` numbers of a row [n]: codes from the exact range, numbers from its float16."""
    out = []
    for start in range(0, len(x), group):
        some = np.asarray(x[start : start + group], np.float64)
        low, step = some.min(), (some.max() - some.min()) / (2**bits - 1)
        codes = np.round((some - low) / (step or 1.0))
        out += [*(codes * np.float64(np.float16(step)) + np.float64(np.float16(low)))]
    return np.array(out)


def test_steps_fp8_and_levels_by_hand():
    """Two groups of four in 2 bits: 0 to 3 in steps of 1, and -1 to 5 in steps of 2; a group of equal numbers."""
    x = torch.tensor([0.0, 1.2, 1.7, 3.0, -1.0, 0.9, 2.1, 5.0])
    coded = quantize(x, 2, group=4)
    assert coded.dequantised.tolist() == [0, 1, 2, 3, -1, 1, 3, 5]
    assert coded.nbytes == 2 + 2 * 4, "eight numbers in two bytes, and two groups of 4 bytes"
    assert coded.parts[0].tolist() == [0b10_00_10_00, 0b11_01_11_01], "codes 0 2 0 2 and 1 3 1 3, the first lowest"
    constant = quantize(torch.full((1, 8), 0.25), 4, group=8)
    assert constant.dequantised.tolist() == [[0.25] * 8] and constant.nbytes == 4 + 4
    columns = quantize(torch.tensor([[0.0, 10.0], [3.0, 40.0], [7.0, 7.0]]), 2, axis=0, group=2)
    assert columns.dequantised.tolist() == [[0, 10], [3, 40], [7, 7]] and columns.nbytes == 3 + 4 * 4
    # By hand: the largest number of a row becomes 448; e4m3 holds three bits after the first.
    x = torch.tensor([[448.0, 17.0, -1.06], [0.0, 0.0, 0.0]])
    coded = quantize(x, 8, "fp8")
    assert coded.dequantised[0].tolist() == [448.0, 16.0, -1.0] and not coded.dequantised[1].any()
    assert coded.nbytes == 6 + 2 * 2
    x = drawn(3, 5, 64)
    error = (quantize(x, 8, "fp8").dequantised.double() - x.double()).abs()
    subnormal = x.double().abs().amax(-1, keepdim=True) / 448 * 2.0**-10
    assert (error <= torch.maximum(x.double().abs() * (2.0**-4 + 1e-3), subnormal * 1.01)).all()
    # Max (1960), table 1, for a normal variable: 4, 8 and 16 levels, and their errors.
    assert list(lloyd_max(2)[2:]) == pytest.approx([0.4528, 1.510], abs=5e-4)
    assert list(lloyd_max(3)[4:]) == pytest.approx([0.2451, 0.7560, 1.344, 2.152], abs=5e-4)
    printed = [0.1284, 0.3881, 0.6568, 0.9424, 1.256, 1.618, 2.069, 2.733]
    assert list(lloyd_max(4)[8:]) == pytest.approx(printed, abs=5e-4)
    x = drawn(200_000).double()
    for bits, error in ((2, 0.1175), (3, 0.03454), (4, 0.009497)):
        nearest = (x[:, None] - torch.tensor(lloyd_max(bits), dtype=torch.float64)).abs().amin(-1)
        assert float(nearest.square().mean()) == pytest.approx(error, rel=0.02)


@pytest.mark.parametrize("bits", [8, 4, 3, 2])
@pytest.mark.parametrize(
    ("axis", "group", "length"), [(-1, 64, 64), (-1, 32, 80), (-2, 64, 64), (1, 16, 40), (0, 3, 8)]
)
def test_steps_are_those_of_the_definition(bits, axis, group, length):
    x = drawn(4, 80, 72) * 3 + 1
    x = x.narrow(axis, 0, min(length, x.shape[axis]))
    coded = quantize(x, bits, axis=axis, group=group)
    wanted = np.apply_along_axis(groups_in_float64, axis, x.numpy(), bits, group)
    assert coded.dequantised.dtype == torch.float32 and coded.dequantised.shape == x.shape
    # a number in the middle of two steps may go to either in float32
    apart = np.abs(coded.dequantised.double().numpy() - wanted) > 1e-5
    assert apart.mean() < 1e-3
    rows, count = x.movedim(axis, -2 if axis % 3 != 2 else -1), x.shape[axis]
    groups = x.numel() // count * -(-count // group)
    in_rows = sum(-(-rows.shape[-1] // (8 // width)) for width in {3: (2, 1)}.get(bits, (bits,)))
    assert coded.nbytes == rows.numel() // rows.shape[-1] * in_rows + 4 * groups


@pytest.mark.parametrize("size", [8, 64, 24])
@pytest.mark.parametrize("bits", [4, 3, 2])
def test_directions_are_those_of_the_definition(bits, size):
    """Norm in float16, the unit vector turned and rounded to the levels of N(0, 1/D), then of length 1 again."""
    x, turn = drawn(50, size) * 5, rotation(size).double()
    assert torch.allclose(turn @ turn.T, torch.eye(size, dtype=torch.float64), atol=1e-6)
    if size == 8:
        assert (turn[0] == turn[0, 0]).all() and turn[1, :2].tolist() == pytest.approx([8**-0.5, -(8**-0.5)])
    length = x.double().norm(dim=-1, keepdim=True)
    levels = torch.tensor(lloyd_max(bits), dtype=torch.float64) / size**0.5
    turned = (x.double() / length) @ turn
    nearest = levels[(turned[..., None] - levels).abs().argmin(-1)]
    wanted = nearest / nearest.norm(dim=-1, keepdim=True) * length.half().double() @ turn.T
    coded = quantize(x, bits, "turbo")
    assert torch.allclose(coded.dequantised.double(), wanted, atol=1e-4)
    assert torch.allclose(coded.dequantised.norm(dim=-1), x.norm(dim=-1), rtol=1e-3)
    assert coded.nbytes == 50 * (size * bits // 8 + 2)
    assert not quantize(torch.zeros(2, size), bits, "turbo").dequantised.any()


@pytest.mark.parametrize("bits", [8, 4, 3, 2])
@pytest.mark.parametrize("size", [1, 7, 8, 64, 90])
def test_packing_keeps_every_number(bits, size):
    codes = (torch.arange(3 * size) * 7 % 2**bits).byte().view(3, size)
    packed = pack(codes, bits)
    assert torch.equal(unpack(packed, bits, size), codes)
    assert size % 8 or packed.numel() == codes.numel() * bits // 8


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"bits": 5}, "bits is 5"),
        ({"bits": 8, "kind": "turbo"}, "for turbo"),
        ({"bits": 4, "kind": "nf4"}, "no kind"),
        ({"bits": 8, "kind": "fp8", "axis": 0}, "the last one"),
        ({"bits": 4, "axis": 2}, "axis 2"),
        ({"bits": 4, "group": 0}, "group is 0"),
    ],
)
def test_what_cannot_be_is_refused(about, words):
    with pytest.raises(BadSetting, match=words):
        quantize(drawn(4, 8), **about)


@pytest.mark.parametrize("number", [7e4, float("inf"), float("nan")])
def test_numbers_that_float16_cannot_hold_are_refused(number):
    x = drawn(4, 8)
    x[1, 2] = number
    with pytest.raises(BadSetting, match="float16"):
        quantize(x, 4)
