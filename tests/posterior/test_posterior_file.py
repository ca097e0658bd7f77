import json
import math
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import nn

from varlearn.files import sealed
from varlearn.files.formats import FileFormatError
from varlearn.posterior import (
    CorruptFileError,
    DiagGaussian,
    KroneckerGaussian,
    LowRankGaussian,
    Mixture,
    Origin,
    Point,
    load,
    prune,
    save,
)
from varlearn.posterior.posterior_file import read_header

MEAN = {"w": torch.tensor([[1.0, -2.0]]), "b": torch.tensor([0.5])}
HESS = {"w": torch.tensor([[0.25, -0.001]]), "b": torch.tensor([3.0])}
DIAG = DiagGaussian(
    MEAN,
    HESS,
    ess={"w": 100.0, "b": 1e10},
    weight_decay={"w": 0.1, "b": 1e-6},
    prior_mean={"b": torch.ones(1)},
    fixed={"n": torch.tensor(4), "frozen": torch.ones(2, dtype=torch.bfloat16)},
    tied={"head": "w"},
)
LOW = LowRankGaussian(
    MEAN, {"w": torch.ones(1, 2), "b": torch.ones(1)}, {"w": torch.ones(2, 1, 2), "b": torch.ones(2, 1)}
)
ONE = torch.ones(1, 1)
KRON = KroneckerGaussian(
    MEAN, {"w": ONE, "b": ONE}, {"w": torch.eye(2), "b": ONE}, {"w": torch.rand(1, 2), "b": torch.rand(1)}
)
POSTERIORS = {
    "kronecker": KRON,
    "diag": DIAG,
    "diag without fixed": DiagGaussian(MEAN, HESS, ess=10.0, weight_decay=0.1),
    "diag with empty fixed": DiagGaussian(MEAN, HESS, ess=10.0, weight_decay=0.1, fixed={}),
    "cold diag": DIAG.at_temperature(0.25),
    "pruned": prune(DIAG, 0.5),
    "low rank": LOW,
    "point": Point(MEAN, fixed={"n": torch.tensor(4)}),
    "mixture": Mixture([DIAG, LOW, Point(MEAN)], weights=[0.5, 0.3, 0.2]),
    "many": Mixture([Point({"w": torch.tensor([float(number)])}) for number in range(12)]),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "posterior.safetensors"


@pytest.mark.parametrize("name", POSTERIORS)
def test_round_trip(path: Path, name: str) -> None:
    posterior = POSTERIORS[name]
    save(posterior, path)
    again = load(path)
    assert type(again) is type(posterior)
    for index in range(3):
        wanted, got = posterior.sample(seed=1, index=index), again.sample(seed=1, index=index)
        assert wanted.keys() == got.keys()
        assert all(torch.equal(wanted[key], got[key]) for key in wanted)
    first = path.read_bytes()
    save(again, path)
    assert path.read_bytes() == first  # nothing lost, nothing added


def test_a_gaussian_comes_back_in_all_its_parts(path: Path) -> None:
    save(DIAG, path)
    again = load(path)
    assert isinstance(again, DiagGaussian)
    assert (again.ess, again.weight_decay, again.tied) == (DIAG.ess, DIAG.weight_decay, DIAG.tied)
    assert torch.equal(again.hess["w"], DIAG.hess["w"])
    assert torch.equal(again.prior_mean["b"], torch.ones(1))
    assert again.fixed is not None
    assert (again.fixed["n"].item(), again.fixed["frozen"].dtype) == (4, torch.bfloat16)


def test_absent_and_empty_fixed_tensors_stay_apart(path: Path) -> None:
    for name, expected in (("diag without fixed", None), ("diag with empty fixed", {})):
        save(POSTERIORS[name], path)
        assert load(path).fixed == expected


def test_mixture_weights(path: Path) -> None:
    save(POSTERIORS["mixture"], path)
    assert load(path).weights == (0.5, 0.3, 0.2)


@pytest.mark.parametrize("temperature", [0.0, 0.25, 3.0])
def test_temperature_and_origin_are_kept(path: Path, temperature: float) -> None:
    origin = Origin("vadamw", "squared_gradient", n=1000.0, batch_size=50.0)
    diagonal = replace(DIAG, temperature=temperature, origin=origin)
    save(Mixture((diagonal, Point(DIAG.mean))), path)
    again = load(path)
    assert isinstance(again, Mixture)
    found = again.components[0]
    assert isinstance(found, DiagGaussian)
    assert (found.temperature, found.origin) == (temperature, origin)
    assert found.ess == DIAG.ess
    assert torch.equal(found.sample(seed=4)["w"], diagonal.sample(seed=4)["w"])


def test_a_file_of_version_1_has_temperature_1(path: Path) -> None:
    save(DIAG.at_temperature(0.5), path)
    tensors, metadata = sealed.read(path)
    for name in ("temperature", "per"):
        del metadata["posterior"][name]
    sealed.write(path, tensors, metadata)
    with pytest.raises(FileFormatError, match="has no entry 'temperature'"):
        load(path)
    sealed.write(path, tensors, metadata | {"format_version": 1})
    found = load(path)
    assert isinstance(found, DiagGaussian)
    assert (found.temperature, found.origin) == (1.0, Origin())


@pytest.mark.parametrize("name", ["diag", "point", "mixture"])
def test_the_header_is_read_without_the_tensors(path: Path, name: str) -> None:
    posterior = POSTERIORS[name]
    origin = Origin("vadamw", "squared_gradient", n=1000.0, batch_size=50.0)
    save(replace(posterior, origin=origin) if isinstance(posterior, DiagGaussian) else posterior, path)
    with safe_open(path, "pt") as file:
        header = read_header(path, file.metadata()["varlearn"])
    assert header.kind == type(posterior).__name__
    assert header.origin == (origin if name == "diag" else Origin())
    assert header.tied == ({"head": "w"} if name == "diag" else {})


def test_a_malformed_origin_is_named(path: Path) -> None:
    save(DIAG, path)
    tensors, metadata = sealed.read(path)
    metadata["posterior"]["curvature"] = "flat"
    sealed.write(path, tensors, metadata)
    with pytest.raises(FileFormatError, match="curvature='flat' must be one of ivon, fisher"):
        load(path)


@pytest.mark.parametrize(("key", "value"), [("ess", 7**500), ("temperature", 7**500), ("temperature", 1e308)])
def test_numbers_that_no_float_holds_are_refused(path: Path, key: str, value: float) -> None:
    save(DIAG, path)
    tensors, metadata = sealed.read(path)
    metadata["posterior"][key] = value
    sealed.write(path, tensors, metadata)
    with pytest.raises(FileFormatError, match=path.name):
        load(path)


def test_exact_bytes(path: Path) -> None:
    origin = Origin("ivon", "ivon", n=50)
    save(DiagGaussian({"w": torch.tensor([2.0])}, {"w": torch.tensor([0.5])}, 100.0, 0.25, origin=origin), path)
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    metadata = json.loads(header.pop("__metadata__")["varlearn"])
    assert len(metadata.pop("sha256")) == 64
    assert metadata == {
        "card": "DiagGaussian over 1 weights in 1 tensors, ess 100",
        "format": "varlearn.posterior",
        "format_version": 2,
        "posterior": {
            "kind": "DiagGaussian",
            "ess": 100.0,
            "weight_decay": 0.25,
            "temperature": 1.0,
            "method": "ivon",
            "curvature": "ivon",
            "per": "mean",
            "n": 50,
            "has_fixed": False,
            "tied": {},
        },
    }
    assert header == {
        "hess/w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
        "mean/w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
    }
    assert data[8 + size :] == struct.pack("<2f", 0.5, 2.0)


def test_the_bytes_do_not_depend_on_the_order_of_names(path: Path) -> None:
    save(DiagGaussian(MEAN, HESS, ess=1.0, weight_decay=0.1), path)
    first = path.read_bytes()
    turned = [dict(reversed(part.items())) for part in (MEAN, HESS)]
    save(DiagGaussian(*turned, ess=1.0, weight_decay=0.1), path)
    assert path.read_bytes() == first


def test_a_model_that_does_not_fit_is_refused(path: Path) -> None:
    save(Point({"weight": torch.zeros(1, 3), "extra": torch.zeros(1)}), path)
    with pytest.raises(ValueError, match="missing 'bias'; unexpected 'extra'; wrong shape: 'weight'"):
        load(path, nn.Linear(2, 1))
    save(Mixture([Point({"weight": torch.zeros(1, 2), "bias": torch.zeros(1)})]), path)
    load(path, nn.Linear(2, 1))
    with pytest.raises(ValueError, match="does not fit"):
        load(path, nn.Linear(3, 1))


def test_a_damaged_file_is_refused(path: Path) -> None:
    save(DIAG, path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match="damaged"):
        load(path)


def test_other_formats_and_versions_are_refused(path: Path) -> None:
    sealed.write(path, {}, {"format": "varlearn.predictions"})
    with pytest.raises(ValueError, match="format 'varlearn.predictions', not 'varlearn.posterior'"):
        load(path)
    sealed.write(path, {}, {"format": "varlearn.posterior", "format_version": 3})
    with pytest.raises(ValueError, match="format_version 3; this varlearn reads 1 and 2"):
        load(path)


def test_what_has_no_format_is_refused(path: Path) -> None:
    with pytest.raises(TypeError, match="object has no file format"):
        save(object(), path)  # type: ignore[arg-type]
    assert not path.exists()


def test_the_card_says_what_it_is(path: Path) -> None:
    assert repr(LOW) == "LowRankGaussian over 3 weights in 2 tensors, rank 2"
    assert repr(DIAG) == "DiagGaussian over 3 weights in 2 tensors, ess 100 and 1e+10"
    assert repr(POSTERIORS["many"]) == "Mixture of 12 (Point) over 1 weights in 1 tensors"
    save(DIAG, path, card="ResNet-20 on CIFAR-10, 200 epochs")
    assert sealed.read(path)[1]["card"] == "ResNet-20 on CIFAR-10, 200 epochs"


def test_pruned_weights_stay_exact(path: Path) -> None:
    save(POSTERIORS["pruned"], path)
    again = load(path)
    assert isinstance(again, DiagGaussian)
    assert {math.inf} == {value for hess in again.hess.values() for value in hess.flatten().tolist() if value > 100}
