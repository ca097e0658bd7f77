"""What people can look at of training examples: pictures, texts and rows of tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from varlearn import data
from varlearn.data.examples import Examples
from varlearn.data.stored_images import StoredImages
from varlearn.data.tokenizers import tokenizer
from varlearn.train.analysis import LETTERS, image_content
from varlearn.train.config import Run


def training_contents(
    run: Run, examples: Examples, rows: Sequence[int], ids: Sequence[int], root: Path | None = None
) -> list[dict[str, Any]]:
    """Of each training example "png" (base64), "text" or "row"; nothing where there is nothing to show.

    Args:
        run: the run.
        examples: its training examples.
        rows: places in `examples`; of a text to be continued, windows.
        ids: their numbers in the training split of the data set.
        root: where the data are.

    >>> from varlearn.train.config import Data
    >>> examples = Examples(torch.zeros(2, 3), torch.zeros(2), (), "table")
    >>> training_contents(Run(data=Data("uci-yacht")), examples, [1], [1])
    [{'row': [0.0, 0.0, 0.0]}]
    """
    inputs, tokens = examples.inputs, run.data.tokens
    match examples.kind:
        case "image":
            if isinstance(inputs, StoredImages):
                return [image_content(pixels) for pixels in inputs.decode(torch.tensor(list(rows)))]
            return [image_content(inputs[row]) for row in rows]
        case "table":
            assert isinstance(inputs, Tensor)
            return [{"row": [round(value, 4) for value in inputs[row].tolist()]} for row in rows]
        case "text":
            texts = data.texts(run.data.name, "train", root)
            seconds = texts.seconds or [""] * len(texts.texts)
            joined = [f"{texts.texts[i]} | {seconds[i]}" if seconds[i] else texts.texts[i] for i in ids]
            return [{"text": one[:LETTERS]} for one in joined]
        case "tokens" if tokens == "bytes" or tokens == "gpt2":
            assert isinstance(inputs, Tensor)
            coder, context = tokenizer(tokens, (), 0, root), run.data.context
            windows = [inputs[row * context : (row + 1) * context].tolist() for row in rows]
            return [{"text": coder.decode(window)[:LETTERS]} for window in windows]
    return [{} for _ in rows]
