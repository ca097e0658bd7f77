"""Texts cut into tokens as a pretrained model wants them."""

from __future__ import annotations

import torch

from varlearn.data.examples import Examples
from varlearn.data.text_sets import Texts

_SHIFT = 1  # 0 is padding here, whatever number the model has for it


def pretrained_tokens(texts: Texts, folder: str | None, context: int) -> Examples:
    """Texts as rows of a pretrained model's tokens, each plus one, padded with 0 at the end.

    Special tokens are included, and those between the texts of a pair. A pair that is too long loses tokens at the end
    of the longer text. `varlearn.models` has the network that reads this.

    Args:
        texts: single texts or pairs.
        folder: of the model, or its name on the Hugging Face Hub.
        context: the most tokens of a row, special ones among them.
    """
    from transformers import AutoTokenizer

    if not folder:
        raise ValueError(f"pretrained={folder!r} must be the folder of a model for tokens='model'")
    try:
        coder = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(
            f"model.path={folder!r} holds no tokenizer that can be loaded ({reason}); give the folder of a model, with "
            "its tokenizer, that from_pretrained reads"
        ) from error
    special = coder.num_special_tokens_to_add(pair=bool(texts.seconds))
    if context <= special:
        raise ValueError(f"context={context} must be more than the {special} special tokens of a row; 128 is usual")
    pair = (list(texts.seconds),) if texts.seconds else ()
    rows = coder(list(texts.texts), *pair, truncation=True, max_length=context)["input_ids"]
    numbers = [torch.tensor(row) + _SHIFT for row in rows]
    inputs = torch.nn.utils.rnn.pad_sequence(numbers, batch_first=True, padding_value=0)
    return Examples(inputs, texts.targets, texts.classes, "text", vocab=len(coder) + _SHIFT)
