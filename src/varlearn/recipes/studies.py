"""Studies by name. Their modules need torch, and are imported when one is asked for."""

from __future__ import annotations

from importlib import import_module

from varlearn.recipes.scales import Scale
from varlearn.recipes.study import Study

STUDIES = ("shift", "samples", "entropy", "in-between", "figure1b", "figure1c", "figure2")


def study(name: str, scale: Scale = "small") -> Study:
    """A study by its name.

    >>> study("shift").table.title
    'Figure 7: shifted images, 15 corruptions at 5 severities'
    """
    match name:
        case "shift":
            return import_module("varlearn.recipes.shift_study").shift(scale)
        case "samples":
            return import_module("varlearn.recipes.samples_study").samples(scale)
        case "entropy":
            return import_module("varlearn.recipes.entropy_study").entropy(scale)
        case "in-between":
            return import_module("varlearn.recipes.in_between_study").in_between(scale)
        case "figure1b":
            return import_module("varlearn.recipes.curve_study").figure1b(scale)
        case "figure1c":
            return import_module("varlearn.recipes.curve_study").figure1c(scale)
        case "figure2":
            return import_module("varlearn.recipes.gpt2_study").figure2(scale)
    raise ValueError(f"{name!r} is not a study; choose one of {', '.join(STUDIES)}")
