"""Import paths of version 0.1 that have moved still work, with a warning."""

import importlib
import subprocess
import sys

import pytest

import varlearn.files.sealed
import varlearn.posterior
import varlearn.prediction
import varlearn.train

MOVED = {
    "varlearn.posterior.io": (varlearn.posterior, ("save", "load")),
    "varlearn.posterior.sealed": (varlearn.files.sealed, ("read", "write", "CorruptFileError")),
    "varlearn.predict": (varlearn.prediction, ("predict", "predict_tokens", "Predictions", "calibrate")),
    "varlearn.predict.io": (varlearn.prediction, ("save_predictions", "load_predictions")),
    "varlearn.train.errors": (varlearn.train, ("RunFolderError", "WriteError", "Interrupted", "PeerError")),
}


@pytest.mark.parametrize("path", MOVED)
def test_a_name_of_the_old_path_is_the_new_one_and_warns(path: str) -> None:
    new, names = MOVED[path]
    old = importlib.import_module(path)  # silently: tools import all modules
    for name in names:
        with pytest.warns(DeprecationWarning, match=rf"{path} goes .*; import {name} from {new.__name__}$"):
            assert getattr(old, name) is getattr(new, name)


@pytest.mark.parametrize("path", MOVED)
def test_other_names_are_refused_as_python_does(path: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{path}' has no attribute 'nonsense'"):
        _ = importlib.import_module(path).nonsense


def test_the_warning_points_at_the_user() -> None:
    with pytest.warns(DeprecationWarning, match="goes with version") as said:
        from varlearn.posterior.io import load  # noqa: F401
    assert said[0].filename == __file__


def test_the_name_predict_is_a_function_before_and_after_an_old_import() -> None:
    code = """
import warnings, torch, varlearn
from torch import nn
arguments = nn.Linear(1, 2, bias=False), varlearn.Point({"weight": torch.zeros(2, 1)}), [torch.ones(1, 1)]
before = varlearn.predict(*arguments).log_probs
assert varlearn.predict.__module__ == "varlearn.prediction.classifier"
warnings.simplefilter("ignore")
from varlearn.predict import predict
assert torch.equal(varlearn.predict(*arguments).log_probs, before)
assert torch.equal(predict(*arguments).log_probs, before)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
