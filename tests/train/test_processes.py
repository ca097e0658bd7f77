"""Two processes over gloo: they agree, they make one large batch, and IVON's samples are two."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch.nn.functional import cross_entropy

from tests.train.test_training_loop import records
from tests.train.tiny import REPOSITORY, load, tiny_run
from varlearn import posterior
from varlearn.core import noise, update
from varlearn.posterior import DiagGaussian
from varlearn.prediction import calibrate
from varlearn.train import PeerError, Run, RunFolderError, WriteError, checkpoint, fit, to_json
from varlearn.train.build import build_batches, build_examples, build_model
from varlearn.train.processes import Processes, processes

pytestmark = pytest.mark.usefixtures("tiny_data")


def small(method: str, **train: Any) -> Run:
    """Half the batch for each of two processes."""
    run = tiny_run(method, **train)
    return replace(run, data=replace(run.data, batch_size=8))


IVON = small("ivon", schedule="constant")
ADAMW = small("adamw", accumulate=2, steps=7)
VALIDATED = replace(IVON, data=replace(IVON.data, validation=19))


class Outcome(NamedTuple):
    codes: list[int]
    weights: list[list[torch.Tensor]]  # of each rank, after each of its steps


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where scenarios ran: IVON; AdamW, stopped in one process and resumed; a full disk; IVON with validation."""
    folder = tmp_path_factory.mktemp("ranks")
    scenarios = [
        {"config": to_json(run), "out": str(folder / out), "resume": resume, "stop_at": stop_at, "full_at": full_at}
        for run, out, resume, stop_at, full_at in [
            (IVON, "ivon", False, None, None),
            (ADAMW, "adamw", False, 3, None),
            (ADAMW, "adamw", True, None, None),
            (replace(ADAMW, train=replace(ADAMW.train, checkpoint_every=2, eval_every=0)), "full", False, None, 3),
            (VALIDATED, "validated", False, 3, None),
            (VALIDATED, "validated", True, None, None),
            (VALIDATED, "straight", False, None, None),
        ]
    ]
    (folder / "scenarios.json").write_text(json.dumps(scenarios))
    command = [sys.executable, "-m", "tests.train.ranks", str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder


def outcome(folder: Path, number: int) -> Outcome:
    codes = json.loads((folder / "codes.json").read_text())[number]
    return Outcome(codes, [torch.load(folder / f"weights-{number}-{rank}", weights_only=True) for rank in range(2)])


def test_ivon_on_two_processes_averages_two_samples(folder: Path) -> None:
    codes, (first, second) = outcome(folder, 0)
    assert codes == [0, 0]
    assert len(first) == 18
    assert all(map(torch.equal, first, second))
    assert [line["step"] for line in records(folder / "ivon") if "eval" in line] == [6, 12, 18]

    # The first step by the paper: each process its own noise and batch, the mean of the products.
    examples = load("blobs", "train")
    torch.manual_seed(0)
    model = build_model(IVON, examples)
    params = list(model.parameters())
    before = [param.detach().clone() for param in params]
    grads, estimates = [], []
    for rank in range(2):
        inputs, targets = next(iter(build_batches(IVON, examples, train=True, rank=rank, world=2).epoch(0)))
        key = noise.derive_key(0, 0, replica=rank)
        drawn = [noise.normal_(torch.empty_like(param), noise.fold_in(key, n)) for n, param in enumerate(before)]
        sigma = [update.std(torch.full_like(param, 0.1), 96.0, 1e-3) for param in before]
        with torch.no_grad():
            for param, mean, std, normal in zip(params, before, sigma, drawn, strict=True):
                param.copy_(update.sample(mean, std, normal))
        grads.append(torch.autograd.grad(cross_entropy(model(inputs), targets), params))
        estimates.append(
            [update.hess_reparam(g, update.score(e, s)) for g, e, s in zip(grads[-1], drawn, sigma, strict=True)]
        )
    hyper = update.Hyper(0.5 * (0.1 + 1e-3), 96.0, 1e-3, 0.9, 0.99, float("inf"), 1.0 - 0.9)
    expected = [
        update.step(
            update.Gaussian(mean, torch.zeros_like(mean), torch.full_like(mean, 0.1)),
            (grads[0][n] + grads[1][n]) / 2,
            (estimates[0][n] + estimates[1][n]) / 2,
            hyper,
        ).mean
        for n, mean in enumerate(before)
    ]
    torch.testing.assert_close(first[0], torch.nn.utils.parameters_to_vector(expected), rtol=1e-4, atol=1e-6)


def test_all_stop_at_the_same_step_when_one_is_told(folder: Path) -> None:
    codes, (first, second) = outcome(folder, 1)
    assert codes == [143, 143]
    assert len(first) == len(second) == 5  # told in step 4, agreed in step 5


def test_adamw_on_two_processes_is_one_large_batch(folder: Path, tmp_path: Path) -> None:
    codes, (first, second) = outcome(folder, 2)
    assert codes == [0, 0]
    assert len(first) == 2  # steps 6 and 7
    assert all(map(torch.equal, first, second))
    fit(tiny_run("adamw", accumulate=2, steps=7), tmp_path / "one", progress=False)
    mean = posterior.load(tmp_path / "one" / "posterior.safetensors").mean
    names = [name for name, _ in build_model(ADAMW, load("blobs", "train")).named_parameters()]
    flat = torch.nn.utils.parameters_to_vector([mean[name] for name in names])
    torch.testing.assert_close(first[-1], flat, rtol=1e-3, atol=1e-5)
    together = [line["eval"] for line in records(folder / "adamw") if "eval" in line][-1]
    alone = [line["eval"] for line in records(tmp_path / "one") if "eval" in line][-1]
    assert together == pytest.approx(alone, rel=1e-3)


def test_validation_on_two_processes(folder: Path) -> None:
    assert outcome(folder, 5).codes == outcome(folder, 6).codes == [0, 0]
    lines = [line for line in records(folder / "straight") if "eval" in line]
    assert {line["split"] for line in lines} == {"validation"}
    learned = posterior.load(folder / "straight" / "posterior.safetensors")
    assert isinstance(learned, DiagGaussian)
    assert learned.origin.n == 96 - 19
    validation = build_examples(VALIDATED, "validation")
    model, batches = build_model(VALIDATED, validation), build_batches(VALIDATED, validation, train=False)
    assert learned.temperature == calibrate(model, learned, batches, samples=4, seed=0).temperature
    names = ("log.jsonl", "posterior.safetensors", "checkpoint/best.safetensors")
    straight, resumed = ([(folder / out / name).read_bytes() for name in names] for out in ("straight", "validated"))
    assert straight[:2] == resumed[:2]
    at_mean = [line["eval"]["nll"] for line in lines]
    assert checkpoint.read(folder / "straight" / names[2])["best"] == min(at_mean)


def test_when_one_cannot_write_all_stop_at_that_step(folder: Path) -> None:
    codes, (first, second) = outcome(folder, 3)
    assert codes == [WriteError.exit_code, PeerError.exit_code]
    assert len(first) == len(second) == 4  # the checkpoint of step 2 was written, that of step 4 was not
    assert "No space left on device" in (folder / "words-3-0").read_text()
    assert "process 1 stops because another failed" in (folder / "words-3-1").read_text()


def test_another_number_of_processes_is_refused(folder: Path) -> None:
    with pytest.raises(RunFolderError, match=r"made by 2 process\(es\) and would go on with 1.*start 2"):
        fit(ADAMW, folder / "adamw", resume=True, progress=False)


def test_alone() -> None:
    with processes("cpu") as mine:
        assert mine == Processes(0, 1, torch.device("cpu"))
        assert mine.writes
        mine.wait()


def test_a_restarted_group_does_not_meet_the_killed_processes() -> None:
    command = [sys.executable, "-m", "tests.train.restarts"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=600)
    assert json.loads(done.stdout) == [[[0, 2], [1, 2]]] * 3, done.stderr


def test_a_group_can_be_left_while_ddp_lives() -> None:
    command = [sys.executable, "-m", "tests.train.leaving"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=600)
    assert json.loads(done.stdout) == [40, 40], done.stderr
