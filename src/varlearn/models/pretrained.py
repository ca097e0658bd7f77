"""Pretrained transformers as text classifiers, from a folder that Hugging Face's `from_pretrained` reads."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

PADDING = 0  # fills short texts up; every other number is that of the model's own token, plus one
NOISE = 0.5  # variance of a regression's noise: then the loss is the squared error, as is usual for STS-B
_ROUND = 8  # lengths of batches are multiples of this, so that few shapes occur
_HEAD_DROPOUTS = ("classifier_dropout", "cls_dropout", "seq_classif_dropout")  # BERT and RoBERTa, DeBERTa, DistilBERT


def pretrained(path: str, outputs: int = 2, head_dropout: float | None = None, regression: bool = False) -> nn.Module:
    """A transformer with a new last layer, which reads the tokens that `varlearn.data` makes with `tokens="model"`.

    The result is the Hugging Face model itself, with its own names of the weights, so that its posterior can be merged,
    and loaded into a model of `from_pretrained`. Called with one tensor of tokens (B, T), padded with 0 at the end, it
    returns logits; called with `input_ids=...` it does what it always does. Weights that the folder lacks, as the last
    layer, are drawn from torch's global generator.

    Args:
        path: a folder with `config.json` and weights, or a name on the Hugging Face Hub.
        outputs: number of classes; 1 for a regression.
        head_dropout: dropout before the last layer; None for the model's own.
        regression: return (mean, variance), with the variance 1/2, of which the loss is the squared error.
    """
    from transformers import AutoConfig, AutoModelForSequenceClassification

    with _quiet():
        try:
            config = AutoConfig.from_pretrained(path, num_labels=outputs)
            if head_dropout is not None:
                for name in _HEAD_DROPOUTS:
                    setattr(config, name, head_dropout)
            model = AutoModelForSequenceClassification.from_pretrained(path, config=config, dtype=torch.float32)
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ValueError(
                f"model.path={path!r} holds no text model that can be loaded ({reason}); give the folder of a model "
                "that from_pretrained reads, or the name of an installed package that has one"
            ) from error
    return reads_tokens(model, regression)


def reads_tokens(model: nn.Module, regression: bool = False) -> nn.Module:
    """Make a Hugging Face text classifier read a single tensor of tokens as `varlearn.data` makes it; returns it.

    Args:
        model: with a `config`; its parameters and their names stay.
        regression: return (mean, variance) in the place of an object with logits.

    >>> class Echo(nn.Module):
    ...     config = type("Config", (), {"pad_token_id": 1, "type_vocab_size": 1})
    ...
    ...     def forward(self, input_ids, attention_mask):
    ...         return input_ids, attention_mask
    >>> reads_tokens(Echo())(torch.tensor([[6, 3, 0, 0]]))  # tokens 5 and 2, and padding
    (tensor([[5, 2, 1, 1]]), tensor([[1, 1, 0, 0]]))
    """
    config: Any = model.config

    def unfold(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) != 1 or kwargs:
            return None
        tokens = _trimmed(args[0])
        mask = tokens != PADDING
        ids = torch.where(mask, tokens - 1, config.pad_token_id or 0)
        given = {"input_ids": ids, "attention_mask": mask.long()}
        if getattr(config, "type_vocab_size", 0) > 1:
            given["token_type_ids"] = _second_text(ids, mask)
        return (), given

    model.register_forward_pre_hook(unfold, with_kwargs=True)
    if regression:
        model.register_forward_hook(_with_noise)
    return model


def _trimmed(tokens: Tensor) -> Tensor:
    """Without the columns at the end that are padding in all rows."""
    used = int((tokens != PADDING).any(0).sum())
    return tokens[:, : max(1, min(tokens.shape[1], -(-used // _ROUND) * _ROUND))]


def _second_text(ids: Tensor, mask: Tensor) -> Tensor:
    """1 where a token belongs to the second text of a pair, which begins behind the first separator.

    Models with such numbers, which are BERT and its kin, end every row with a separator, so that the last token is one.
    """
    last = mask.sum(1, keepdim=True).sub(1).clamp(min=0)
    ends = (ids == ids.gather(1, last)).long()
    return ((ends.cumsum(1) - ends > 0) & mask).long()


def _with_noise(_: nn.Module, args: Any, result: Any) -> Any:
    mean = result.logits if hasattr(result, "logits") else result
    return mean, torch.full_like(mean, NOISE)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from reporting that the last layer is new, which is always so."""
    from transformers.utils import logging as reports

    level, bars = reports.get_verbosity(), reports.is_progress_bar_enabled()
    reports.set_verbosity(logging.ERROR)
    reports.disable_progress_bar()
    try:
        yield
    finally:
        reports.set_verbosity(level)
        if bars:
            reports.enable_progress_bar()
