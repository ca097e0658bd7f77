"""Oxford Flowers 102 (Nilsback and Zisserman, 2008): 1,020 + 1,020 + 6,149 photographs.

Published form: `102flowers.tgz`, `imagelabels.mat` and `setid.mat` in a folder `flowers102`, whose MD5s are known.
"""

from __future__ import annotations

from pathlib import Path

import torch

from varlearn.data import sources
from varlearn.data.archive import members
from varlearn.data.examples import Examples, pixel_statistics
from varlearn.data.imageset import ImageSet, numbered
from varlearn.data.matlab import matlab
from varlearn.data.pictures import picture
from varlearn.data.sources import Published

_COUNTS = {"train": 1_020, "valid": 1_020, "test": 6_149}
_KEYS = {"train": "trnid", "valid": "valid", "test": "tstid"}
_URL = "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/"
_MD5 = {
    "102flowers.tgz": "52808999861908f626f3c1f4e79d11fa",
    "imagelabels.mat": "e0620be6f572b9609742df49c70aed4d",
    "setid.mat": "a5357ecc9cb78c4bef273ce3793fc85c",
}
FLOWERS102 = ImageSet(numbered(102), (3, 32, 32), _COUNTS)


def flowers102(split: str, root: Path | None = None, *, size: int = 32) -> Examples:
    """The centre square of each photograph at size x size pixels, normalised with the split's own statistics.

    Args:
        split: train, valid or test.
        root: see `sources.folders`.
        size: side of the images.
    """
    FLOWERS102.check_split(split)
    images_file, labels_file, split_file = (
        sources.published(Published(f"flowers102/{name}", _URL + name, check), root) for name, check in _MD5.items()
    )
    numbers = torch.from_numpy(matlab(split_file, _KEYS[split])[_KEYS[split]]).reshape(-1).long()
    labels = torch.from_numpy(matlab(labels_file, "labels")["labels"]).reshape(-1).long()
    names = [f"jpg/image_{number:05d}.jpg" for number in numbers.tolist()]
    found = members(images_file, names)
    images = torch.stack([picture(raw, size, f"{images_file}/{name}") for name, raw in zip(names, found, strict=True)])
    mean, std = pixel_statistics(images)
    facts = ImageSet(numbered(102), (3, size, size), _COUNTS, mean, std)
    return facts.examples(images, labels[numbers - 1] - 1, split, images_file)
