"""`ensemble.json`: which runs an ensemble is made of, and how they are weighted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from varlearn.files.checked_json import read_json, write_json
from varlearn.files.formats import entry, rebuilding
from varlearn.methods.ensemble_label import label_of_members
from varlearn.train.config import Run, from_json, to_json

Weighting = Literal["equal", "validation", "loo"]
WEIGHTINGS: tuple[str, ...] = get_args(Weighting)


@dataclass(frozen=True)
class Member:
    """A component of the ensemble's posterior.

    Attributes:
        folder: of the run that it came from, as it was given.
        sha256: of that run's posterior.
        run: its settings.
    """

    folder: str
    sha256: str
    run: Run


@dataclass(frozen=True)
class Ensemble:
    """What `ensemble.json` holds.

    Attributes:
        members: the components.
        weighting: "equal", or what the weights were learned from: "validation" or "loo".
        weights: of the components, summing to 1; empty until they are known.
        held_out_nll: NLL of the equal and of the learned mixture on the data that taught the weights.
    """

    members: tuple[Member, ...]
    weighting: Weighting = "equal"
    weights: tuple[float, ...] = ()
    held_out_nll: dict[str, float] | None = None

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the members' methods."""
        return tuple(member.run.optim.name for member in self.members)

    @property
    def label(self) -> str:
        """How tables write it."""
        return label_of_members(self.methods)

    def same_request(self, other: Ensemble) -> bool:
        """Whether both were asked for by the same command, on the same posteriors."""
        mine, theirs = ([member.sha256 for member in one.members] for one in (self, other))
        return (mine, self.weighting) == (theirs, other.weighting)


def write_ensemble(path: Path, ensemble: Ensemble) -> None:
    """Write the file, with its checksum."""
    members = [
        {"folder": member.folder, "sha256": member.sha256, "config": json.loads(to_json(member.run))}
        for member in ensemble.members
    ]
    write_json(
        path,
        {
            "members": members,
            "weighting": ensemble.weighting,
            "weights": list(ensemble.weights),
            "held_out_nll": ensemble.held_out_nll,
        },
    )


def read_ensemble(path: Path) -> Ensemble:
    """Read the file and verify its checksum.

    Raises:
        CorruptFileError: if it is damaged.
    """
    values = read_json(path)
    with rebuilding(path, "an ensemble"):
        members: list[Any] = entry(path, values, "members", list, "the ensemble")
        return Ensemble(
            tuple(Member(one["folder"], one["sha256"], from_json(json.dumps(one["config"]))) for one in members),
            values["weighting"],
            tuple(values["weights"]),
            values["held_out_nll"],
        )
