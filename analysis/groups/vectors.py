"""Routing vectors in two dimensions: PCA at once, UMAP on request."""

import contextlib
import warnings

import numpy as np

from ..errors import AnalysisError, BadSetting

UMAP_NEIGHBOURS = 15
# Vectors below which a neighbourhood graph says nothing.
UMAP_LEAST = 16


def pca(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First two principal components of x [T, d] -> (coordinates float32 [T, 2], their share of variance float32 [2]).

    The sign is fixed: each direction's largest entry is positive. With fewer than two directions the rest is zeros.
    """
    x = np.asarray(x, dtype=np.float64)
    coordinates, share = np.zeros((len(x), 2), np.float32), np.zeros(2, np.float32)
    centred = x - x.mean(0) if len(x) else x
    variance, directions = np.linalg.eigh(centred.T @ centred)  # ascending
    variance, directions = variance[::-1], directions[:, ::-1][:, :2]
    peaks = directions[np.abs(directions).argmax(0), np.arange(directions.shape[1])]
    directions = directions * np.where(peaks < 0, -1, 1)
    total = variance.sum()
    # Below it the vectors are all alike, and directions are noise.
    if total > 1e-12 * max(1.0, float((x**2).sum())):
        count = directions.shape[1]
        coordinates[:, :count] = centred @ directions
        share[:count] = np.clip(variance[:count] / total, 0, 1)
    return coordinates, share


def umap2d(x: np.ndarray, seed: int = 0, limit: int = 4096) -> tuple[np.ndarray, np.ndarray]:
    """UMAP of x [T, d] -> (coordinates float32 [n, 2], positions int32 [n] of the shown vectors).

    More than `limit` vectors are thinned to `limit` evenly spaced ones. 15 neighbours, cosine distance, from PCA on,
    repeatable. Errors: AnalysisError without umap-learn, BadSetting below 16 vectors.
    """
    if len(x) < UMAP_LEAST:
        raise BadSetting(f"UMAP needs at least {UMAP_LEAST} tokens and this text has {len(x)}: PCA shows them all.")
    positions = np.unique(np.linspace(0, len(x) - 1, min(limit, len(x))).round().astype(np.int32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from umap import UMAP, umap_, utils
        except ImportError as error:
            raise AnalysisError("UMAP needs umap-learn, which is not installed; run pip install umap-learn.") from error
        for compiled in (utils.fast_knn_indices, umap_.smooth_knn_dist, umap_.compute_membership_strengths):
            # Numba then keeps what takes it most of a minute to compile, where it has a folder to write to.
            with contextlib.suppress(RuntimeError):
                compiled.enable_caching()
        near = min(UMAP_NEIGHBOURS, len(positions) - 1)
        reducer = UMAP(n_components=2, n_neighbors=near, metric="cosine", init="pca", random_state=seed, n_jobs=1)
        return reducer.fit_transform(x[positions].astype(np.float64)).astype(np.float32), positions
