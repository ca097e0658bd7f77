"""Street View House Numbers (Netzer et al., 2011): digits of 32x32 pixels, 73,257 + 26,032, and 531,131 extra.

Published form: `{train,test,extra}_32x32.mat`, whose MD5s are known. Read with scipy.
"""

from __future__ import annotations

from pathlib import Path

import torch

from varlearn.data import sources
from varlearn.data.examples import Examples
from varlearn.data.imageset import ImageSet, numbered
from varlearn.data.matlab import matlab
from varlearn.data.sources import Published

SVHN = ImageSet(
    numbered(10),
    (3, 32, 32),
    {"train": 73_257, "test": 26_032, "extra": 531_131},
    (0.4377, 0.4438, 0.4728),
    (0.1980, 0.2010, 0.1970),
    mirror=False,
)
_MD5 = {
    "train": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test": "eb5a983be6a315427106f1b164d9cef3",
    "extra": "a93ce644f1a588dc4d68dda5feec44a7",
}


def svhn(split: str, root: Path | None = None) -> Examples:
    """Cropped house numbers, normalised with their own statistics; split is train, test or extra."""
    SVHN.check_split(split)
    name = f"{split}_32x32.mat"
    path = sources.published(Published(name, f"http://ufldl.stanford.edu/housenumbers/{name}", _MD5[split]), root)
    content = matlab(path, "X", "y")
    images = torch.from_numpy(content["X"]).permute(3, 2, 0, 1)  # from (H, W, C, N)
    labels = torch.from_numpy(content["y"]).reshape(-1).long() % 10  # the source writes 0 as 10
    return SVHN.examples(images, labels, split, path)
