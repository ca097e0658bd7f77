"""Predictions in a few words, for `print` and for notebooks."""

from __future__ import annotations

from typing import Any

from varlearn.core.notebook import html_table

_TITLES = {
    "nll": "NLL",
    "accuracy": "accuracy",
    "ece": "ECE",
    "perplexity": "perplexity",
    "rmse": "RMSE",
    "coverage90": "coverage of 90% intervals",
}
_PERCENT = ("accuracy", "coverage90")


class ShortText:
    """Predictions that print their size, and their scores where they have targets."""

    def __repr__(self) -> str:
        title, rows = _facts(self)
        return f"{title}: {', '.join(f'{name} {value}' for name, value in rows)}"

    def _repr_html_(self) -> str:
        return html_table(*_facts(self))


def _facts(found: Any) -> tuple[str, list[tuple[str, str]]]:
    from varlearn.prediction.scores import score  # it needs the classes of predictions

    main = found.mean if hasattr(found, "mean") else found.log_probs
    unit = "tokens" if hasattr(found, "sequences") else "examples"
    rows = [("samples", str(len(found.sample_weights)))]
    if hasattr(found, "predictive_entropy"):
        rows.append(("mean entropy", f"{found.predictive_entropy.double().mean().item():.3g} nats"))
        rows.append(("of it from the weights", f"{found.mutual_information.double().mean().item():.3g} nats"))
    if hasattr(found, "epistemic"):
        rows.append(("std from the weights", f"{found.epistemic.double().mean().sqrt().item():.3g}"))
        rows.append(("std of the noise", f"{found.aleatoric.double().mean().sqrt().item():.3g}"))
    if found.targets is not None:
        scores = score(found)
        rows += [(_TITLES[key], _shown(key, scores[key])) for key in _TITLES if scores.get(key) is not None]
    return f"{type(found).__name__} of {len(main)} {unit}", rows


def _shown(key: str, value: float) -> str:
    return f"{100 * value:.1f}%" if key in _PERCENT else f"{value:.4g}"
