"""The model card of a merged model."""

from __future__ import annotations

from typing import Any

from varlearn.merging.merge_plan import MergePlan
from varlearn.merging.tensor_merge import CURVED

_SETTINGS = {"ties": ("density",), "dare": ("density", "seed"), "regmean": ("gram_shrinkage",)}


def merge_card(plan: MergePlan, record: dict[str, Any]) -> str:
    """Markdown: what was merged, how, and what was kept; with the header that Hugging Face's Hub reads."""
    method = plan.settings.method
    numbers = {"alpha": record["alpha"], **{name: record[name] for name in _SETTINGS.get(method, ())}}
    if method == "hessian":
        numbers["h_0"] = "of the base" if plan.base_hess is None and plan.base.hess else plan.base_hess or 0.0
    rows = [
        f"| {one['path']} | {one['weight']:g} | {_curvature(one['origin']) if method in CURVED else ''} |"
        for one in record["models"]
    ]
    kept = [f"- `{name}`: {reason}" for name, reason in record["kept"].items()]
    lines = [
        "---",
        "library_name: transformers",
        "tags:",
        "- merge",
        "- varlearn",
        "---",
        "",
        "# A merged model",
        "",
        f"Made with `varlearn merge`, method `{method}`, from the base `{record['base']['path']}`. "
        f"{record['merged']} tensors were merged, {len(kept)} are the base's.",
        "",
        "| model | weight | curvature |",
        "|---|---|---|",
        *rows,
        "",
        ", ".join(f"{name} {value}" for name, value in numbers.items()) + f". Dtypes: {', '.join(record['dtypes'])}.",
        "",
        *(["Kept from the base:", "", *kept, ""] if kept else []),
        "Settings, inputs and checksums are in `merge.json`. Configuration and tokenizer are the base's. "
        "Scores of this model have not been measured.",
        "",
    ]
    return "\n".join(lines)


def _curvature(origin: dict[str, Any]) -> str:
    sizes = [f"{name} {origin[name]:g}" for name in ("n", "batch_size") if name in origin]
    return ", ".join([f"{origin.get('curvature')} per {origin.get('per')}", *sizes])
