import pytest
import torch

from tests.data.files import encoded, random_images
from varlearn.data.errors import CorruptDataError
from varlearn.data.pictures import picture


def test_a_picture_of_the_right_size_is_untouched() -> None:
    image = random_images(1, 3, 16, 16)[0]
    assert torch.equal(picture(encoded(image, "PNG"), 16, "f"), image)


def test_the_centre_is_cut_out_and_resized() -> None:
    image = torch.zeros(3, 8, 20, dtype=torch.uint8)
    image[:, :, 6:14] = 200
    assert picture(encoded(image, "PNG"), 4, "f").unique().tolist() == [200]


def test_no_picture() -> None:
    with pytest.raises(CorruptDataError, match="f must be a picture"):
        picture(b"nonsense", 4, "f")
