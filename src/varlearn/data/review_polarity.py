"""Reviews of Yelp and Amazon, negative or positive.

`yelp_polarity` and `amazon_polarity` are the sets of Zhang et al. (2015). Published forms:
`yelp_review_polarity_csv.tgz` and `amazon_review_polarity_csv.tgz`; we know of no published checksum, so the numbers of
reviews are checked.

The other names need less and are other data. `yelp_polarity-pack` is a sample of 2,000 + 200 reviews of the first.
`yelp-standin` (6,939 + 2,000 reviews of the Yelp Open Dataset, three quarters of them positive) and `amazon-standin`
(20,352 + 5,496 reviews of 14 kinds of products, in lower case) stand in for the two sets where these cannot be had;
results on them cannot be compared with published ones. All texts of the prepared files are cut at 600 characters.
Prepared forms: `text/yelp_polarity_{train2k,test200}.tsv.xz`, `text/{yelp,amazon}_{train,test}.tsv.xz`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path

from varlearn.data import prepared, sources
from varlearn.data.archive import members
from varlearn.data.errors import CorruptDataError
from varlearn.data.imageset import check_split
from varlearn.data.sources import Published
from varlearn.data.text_sets import Texts, labelled

CLASSES = ("negative", "positive")
_BASE = "https://s3.amazonaws.com/fast-ai-nlp/"
_COUNTS = {
    "yelp": {"train": 560_000, "test": 38_000},
    "amazon": {"train": 3_600_000, "test": 400_000},
}
# of each prepared form: columns, column of the text, and the file and number of reviews of each split
_PREPARED = {
    "yelp_polarity-pack": (2, 1, {"train": ("yelp_polarity_train2k", 2_000), "test": ("yelp_polarity_test200", 200)}),
    "yelp-standin": (3, 2, {"train": ("yelp_train", 6_939), "test": ("yelp_test", 2_000)}),
    "amazon-standin": (3, 2, {"train": ("amazon_train", 20_352), "test": ("amazon_test", 5_496)}),
}


def review_polarity(shop: str, split: str, root: Path | None = None) -> Texts:
    """Reviews of Zhang et al.'s set; title and text of Amazon's are joined by a space.

    Args:
        shop: "yelp" or "amazon".
        split: "train" or "test".
        root: see `sources.folders`.
    """
    counts = _COUNTS[shop]
    check_split(split, counts)
    name = f"{shop}_review_polarity_csv"
    path = sources.published(Published(f"{name}.tgz", f"{_BASE}{name}.tgz"), root)
    (raw,) = members(path, [f"{name}/{split}.csv"])
    rows = []
    for number, row in enumerate(csv.reader(io.StringIO(raw.decode("utf-8"), newline="")), 1):
        if len(row) not in (2, 3) or row[0] not in ("1", "2"):
            raise CorruptDataError(f"{path} {split}.csv row {number} is not a review of class 1 or 2; fetch it again")
        text = " ".join(" ".join(row[1:]).replace("\\n", " ").replace('\\"', '"').split())
        rows.append([str(int(row[0]) - 1), text])
    return labelled(rows, CLASSES, counts[split], path)


def prepared_reviews(name: str, split: str, root: Path | None = None) -> Texts:
    """Reviews of a prepared set: "yelp_polarity-pack", "yelp-standin" or "amazon-standin"; split is train or test."""
    columns, text, files = _PREPARED[name]
    check_split(split, tuple(files))
    file, n = files[split]
    found = sources.find(f"text/{file}.tsv.xz", root)
    if found is None:
        cure = f"set VARLEARN_DATA to the folder that holds it, or use {name.split('-')[0].split('_')[0]}_polarity"
        raise sources.missing(f"text/{file}.tsv.xz", root, cure)
    return labelled(prepared.rows(found, columns), CLASSES, n, found, text=text)


REVIEWS: dict[str, Callable[[str, Path | None], Texts]] = {
    "amazon-standin": partial(prepared_reviews, "amazon-standin"),
    "amazon_polarity": partial(review_polarity, "amazon"),
    "yelp-standin": partial(prepared_reviews, "yelp-standin"),
    "yelp_polarity": partial(review_polarity, "yelp"),
    "yelp_polarity-pack": partial(prepared_reviews, "yelp_polarity-pack"),
}
"""The sets of this module, by name."""
