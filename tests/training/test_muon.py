"""Our Muon makes the updates of PyTorch's own, matrix by matrix."""

import torch

from analysis.training.muon import Muon, orthogonal

SHAPES = [(16, 16), (8, 16), (16, 16), (40, 16), (16, 40)]


def test_three_steps_are_those_of_pytorch():
    def trained(optimiser, **options) -> list[torch.Tensor]:
        draw = torch.Generator().manual_seed(0)
        matrices = [torch.nn.Parameter(torch.randn(shape, generator=draw)) for shape in SHAPES]
        opt = optimiser(matrices, lr=0.1, weight_decay=0.1, **options)
        for _ in range(3):
            for p in matrices[:-1]:  # the last never gets a gradient
                p.grad = torch.randn(p.shape, generator=draw)
            opt.step()
        assert len(opt.state_dict()["state"]) == len(SHAPES) - 1
        return matrices

    for ours, theirs in zip(trained(Muon), trained(torch.optim.Muon, adjust_lr_fn="match_rms_adamw"), strict=True):
        assert (ours - theirs).norm() < 0.01 * theirs.norm()


def test_singular_values_come_near_one():
    draw = torch.Generator().manual_seed(0)
    for shape in SHAPES:
        values = torch.linalg.svdvals(
            orthogonal(torch.randn(2, *shape, generator=draw), (3.4445, -4.775, 2.0315), 5, 1e-7, torch.float32)
        )
        assert values.shape == (2, min(shape)) and 0.3 < values.min() and values.max() < 1.5
