"""Rehearse data at the paper's scale on generated data: `python -m benchmarks.large_data --out FOLDER`.

A corpus of 1 GB is made of the words of the Brown corpus, at their frequencies, with 50,000 merges that were learned
from it, so that tokens have GPT-2's sizes. `prepare openwebtext` encodes it, and one epoch's first batches are read.
Photographs of 500 x 375 pixels are generated, packed, and decoded from the folder and from shards, by threads and by
processes. The figures are printed, and written to `large_data.json` in the folder. What is there is not made again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.fresh import measured

MERGES = 50_000


def write_corpus(path: Path, size: int) -> None:
    """Documents of some hundred words, drawn at the frequencies of the Brown corpus; a tenth of them new words."""
    from varlearn.data.corpora import brown

    counts = Counter(re.findall(r"\S+", brown("train")))
    words, weights, source = list(counts), list(counts.values()), random.Random(0)
    drawn, written = source.choices(words, weights, k=2_000_000), 0
    with path.open("w", encoding="utf-8") as file:
        while written < size:
            start, count = source.randrange(len(drawn) - 1_000), source.randrange(100, 900)
            body = drawn[start : start + count]
            for place in range(source.randrange(10), count, 10):  # names and numbers that no list of words has
                body[place] = f"{source.choice(words)[:3]}{source.choice(words)[:4]}{source.randrange(1_000)}"
            written += file.write(" ".join(body) + "\n<|endoftext|>")


def write_merges(path: Path, corpus: Path) -> None:
    """Learn the merges from 20 MB of the corpus, and write them as GPT-2's `vocab.bpe`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    coder = Tokenizer(models.BPE())
    coder.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    coder.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer: Any = trainers.BpeTrainer(vocab_size=MERGES + 256, initial_alphabet=alphabet, show_progress=False)
    with corpus.open(encoding="utf-8") as file:
        coder.train_from_iterator(file.read(20_000_000).split("<|endoftext|>"), trainer)
    merges = json.loads(coder.to_str())["model"]["merges"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in merges), encoding="utf-8")


def text(folder: Path, size: int, processes: int) -> dict[str, Any]:
    """Prepare the corpus, and read it as training does, each in a fresh process, whose memory is its own."""
    corpus, merges = folder / "corpus.txt", folder / "gpt2" / "vocab.bpe"
    if not corpus.exists():
        write_corpus(folder / "corpus.part", size)
        os.replace(folder / "corpus.part", corpus)
    if not merges.exists():
        write_merges(merges, corpus)
    facts: dict[str, Any] = {"bytes": corpus.stat().st_size, "processes": processes}
    for part in ("prepare", "read"):
        arguments = "--out", str(folder.resolve()), "--processes", str(processes), "--only", part
        facts |= measured("large_data", *arguments)
    return facts


def prepare(folder: Path, processes: int) -> dict[str, Any]:
    """`varlearn prepare openwebtext`."""
    from varlearn.data import bpe
    from varlearn.data.corpus_preparation import prepare_corpus
    from varlearn.data.sources import Published

    bpe.MERGES = Published("gpt2/vocab.bpe", None)
    made = prepare_corpus([folder / "corpus.txt"], folder / "openwebtext", processes=processes, root=folder)
    return {
        "documents": made.documents,
        "tokens": made.tokens,
        "tokens_now": made.new_tokens,
        "seconds": made.seconds,
        "tokens_per_second": made.new_tokens / made.seconds,
        "peak_mib_per_process": made.memory / 2**20,
    }


def read(folder: Path) -> dict[str, Any]:
    """100 batches of 20 windows of 1,024 tokens. Pages of the mapped file count as memory of the process."""
    from varlearn.data import Batches, load
    from varlearn.data.worker_processes import peak_memory

    batches = Batches(load("openwebtext", "train", folder), 20, shuffle=True, context=1024)
    begin, before = time.perf_counter(), peak_memory()
    for number, _ in enumerate(batches.epoch(0)):
        if number == 99:
            break
    return {
        "training_tokens_per_second": 100 * 20 * 1024 / (time.perf_counter() - begin),
        "training_reader_mib": (peak_memory() - before) / 2**20,
    }


def write_photographs(folder: Path, count: int) -> None:
    """Images of ImageNet's usual size and of about 110 kB, ten classes."""
    import numpy as np
    from PIL import Image

    source = np.random.default_rng(0)
    for number in range(count):
        coarse = Image.fromarray(source.integers(0, 256, (24, 32, 3), dtype=np.uint8))
        image = np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC)).astype(np.int16)
        image = (image + source.normal(0, 9, image.shape)).clip(0, 255).astype(np.uint8)
        path = folder / "train" / f"n{number % 10:08d}" / f"{number}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path, quality=90)


def images(folder: Path, count: int, processes: int) -> list[dict[str, Any]]:
    """Decode the photographs as training does, from files and from shards."""
    import torch

    from varlearn.data import Batches
    from varlearn.data.examples import Examples
    from varlearn.data.image_folder import ImageFiles
    from varlearn.data.image_shards import read_shards
    from varlearn.data.shard_preparation import prepare_images

    source = folder / f"photographs-{count}"
    if not source.exists():
        write_photographs(folder / "photographs.part", count)
        os.replace(folder / "photographs.part", source)
    rows: list[dict[str, Any]] = []
    for name, side in (("shards", None), ("shards, shorter side 256", 256)):
        made = prepare_images(source, folder / f"{name}-{count}", processes=processes, shorter_side=side)
        rate = made.new_images / made.seconds
        rows.append({"what": f"pack {name}", "images_per_second": rate, "peak_mib": made.memory / 2**20})
    files = tuple(sorted(source.rglob("*.JPEG")))
    stores = {"folder": ImageFiles(files)}
    for name in ("shards", "shards, shorter side 256"):
        stores[name] = read_shards(folder / f"{name}-{count}", "train", 224)[0]
    for name, inputs in stores.items():
        for loaders in (0, processes):
            os.environ["VARLEARN_LOADERS"] = str(loaders)
            examples = Examples(inputs, torch.zeros(count, dtype=torch.long), ("a",), "image", mirror=True)
            begin, seen = time.perf_counter(), 0
            for batch, _ in Batches(examples, 50, shuffle=True, augment=True).epoch(0):
                seen += len(batch)
            who = f"{loaders} processes" if loaders else "threads"
            rows.append({"what": f"decode {name}, {who}", "images_per_second": seen / (time.perf_counter() - begin)})
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rehearsal."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_data", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--megabytes", type=int, default=1_000)
    parser.add_argument("--images", type=int, default=2_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", choices=("prepare", "read"), help="one part of the text, as JSON")
    given = parser.parse_args(arguments)
    if given.only is not None:
        found = prepare(given.out, given.processes) if given.only == "prepare" else read(given.out)
        print(json.dumps(found))
        return 0
    given.out.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    results: dict[str, Any] = {
        "processors": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()
    }
    for name, run in (
        ("images", lambda: images(given.out, given.images, given.processes)),
        ("text", lambda: text(given.out, given.megabytes * 1_000_000, given.processes)),
    ):
        results[name] = run()
        print(json.dumps(results[name], indent=1), flush=True)
    results["seconds"] = time.perf_counter() - begin
    (given.out / "large_data.json").write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
