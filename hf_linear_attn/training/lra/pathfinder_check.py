"""The label of a Pathfinder scene, found from its dashes: a second opinion on every label."""

import numpy as np

from hf_linear_attn.training.lra.pathfinder import PathfinderParameters, Scene

_ROUNDING = 1e-6


def connected(scene: Scene, parameters: PathfinderParameters) -> int:
    """Whether the marked ends hang together, by walking over the gaps between dashes: 1 or 0.

    Args:
        scene: which curve a dash belongs to is not looked at.
        parameters: of the scene.
    """
    tips = np.stack([scene.begins, scene.ends], axis=1)
    distance = np.linalg.norm(tips[:, None, :, None] - tips[None, :, None, :], axis=-1)
    linked = distance.min((2, 3)) <= parameters.gap + _ROUNDING
    start, goal = (_dash_of(marker, tips) for marker in scene.markers)
    reached = np.zeros(len(tips), dtype=bool)
    reached[start] = True
    while True:
        further = linked[reached].any(0) | reached
        if (further == reached).all():
            return int(reached[goal])
        reached = further


def _dash_of(marker: np.ndarray, tips: np.ndarray) -> int:
    """The dash with a tip under the middle of a marker."""
    return int(np.linalg.norm(tips - marker, axis=-1).min(1).argmin())
