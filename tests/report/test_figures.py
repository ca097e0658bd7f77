"""What the figures draw, read back from the artists."""

import itertools
import math

import pytest
import torch

from varlearn.metrics import reliability_curve
from varlearn.report.figures import curves, entropies, gallery, reliability


def test_reliability_draws_the_bins_and_their_shares() -> None:
    log_probs = torch.tensor([[0.92, 0.08]] * 20 + [[0.62, 0.38]] * 5).log()
    targets = torch.tensor([0] * 15 + [1] * 5 + [0] * 5)
    top, bottom = reliability({"SGD": reliability_curve(log_probs, targets, bins=10)}).axes
    diagonal, many, few = top.lines
    assert diagonal.get_xydata().tolist() == [[0, 0], [1, 1]]
    assert many.get_xydata()[0].tolist() == pytest.approx([0.92, 0.75], abs=1e-6)
    assert few.get_xydata()[0].tolist() == pytest.approx([0.62, 1.0], abs=1e-6)  # five examples: a faint dot
    assert few.get_alpha() < 1
    shares = bottom.patches[0].get_data().values
    assert shares[9] == pytest.approx(0.8)
    assert shares[6] == pytest.approx(0.2)


def test_entropies_are_shares_of_each_set() -> None:
    inside, outside = torch.zeros(8), torch.tensor([math.log(10)] * 3 + [0.0])
    axis = entropies(inside, {"noise": outside}, "IVON", math.log(10)).axes[0]
    first, _, second, _ = axis.patches
    assert first.get_data().values[0] == 1.0
    assert second.get_data().values[[0, -1]].tolist() == [0.25, 0.75]  # log C itself is not lost
    assert axis.get_title() == "IVON"


def test_curves_leave_out_what_is_not_finite() -> None:
    axis = curves({"a": [(1, 20.0), (2, float("nan")), (3, float("inf")), (4, 1.0)]}, "step", "loss", log=True).axes[0]
    heights = axis.lines[0].get_ydata()
    assert [math.isfinite(y) for y in heights] == [True, False, False, True]
    assert axis.get_yscale() == "log"
    for values in ([-2.0, 20.0], [1.0, 2.0]):
        points = list(enumerate(values))
        assert curves({"a": points}, "step", "loss", log=True).axes[0].get_yscale() == "linear"


def test_gallery_shows_pixels_and_captions() -> None:
    images = torch.rand(2, 3, 4, 4)
    axes = gallery({"sure": (images, ["a", "b"]), "unsure": (images[:1], ["c"])}).axes
    assert [[text.get_text() for text in axis.texts] for axis in axes] == [["a"], ["b"], ["c"]]
    assert torch.equal(torch.as_tensor(axes[1].images[0].get_array().data), images[1].permute(1, 2, 0))


def test_captions_of_a_gallery_overlap_neither_each_other_nor_the_images() -> None:
    words = [f"automobile\npredicted {name}: 0.0123" for name in ("airplane", "horse", "a long name of a class")]
    rows = {"dog, most sensitive": (torch.rand(12, 3, 32, 32), words * 4), "least": (torch.rand(2, 3, 32, 32), words)}
    made = gallery(rows)
    made.draw_without_rendering()
    axes = [axis for axis in made.axes if axis.images]
    captions = [axis.texts[0].get_window_extent() for axis in axes]
    images = [axis.images[0].get_window_extent() for axis in axes]
    titles = [title.get_window_extent() for title in made.texts]
    boxes = [*captions, *images, *titles]
    assert not [(a, b) for a, b in itertools.combinations(boxes, 2) if a.overlaps(b)]
    assert all(made.bbox.x0 <= box.x0 and box.x1 <= made.bbox.x1 and made.bbox.y0 <= box.y0 for box in boxes)
