"""Saved runs into one run: a deep ensemble, Multi-IVON, Multi-SWAG, or any other mixture."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from varlearn import posterior
from varlearn.files.atomic import remove_orphans, writing
from varlearn.files.checked_json import write_json
from varlearn.posterior import DiagGaussian, Mixture
from varlearn.posterior.binding import check_fits
from varlearn.posterior.discrete import components
from varlearn.prediction import mixing_weights, target_log_probs
from varlearn.sensitivities import sensitivity
from varlearn.train.build import build_batches, build_examples, build_method, build_model
from varlearn.train.config import Run, to_json
from varlearn.train.ensemble_file import WEIGHTINGS, Ensemble, Member, Weighting, read_ensemble, write_ensemble
from varlearn.train.evaluate import AVERAGED, VALIDATION, Saved, load_run_predictions, predict_task, sources_of
from varlearn.train.run_errors import RunFolderError
from varlearn.train.run_folder import RunFolder
from varlearn.train.tasks import task_of

SMALLEST = 1e-6  # a member whose learned weight is below this is left out

# What the members of an ensemble must have in common: a mixture predicts the same examples with the same network.
SHARED = {
    "model": ("name", "classes", "hidden"),
    "data": ("name", "subset", "validation", "context", "tokens"),
}


def ensemble(
    runs: Sequence[str | Path],
    out: str | Path,
    *,
    weights: Weighting = "equal",
    progress: bool | None = None,
    device: torch.device | str | None = None,
    root: Path | None = None,
) -> Path:
    r"""Make one run of several finished ones: the mixture $q = \sum_k w_k q_k$ of their posteriors.

    A mixture of points is a deep ensemble, one of IVON's Gaussians Multi-IVON, one of SWAG's Multi-SWAG; methods may
    differ. The folder has the files of a run, so that `predict_run`, `score_run` and reports take it, and
    `ensemble.json`, which names the members with the checksums of their posteriors. Called again, it goes on where it
    stopped. The members' folders are only read, and not needed afterwards.

    Args:
        runs: folders of finished runs, or of ensembles, which are dissolved into their members.
        out: folder for the ensemble.
        weights: "equal"; "validation" learns them by the NLL of the mixture on the validation examples that the members
            held out; "loo" by the members' leave-one-out estimates on their training examples, which needs Gaussian
            posteriors of a classification. Members whose weight tends to 0 are left out.
        progress: show bars; None: in a terminal.
        device: where to compute learned weights; None for a GPU if there is one.
        root: where the data are; None for the usual places.

    Returns:
        The path of `posterior.safetensors`.

    Raises:
        RunFolderError: if a run is not finished, or `out` holds something else.
        ValueError: if the members differ in network or data, by name.
    """
    if weights not in WEIGHTINGS:
        raise ValueError(f"weights={weights!r} must be one of {', '.join(WEIGHTINGS)}; 'equal' is usual")
    given = [Path(one) for one in runs]
    _check_given(given)
    wanted = Ensemble(tuple(member for one in given for member in _members(one)), weights)
    _check_shared(wanted)
    learned = [_posterior(one) for one in given]
    Mixture(learned)  # refuses posteriors over other weights
    folder = RunFolder(Path(out))
    known = _known(folder, wanted)
    if known is not None and known.weights and folder.posterior.exists():
        return folder.posterior
    run = replace(wanted.members[0].run, recipe=f"ensemble of {wanted.members[0].run.recipe}")
    shares, nlls = _weights(weights, given, learned, run, progress, device, root)
    kept = [place for place, share in enumerate(shares) if share >= SMALLEST]
    mixture = Mixture([learned[place] for place in kept], [shares[place] for place in kept])
    members = tuple(member for place in kept for member in _members(given[place]))
    made = replace(wanted, members=members, weights=mixture.weights, held_out_nll=nlls)
    with writing(folder.out):
        folder.out.mkdir(parents=True, exist_ok=True)
    with folder.locked():
        remove_orphans(folder.out)
        write_json(folder.config, json.loads(to_json(run)))
        with writing(folder.posterior):
            posterior.save(mixture, folder.posterior, card=f"{made.label}: {run.model.name} on {run.data.name}")
        write_ensemble(folder.ensemble, made)
    return folder.posterior


def _members(folder: Path) -> tuple[Member, ...]:
    """The components that a run contributes; those of an ensemble are its own members."""
    place = RunFolder(folder)
    run = place.read_run()
    if not place.posterior.exists():
        raise RunFolderError(f"{place.posterior} is missing: the run is not finished; train or resume it first")
    digest = hashlib.sha256(place.posterior.read_bytes()).hexdigest()
    if place.ensemble.exists():
        inner = read_ensemble(place.ensemble)
        return tuple(Member(str(folder), f"{digest}/{number}", one.run) for number, one in enumerate(inner.members))
    return (Member(str(folder), digest, run),)


def _posterior(folder: Path) -> Saved:
    return posterior.load(RunFolder(folder).posterior)


def _check_given(given: Sequence[Path]) -> None:
    if len(given) < 2:
        raise ValueError(f"{len(given)} run given, an ensemble needs at least 2; train further seeds with --seed")
    seen: dict[Path, Path] = {}
    for one in given:
        if one.resolve() in seen:
            raise ValueError(f"{one} is given twice; give each run once, members count equally unless weights= says")
        seen[one.resolve()] = one


def _check_shared(wanted: Ensemble) -> None:
    """Refuse members that differ in network or data, or whose methods change the network in different ways."""
    first, *others = wanted.members
    for other in others:
        for section, names in SHARED.items():
            for name in names:
                mine, theirs = (getattr(getattr(one.run, section), name) for one in (first, other))
                if mine != theirs:
                    raise ValueError(
                        f"{other.folder} has {section}.{name}={theirs!r} and {first.folder} has {mine!r}; members of "
                        "an ensemble must have the same network and data, leave one of them out"
                    )
        if _prepared(first.run) != _prepared(other.run):
            raise ValueError(
                f"{other.folder} was trained by {other.run.optim.name} and {first.folder} by {first.run.optim.name}, "
                "which change the network in different ways; members of an ensemble must have the same network, leave "
                "one of them out"
            )


def _prepared(run: Run) -> str:
    """What the method of a run makes of a small network: equal words mean that it changes networks in the same way."""
    probe = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.Flatten(), nn.Linear(1, 1))
    return repr(build_method(run).prepare(probe))


def _known(folder: RunFolder, wanted: Ensemble) -> Ensemble | None:
    """The ensemble that the folder holds; refuses a folder with anything else."""
    if folder.out.exists() and not folder.out.is_dir():
        raise RunFolderError(f"out={str(folder.out)!r} is a file; an ensemble needs a folder, choose another name")
    if folder.ensemble.exists():
        known = read_ensemble(folder.ensemble)
        asked = {member.sha256 for member in wanted.members}
        same = known.weighting == wanted.weighting and {member.sha256 for member in known.members} <= asked
        if not same or (known.weighting == "equal" and len(known.members) != len(asked)):
            raise RunFolderError(f"{folder.out} holds another ensemble, {known.label}; choose another folder")
        return known
    begun = {folder.config.name, folder.posterior.name}  # the file that makes it an ensemble is written last
    if folder.out.exists() and any(entry.name[:1] != "." and entry.name not in begun for entry in folder.out.iterdir()):
        raise RunFolderError(
            f"out={str(folder.out)!r} is not empty, and what is in it is no ensemble; choose an empty folder"
        )
    return None


def _weights(
    rule: Weighting,
    given: Sequence[Path],
    learned: Sequence[Saved],
    run: Run,
    progress: bool | None,
    device: torch.device | str | None,
    root: Path | None,
) -> tuple[list[float], dict[str, float] | None]:
    """The weights of the given runs, and the NLL of the equal and of the learned mixture on what taught them."""
    equal = torch.full((len(given),), 1.0 / len(given), dtype=torch.float64)
    if rule == "equal":
        return equal.tolist(), None
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if rule == "validation":
        if not run.data.validation:
            raise ValueError(
                "weights='validation' needs validation examples, and the runs have data.validation=0; train them with "
                "--data.validation 0.1, or use weights='loo'"
            )
        rows = [_on_validation(one, q, device, progress, root) for one, q in zip(given, learned, strict=True)]
    else:
        rows = [_left_out(one, q, device, root) for one, q in zip(given, learned, strict=True)]
    log_probs = torch.stack(rows).double()
    found = mixing_weights(log_probs)

    def nll(shares: Tensor) -> float:
        return -(log_probs + shares.log()[:, None]).logsumexp(0).mean().item()

    return found.tolist(), {"equal": nll(equal), "learned": nll(found)}


def _on_validation(
    folder: Path, learned: Saved, device: torch.device, progress: bool | None, root: Path | None
) -> Tensor:
    """log p of the validation targets, as the run has predicted them, or predicted now."""
    place = RunFolder(folder)
    run = place.read_run()
    if place.predictions.exists():
        known = load_run_predictions(folder).get(VALIDATION, {})
        if AVERAGED in known:
            return target_log_probs(known[AVERAGED])
    examples = build_examples(run, VALIDATION, root)
    with torch.random.fork_rng(devices=[]):
        model = build_model(run, examples).to(device)
    source = sources_of(run, model, learned.to(device), place.members)[AVERAGED]
    batches = build_batches(run, examples, train=False)
    found = predict_task(task_of(examples), model, source, batches, run.evaluate.samples, run.seed, progress)
    return target_log_probs(found)


def _left_out(folder: Path, learned: Saved, device: torch.device, root: Path | None) -> Tensor:
    """log p of each training target without its example, to first order; see `varlearn.sensitivity`."""
    run = RunFolder(folder).read_run()
    examples = build_examples(run, "train", root)
    if task_of(examples) != "classification":
        raise ValueError(f"weights='loo' is for classification, and {run.data.name} is not; use weights='validation'")
    rows = []
    for share, component in components(learned):
        if not isinstance(component, DiagGaussian):
            raise ValueError(
                f"weights='loo' needs posteriors with a diagonal variance, and {folder} has a "
                f"{type(component).__name__}; use weights='validation'"
            )
        with torch.random.fork_rng(devices=[]):
            model = build_model(run, examples).to(device).eval()
        check_fits(component, model)
        ess = max(component.ess.values())
        at_n = component.at_temperature(ess / len(examples)).to(device)  # the equation holds for ess = n
        found = sensitivity(model, at_n, build_batches(run, examples, train=False))
        rows.append(torch.tensor(share).double().log() - found.loo_loss.double())
    return torch.stack(rows).logsumexp(0)
