"""Images in shards: .tar files that WebDataset reads too, with an index that finds each image without searching."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from varlearn.data.errors import CorruptDataError
from varlearn.data.shard_preparation import INDEX, PREPARED
from varlearn.data.stored_images import StoredImages

_CURE = "run varlearn prepare imagenet again, with another --out or this folder removed"


@dataclass(frozen=True, eq=False)
class ImageShards(StoredImages):
    """Images of shards that are decoded when a batch asks for them.

    Attributes:
        shards: the .tar files.
        places: of each image: number of the shard, first byte, number of bytes; int64 (N, 3).
        size: side of the decoded square.
    """

    shards: tuple[Path, ...]
    places: Tensor
    size: int = 224

    def __len__(self) -> int:
        """Number of images."""
        return len(self.places)

    def __getitem__(self, index: slice | Tensor) -> ImageShards:
        """Fewer images, still not decoded."""
        return replace(self, places=self.places[index])

    def opened(self, number: int) -> tuple[IO[bytes], str]:
        """An image's bytes, and where they are."""
        shard, start, count = self.places[number].tolist()
        with self.shards[shard].open("rb") as file:
            file.seek(start)
            return io.BytesIO(file.read(count)), f"the image at byte {start:,} of {self.shards[shard]}"


def read_shards(folder: Path, split: str, size: int) -> tuple[ImageShards, Tensor, tuple[str, ...]]:
    """The images of a split, their classes' numbers, and the classes' names.

    Args:
        folder: with `prepared.json`.
        split: "train" or "val".
        size: side of the decoded square.

    Raises:
        CorruptDataError: something is missing or has another size than when it was written.
    """
    import numpy as np

    try:
        facts: dict[str, Any] = json.loads((folder / PREPARED).read_text(encoding="utf-8"))
        shards, classes = facts["shards"][split], tuple(facts["classes"])
        with np.load(folder / INDEX, allow_pickle=False) as index:
            places, labels = torch.from_numpy(index[f"{split}_places"]), torch.from_numpy(index[f"{split}_labels"])
    except KeyError:
        raise CorruptDataError(f"{folder} has no shards of {split}; {_CURE}") from None
    except (OSError, ValueError) as error:
        raise CorruptDataError(f"{folder / PREPARED} or {INDEX} cannot be read ({error}); {_CURE}") from error
    paths = tuple(folder / shard["name"] for shard in shards)
    for path, shard in zip(paths, shards, strict=True):
        found = path.stat().st_size if path.is_file() else 0
        if found != shard["bytes"]:
            raise CorruptDataError(f"{path} has {found:,} bytes, not {shard['bytes']:,}; {_CURE}")
    return ImageShards(paths, places, size), labels, classes
