"""Flags of settings: full names for short ones, and suggestions for wrong ones."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache

COMMANDS = ("train", "sweep")  # those that take the settings of a run

# Other usual words. A word that is the last part of one setting alone, such as lr, needs no row.
SYNONYMS = {
    "alpha": "optim.lr",
    "batch": "data.batch_size",
    "data": "data.name",
    "dataset": "data.name",
    "h0": "optim.hess_init",
    "lam": "optim.ess",
    "lambda": "optim.ess",
    "learning_rate": "optim.lr",
    "max_steps": "train.steps",
    "method": "optim.name",
    "model": "model.name",
    "momentum": "optim.beta1",
    "network": "model.name",
    "num_epochs": "train.epochs",
    "optim": "optim.name",
    "optimizer": "optim.name",
    "scheduler": "train.schedule",
    "warmup_steps": "train.warmup",
    "wd": "optim.weight_decay",
}


@lru_cache
def setting_names() -> tuple[str, ...]:
    """Every setting of a run by its full name.

    >>> "optim.lr" in setting_names(), "seed" in setting_names()
    (True, False)
    """
    from varlearn.cli.overrides import dotted_names

    return tuple(dotted_names())


def full_names(word: str) -> list[str]:
    """The settings that a word may stand for.

    >>> full_names("lr"), full_names("learning-rate"), full_names("samples")
    (['optim.lr'], ['optim.lr'], ['optim.samples', 'evaluate.samples'])
    """
    word = word.replace("-", "_")
    if word in setting_names():
        return [word]
    if word in SYNONYMS:
        return [SYNONYMS[word]]
    return [name for name in setting_names() if name.rpartition(".")[2] == word]


def expanded(words: Iterable[str]) -> list[str]:
    """The words of a command with the full names of settings: `--lr 1` becomes `--optim.lr 1`.

    >>> expanded(["digits-ivon", "--lr=1", "--no-augment", "--out", "x"])
    ['digits-ivon', '--optim.lr=1', '--data.no-augment', '--out', 'x']
    """
    result = []
    for word in words:
        flag, equals, value = word.partition("=")
        negative = flag.startswith("--no-")
        names = full_names(flag[5 if negative else 2 :]) if flag.startswith("--") else []
        if len(names) > 1:
            several = " or ".join(f"--{name}" for name in names)
            raise ValueError(f"{flag} may mean {several}; write one of them")
        if names:
            section, _, leaf = names[0].rpartition(".")
            flag = f"--{section}.{'no-' if negative else ''}{leaf}"
        result.append(f"{flag}{equals}{value}")
    return result


def suggestion(flag: str, own: Iterable[str]) -> str | None:
    """The flag that was probably meant.

    >>> suggestion("--train.lr", []), suggestion("--optim.lrr", []), suggestion("--ouut", ["--out"])
    ('--optim.lr', '--optim.lr', '--out')
    """
    name = flag.partition("=")[0].lstrip("-").replace("-", "_")
    same = full_names(name.rpartition(".")[2])
    if same:
        return f"--{same[0]}"
    candidates = [*(f"--{known}" for known in setting_names()), *own]
    leaves = [*(known.rpartition(".")[2] for known in setting_names()), *SYNONYMS]
    near = get_close_matches(f"--{name}", candidates, n=1, cutoff=0.75)
    near = near or get_close_matches(name.rpartition(".")[2], leaves, n=1, cutoff=0.75)
    if near and not near[0].startswith("--"):
        return f"--{full_names(near[0])[0]}"
    return near[0] if near else None
