"""A finetuned network of a run as a folder that Hugging Face's `from_pretrained` reads."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from varlearn import posterior
from varlearn.files.atomic import writing
from varlearn.models.pretrained import pretrained
from varlearn.posterior.binding import check_fits, write_into
from varlearn.train.pretrained_folder import pretrained_folder
from varlearn.train.run_errors import RunFolderError
from varlearn.train.run_folder import RunFolder


def export_pretrained(out: str | Path, folder: str | Path) -> Path:
    """Write the network of a finished run, at the posterior's mean, with its tokenizer and its posterior.

    The folder then has `config.json`, `model.safetensors`, the tokenizer's files and `posterior.safetensors`: what
    `from_pretrained` reads, what `model.path` of another run may be, and what is merged.

    Args:
        out: the run's folder; its network must be "pretrained".
        folder: to be made; empty or absent.

    Returns:
        The folder.
    """
    from transformers import AutoTokenizer

    source, target = RunFolder(Path(out)), Path(folder)
    run = source.read_run()
    if run.model.name != "pretrained":
        raise ValueError(
            f"model.name={run.model.name!r} is no pretrained transformer, which alone can be exported; its weights are "
            f"in {source.posterior}"
        )
    if not source.posterior.exists():
        raise RunFolderError(f"{source.posterior} is missing: the run is not finished; train or resume it first")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RunFolderError(f"{target} is in use; give another folder, or remove it")
    start, learned = pretrained_folder(run.model.path), posterior.load(source.posterior)
    with torch.random.fork_rng(devices=[]):
        model = pretrained(start, run.model.classes, run.model.head_dropout)
        if any(learned.mean[name].shape != value.shape for name, value in model.named_parameters()):  # a regression
            model = pretrained(start, 1, run.model.head_dropout)
    check_fits(learned, model)
    write_into(model, {**(learned.fixed or {}), **learned.mean})
    unfinished = target.with_name(f"{target.name}.unfinished")
    with writing(target):
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        model.save_pretrained(unfinished)  # type: ignore[operator]
        AutoTokenizer.from_pretrained(start).save_pretrained(unfinished)
        shutil.copyfile(source.posterior, unfinished / source.posterior.name)
        if target.exists():
            target.rmdir()
        unfinished.rename(target)
    return target
