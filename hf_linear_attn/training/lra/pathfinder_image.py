"""A Pathfinder scene as a picture."""

from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from hf_linear_attn.training.lra.pathfinder import PathfinderParameters, Scene


def render(scene: Scene, parameters: PathfinderParameters) -> np.ndarray:
    """Draw a scene in parts of pixels and scale it down; the brightest pixel is 255.

    Returns:
        uint8 (size, size).
    """
    p = parameters
    layers = []
    for contrast in np.unique(scene.contrasts):
        chosen = scene.contrasts == contrast
        layers.append(contrast * _dashes(scene.begins[chosen], scene.ends[chosen], p))
    layers.append(_discs(scene.markers, p))
    image = np.max(layers, axis=0)
    return np.round(image * (255 / image.max())).astype(np.uint8)


def _dashes(begins: np.ndarray, ends: np.ndarray, p: PathfinderParameters) -> np.ndarray:
    canvas, pen = _canvas(p)
    width = round(p.paddle_thickness * p.antialias)
    for begin, end in zip(begins, ends, strict=True):
        # A dash ends in the middle of a pixel, as in the images of the paper.
        shift = np.round(end) - end
        pen.line([_part(begin + shift, p), _part(end + shift, p)], fill=255, width=width)
    return _scaled_down(canvas, p)


def _discs(markers: np.ndarray, p: PathfinderParameters) -> np.ndarray:
    canvas, pen = _canvas(p)
    radius = p.marker_radius * p.antialias
    for marker in markers:
        x, y = _part(np.round(marker), p)
        pen.ellipse([x - radius, y - radius, x + radius, y + radius], fill=255)
    return _scaled_down(canvas, p)


def _canvas(p: PathfinderParameters) -> tuple[Image.Image, Any]:
    side = (p.size + 2) * p.antialias
    canvas = Image.new("L", (side, side))
    return canvas, ImageDraw.Draw(canvas)


def _part(point: np.ndarray, p: PathfinderParameters) -> tuple[float, float]:
    """The part of a pixel at a point, behind a border of one pixel."""
    x, y = np.round((point + 1) * p.antialias)
    return float(x), float(y)


def _scaled_down(canvas: Image.Image, p: PathfinderParameters) -> np.ndarray:
    # The part that a whole coordinate falls on is the middle of its pixel.
    begin = p.antialias - (p.antialias - 1) / 2
    box = (begin, begin, begin + p.size * p.antialias, begin + p.size * p.antialias)
    small = canvas.resize((p.size, p.size), Image.Resampling.LANCZOS, box)
    return np.asarray(small, dtype=np.float64) / 255
