"""Pathfinder scenes drawn at random: two long dashed curves, distractors, and two marked ends.

A curve is a chain of dashes ("paddles"). Both long curves begin near the middle of the image, at a
given distance from each other, and grow in turns. One begin is marked and one far end; the label
says whether they belong to the same curve. Shorter curves are strewn between.

The parameters are those of https://github.com/drewlinsley/pathfinder (Linsley et al. 2018, Kim et
al. 2020) under Long Range Arena's values. The geometry is this file's own: curves live in the plane
instead of on the pixel grid, and keep a distance from all others that is wider than the gap
between two dashes of one curve. A curve is thus known by its gaps alone, by which
`pathfinder_check` finds every label a second time.
"""

from dataclasses import dataclass

import numpy as np

_DIRECTIONS = 36
_TRIES_OF_SCENE = 2_000
# Of a margin, on either side of a gap: with it, and one attempt at each distractor, brightness,
# black share and number of separate pieces are those of the original generator's images.
_GAP = 0.75
_LEAST = {
    "size": 8,
    "contour_length": 2,
    "distractor_length": 1,
    "distractors": 0,
    "paddle_length": 1,
    "margin": 1,
    "padding": 0,
    "seed_distance": 1,
    "antialias": 1,
}


@dataclass(frozen=True)
class PathfinderParameters:
    """What is drawn; the defaults are those of Long Range Arena's hard 32 × 32 images.

    Lengths are in pixels.

    Args:
        size: side of the image.
        contour_length: dashes in each of the two long curves.
        distractor_length: dashes in a distractor.
        distractors: how many of them are tried, once each; most find no room and are left out.
        paddle_length: length of a dash.
        paddle_thickness: its width; times `antialias` it must be whole.
        margin: what a dash keeps free around it; 1.5 margins lie between two dashes of a curve.
        padding: free border.
        seed_distance: between the begins of the long curves.
        continuity: how straight curves are; 1 allows right angles.
        marker_radius: of the two discs.
        contour_contrast: brightness of the long curves.
        distractor_contrast: of the distractors; discs have 1.
        antialias: pixels are drawn in so many parts each way.

    Raises:
        ValueError: a value out of range, or curves that no image of this size can hold.
    """

    size: int = 32
    contour_length: int = 14
    distractor_length: int = 4
    distractors: int = 5
    paddle_length: int = 2
    paddle_thickness: float = 0.5
    margin: int = 1
    padding: int = 1
    seed_distance: int = 7
    continuity: float = 1.0
    marker_radius: float = 1.5
    contour_contrast: float = 1.5
    distractor_contrast: float = 2.0
    antialias: int = 2

    def __post_init__(self) -> None:
        for name, bound in _LEAST.items():
            if getattr(self, name) < bound:
                got = getattr(self, name)
                raise ValueError(f"pathfinder {name}: got {got}, expected {bound} or more")
        for name in ("continuity", "marker_radius", "contour_contrast", "distractor_contrast"):
            if not getattr(self, name) > 0:
                raise ValueError(f"pathfinder {name}: got {getattr(self, name)}, expected above 0")
        width = self.paddle_thickness * self.antialias
        if width < 1 or width != round(width):
            raise ValueError(
                f"pathfinder paddle_thickness {self.paddle_thickness} times antialias "
                f"{self.antialias} is {width:g}; expected a whole number of 1 or more"
            )
        self._check_room()

    @property
    def gap(self) -> float:
        """From a dash's end to the next one's begin, along a straight curve."""
        return 2 * _GAP * self.margin

    @property
    def clearance(self) -> float:
        """Least distance of dashes that do not follow each other; wider than any gap."""
        return 2 * self.margin + max(self.paddle_thickness, 0.25)

    def _check_room(self) -> None:
        inner = self.size - 2 * self.padding
        # A dash needs at least the strip around it that others keep free.
        needed = 2 * self.contour_length * self.paddle_length * self.clearance
        if self.seed_distance >= inner / 2 or needed > inner**2:
            raise ValueError(
                f"pathfinder: two curves of {self.contour_length} dashes of {self.paddle_length} "
                f"pixels, {self.seed_distance} apart, do not fit into {self.size} x {self.size} "
                "pixels; lower contour_length, or raise the size"
            )


@dataclass(frozen=True)
class Scene:
    """What an image shows, in pixels, (x, y).

    Attributes:
        begins, ends: float (dashes, 2).
        contrasts: float (dashes,).
        markers: float (2, 2), the begin and the end that are marked.
        label: 1 = on the same curve.
    """

    begins: np.ndarray
    ends: np.ndarray
    contrasts: np.ndarray
    markers: np.ndarray
    label: int


def draw_scene(parameters: PathfinderParameters, seed: tuple[int, ...]) -> Scene:
    """A scene; the same seed gives the same one.

    Args:
        parameters: of the scene.
        seed: numbers.

    Raises:
        ValueError: the long curves found no room in thousands of attempts.
    """
    random = np.random.default_rng(seed)
    label = int(random.integers(2))
    for _ in range(_TRIES_OF_SCENE):
        curves = _long_curves(parameters, random)
        if curves is not None:
            return _finish(parameters, random, curves, label)
    raise ValueError(
        f"pathfinder: two curves of {parameters.contour_length} dashes found no room in "
        f"{parameters.size} x {parameters.size} pixels in {_TRIES_OF_SCENE:,} attempts; lower "
        "contour_length or raise the size"
    )


