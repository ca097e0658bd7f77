"""`varlearn prepare`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from varlearn.cli.missing_packages import require
from varlearn.cli.show import say

_EVERY = 5.0  # seconds between two lines of progress


def openwebtext(
    source: Annotated[list[Path], Parameter(negative="")],
    /,
    *,
    out: Path | None = None,
    processes: int | None = None,
    held_out: float = 0.0005,
    quiet: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Encode a text corpus in GPT-2's tokens.

    Args:
        source: files of the corpus, or folders that hold them.
        out: folder for train.bin and test.bin; where data.name=openwebtext finds them unless given.
        processes: how many; one per processor unless given.
        held_out: share of the documents in the test split.
        quiet: no progress.
    """
    from varlearn.data.corpus_preparation import prepare_corpus

    for path in source:
        _check_exists(path, "the files of the corpus, or their folder")
    require("tiktoken", "numpy")
    show = None if quiet else _reporter("tokens")
    with _resumable():
        made = prepare_corpus(source, out, processes=processes, held_out=held_out, progress=show)
    say(f"{made.documents:,} documents; tokens in train.bin {made.tokens['train']:,}, test.bin {made.tokens['test']:,}")
    _conclude(made.folder, made.new_tokens, "tokens", made.seconds, made.memory)
    return 0


def imagenet(
    source: Path,
    /,
    *,
    out: Path | None = None,
    processes: int | None = None,
    shorter_side: int | None = None,
    quiet: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Pack folders of images into shards.

    Args:
        source: folder with train and val.
        out: folder for the shards; where data.name=imagenet finds them unless given.
        processes: how many; one per processor unless given.
        shorter_side: make larger images smaller, to so many pixels on their shorter side; as they are unless given.
        quiet: no progress.
    """
    from varlearn.data.shard_preparation import prepare_images

    _check_exists(source, "the folder that holds train and val")
    require("PIL")
    show = None if quiet else _reporter("images")
    with _resumable():
        made = prepare_images(source, out, processes=processes, shorter_side=shorter_side, progress=show)
    say(", ".join(f"{count:,} images in {split}" for split, count in made.images.items()))
    _conclude(made.folder, made.new_images, "images", made.seconds, made.memory)
    return 0


def _check_exists(path: Path, cure: str) -> None:
    if not path.exists():
        raise ValueError(f"{path} does not exist; give {cure}")


@contextmanager
def _resumable() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        say("stopped; the same command goes on from here")
        raise


def _conclude(folder: Path, new: int, what: str, seconds: float, memory: int) -> None:
    if new:
        say(f"{new:,} {what} in {seconds:.0f} s, {new / seconds:,.0f} a second; at most {_mib(memory)} in a process")
    else:
        say("complete already; all checksums agree")
    print(folder)


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


def _reporter(what: str) -> Callable[[int, int, int], None]:
    """Print how far it is, at most every few seconds: in one place of a terminal, as lines elsewhere."""
    begun = last = time.monotonic()

    def show(done: int, total: int, count: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _EVERY:
            last = now
            words = f"{done / max(total, 1):.0%}, {count / (now - begun):,.0f} {what} a second"
            end = "\r" if sys.stderr.isatty() else "\n"
            print(f"{words:<60}", end=end, file=sys.stderr, flush=True)

    return show
