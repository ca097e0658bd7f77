"""OpenWebText (Gokaslan and Cohen, 2019) or another large corpus, as `varlearn prepare openwebtext` has written it."""

from __future__ import annotations

import json
from pathlib import Path

from varlearn.data import own_files, sources
from varlearn.data.corpus_preparation import FOLDER, PREPARED, SPLITS
from varlearn.data.errors import CorruptDataError
from varlearn.data.examples import Examples
from varlearn.data.imageset import check_split


def openwebtext(split: str, root: Path | None = None) -> Examples:
    """A corpus in GPT-2's tokens, mapped into memory: no process reads it whole. The test split is documents held out.

    Args:
        split: train or test.
        root: see `sources.folders`.
    """
    check_split(split, SPLITS)
    place = f"{FOLDER}/{split}.bin"
    path = sources.find(place, root)
    if path is None:
        raise sources.missing(
            place, root, "make it from the files of the corpus: varlearn prepare openwebtext FOLDER_OR_FILES"
        )
    facts = path.with_name(PREPARED)
    try:
        count = json.loads(facts.read_text(encoding="utf-8"))["tokens"][split]
    except (OSError, ValueError, KeyError, TypeError):
        cure = "run varlearn prepare openwebtext again"
        raise CorruptDataError(f"{path} has no readable {PREPARED} beside it; {cure}") from None
    if path.stat().st_size != 2 * count:
        raise CorruptDataError(
            f"{path} has {path.stat().st_size:,} bytes, not two for each of {count:,} tokens; remove its folder and "
            "run varlearn prepare openwebtext again"
        )
    return own_files.token_file(str(path.with_name("{split}.bin")), split)