class _Curve:
    """A growing chain of dashes."""

    def __init__(self, begin: np.ndarray, angle: float, parameters: PathfinderParameters) -> None:
        self.parameters = parameters
        self.angle = angle
        self.begins = [begin]
        self.ends = [begin + parameters.paddle_length * _direction(angle)]
        # Along each dash, one array a dash.
        self.points = [_along(begin, self.ends[0], parameters)]

    def stands_free(self, others: "list[_Curve]") -> bool:
        """Whether its first dash is inside the image and clear of other curves."""
        taken = [points for other in others for points in other.points]
        return bool(_is_free(self.begins[0][None], self.ends[0][None], taken, self.parameters)[0])

    def grow(self, others: "list[_Curve]", random: np.random.Generator) -> bool:
        """Add one dash where there is room, the straighter the likelier; False where there is none.

        The weight of an angle δ against the last dash is cos²(continuity · δ), 0 beyond a right
        angle.
        """
        p = self.parameters
        pivot = self.ends[-1] + p.gap / 2 * _direction(self.angle)
        delta = np.linspace(-np.pi / 2, np.pi / 2, _DIRECTIONS) / p.continuity
        angles = self.angle + delta + random.uniform(-0.5, 0.5) * (delta[1] - delta[0])
        weights = np.cos(p.continuity * delta) ** 2
        begins = pivot + p.gap / 2 * _direction(angles)
        ends = begins + p.paddle_length * _direction(angles)
        placed = [points for other in others if other is not self for points in other.points]
        weights = weights * _is_free(begins, ends, [*placed, *self.points[:-1]], p)
        if weights.sum() < 1e-4:
            return False
        chosen = random.choice(_DIRECTIONS, p=weights / weights.sum())
        self.begins.append(begins[chosen])
        self.ends.append(ends[chosen])
        self.points.append(_along(begins[chosen], ends[chosen], p))
        self.angle = float(angles[chosen])
        return True


def _long_curves(p: PathfinderParameters, random: np.random.Generator) -> list[_Curve] | None:
    """Both long curves, or None where one of them has run into a corner."""
    # Two seed distances from the border there is room on every side.
    border = min(2 * p.seed_distance, p.size // 2 - 1)
    first = random.uniform(border, p.size - border, 2)
    second = first + p.seed_distance * _direction(random.uniform(-np.pi, np.pi))
    curves: list[_Curve] = []
    for begin in (first, second):
        curve = _Curve(begin, random.uniform(-np.pi, np.pi), p)
        if not curve.stands_free(curves):
            return None
        curves.append(curve)
    for _ in range(p.contour_length - 1):
        if not all(curve.grow(curves, random) for curve in curves):
            return None
    return curves


def _finish(
    p: PathfinderParameters, random: np.random.Generator, long: list[_Curve], label: int
) -> Scene:
    """Add distractors and choose the marked ends."""
    curves = list(long)
    for _ in range(p.distractors):
        distractor = _distractor(p, curves, random)
        if distractor is not None:
            curves.append(distractor)
    begin = int(random.integers(2))
    end = begin if label else 1 - begin
    contrasts = [
        np.full(len(c.begins), p.contour_contrast if c in long else p.distractor_contrast)
        for c in curves
    ]
    return Scene(
        begins=np.concatenate([curve.begins for curve in curves]),
        ends=np.concatenate([curve.ends for curve in curves]),
        contrasts=np.concatenate(contrasts),
        markers=np.array([long[begin].begins[0], long[end].ends[-1]]),
        label=label,
    )


def _distractor(
    p: PathfinderParameters, curves: list[_Curve], random: np.random.Generator
) -> _Curve | None:
    begin = random.uniform(p.padding, p.size - 1 - p.padding, 2)
    curve = _Curve(begin, random.uniform(-np.pi, np.pi), p)
    if not curve.stands_free(curves):
        return None
    for _ in range(p.distractor_length - 1):
        if not curve.grow([*curves, curve], random):
            return None
    return curve


def _direction(angle: float | np.ndarray) -> np.ndarray:
    """Unit vectors (…, 2)."""
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def _along(begins: np.ndarray, ends: np.ndarray, p: PathfinderParameters) -> np.ndarray:
    """Points of dashes, not more than a pixel apart, both ends among them: (points, …, 2)."""
    share = np.linspace(0, 1, p.paddle_length + 1)
    return begins + np.multiply.outer(share, ends - begins)


def _is_free(
    begins: np.ndarray, ends: np.ndarray, taken: list[np.ndarray], p: PathfinderParameters
) -> np.ndarray:
    """Bool (candidates,): inside the border, and clear of the points that are taken."""
    corners = np.stack([begins, ends])
    within = np.logical_and(corners >= p.padding, corners <= p.size - 1 - p.padding)
    inside = np.logical_and.reduce(within, axis=(0, 2))
    if not taken:
        return inside
    points = _along(begins, ends, p)[:, :, None] - np.concatenate(taken)
    return np.logical_and(inside, np.square(points).sum(-1).min((0, 2)) >= p.clearance**2)
