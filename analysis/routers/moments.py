"""Second moments of queries and keys, and the roots of such matrices."""

import torch
from torch import Tensor

SMALLEST = 1e-12  # an eigenvalue below this share of the largest counts as it


class Moments:
    """Uncentred second moments E[x^T x] of rows that come in pieces: a sum [..., D, D] in float64, and a count."""

    def __init__(self):
        self.sum, self.count = 0.0, 0

    def add(self, rows: Tensor) -> "Moments":
        """Add rows [..., n, D]."""
        rows = rows.double()
        self.sum = self.sum + rows.mT @ rows
        self.count += rows.shape[-2]
        return self

    def mean(self, eps: float = 0.0) -> Tensor:
        """E[x^T x] + eps I, float64 [..., D, D]."""
        mean = self.sum / max(1, self.count)
        return mean + eps * torch.eye(mean.shape[-1], dtype=torch.float64, device=mean.device)


def power(matrix: Tensor, exponent: float) -> Tensor:
    """A symmetric positive matrix [..., D, D] to any power, by its eigenvalues in float64."""
    values, vectors = torch.linalg.eigh((matrix + matrix.mT) / 2)
    values = torch.maximum(values, values[..., -1:] * SMALLEST)
    made = (vectors * values.pow(exponent).unsqueeze(-2)) @ vectors.mT
    return (made + made.mT) / 2
