"""The tables and the plot of docs/performance.md, made from the figures on disk: `python -m benchmarks.page`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.bars import verdicts
from benchmarks.part import Part
from benchmarks.parts import PARTS
from benchmarks.results import FOLDER, REPO, Document, read
from benchmarks.tables import as_markdown, by_case, cells

PAGE = REPO / "docs" / "performance.md"
PLOT = REPO / "docs" / "performance.svg"
_UNMEASURED = "*Not measured yet: run `make bench`.*"
_MARKED = re.compile(r"(<!-- bench:(\w+) -->\n).*?(<!-- /bench -->)", flags=re.DOTALL)


def load(folder: Path = FOLDER) -> dict[str, Document]:
    """The documents of the parts that have been measured."""
    found = {name: read(folder / f"{name}.json") for name in PARTS}
    return {name: document for name, document in found.items() if document is not None}


def fill(page: str, documents: Mapping[str, Document]) -> str:
    """Replace what stands between the marks `bench:<name>` and `/bench`; the text around them is left alone."""

    def block(match: re.Match[str]) -> str:
        return f"{match[1]}{_block(match[2], documents)}\n{match[3]}"

    return _MARKED.sub(block, page)


def _block(name: str, documents: Mapping[str, Document]) -> str:
    if name == "bars":
        grid = verdicts(documents)
        return as_markdown(grid) if len(grid) > 1 else _UNMEASURED
    if name not in PARTS:
        raise ValueError(f"the mark bench:{name} must be 'bars' or one of {list(PARTS)}; correct the page")
    if name not in documents:
        return _UNMEASURED
    image = [f"![{PARTS[name].title}]({PLOT.name})"] if name == "scaling" else []
    return "\n\n".join([*image, *_tables(PARTS[name], documents[name]), _conditions(documents[name])])


def _tables(part: Part, document: Document) -> list[str]:
    return [
        f"**{case}**\n\n{as_markdown(cells(figures, part.columns))}"
        for case, figures in by_case(document["figures"]).items()
    ]


def _conditions(document: Document) -> str:
    where = document["environment"]
    return (
        f"<sub>{where['cpu']} ({where['instructions']}), {where['threads']} threads of {where['cores']} cores, "
        f"{where['memory_gib']} GiB; torch {where['torch']}, ivon-opt {where['ivon_opt']}, {where['compiler']}; "
        f"load {where['load_average']} at the start; {where['date']}, `{where['command']}`</sub>"
    )


def plot(document: Document, path: Path = PLOT) -> None:
    """Cost per parameter against the number of parameters, both logarithmic, a line per contender."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "varlearn"  # the same figures give the same file
    from matplotlib import pyplot

    lines: dict[str, tuple[list[float], list[float]]] = {}
    for figure in document["figures"]:
        sizes, costs = lines.setdefault(figure["contender"], ([], []))
        sizes.append(figure["parameters"])
        costs.append(figure["ns_per_parameter"])
    drawing, axes = pyplot.subplots(figsize=(8.0, 4.2), layout="constrained")
    for name, (sizes, costs) in lines.items():
        axes.plot(sizes, costs, marker="o", label=name, linestyle="-" if name.startswith("varlearn") else "--")
    axes.set(xscale="log", yscale="log", xlabel="parameters", ylabel="sample + step, ns per parameter")
    axes.grid(which="both", alpha=0.25)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))  # beside the lines, which are everywhere
    drawing.savefig(path, metadata={"Date": None})
    pyplot.close(drawing)


def refresh(documents: Mapping[str, Document], page: Path = PAGE, picture: Path = PLOT) -> Sequence[Path]:
    """Rewrite the page, and the plot where the figures for it are there; returns what was written."""
    page.write_text(fill(page.read_text(encoding="utf-8"), documents), encoding="utf-8")
    if "scaling" not in documents:
        return [page]
    plot(documents["scaling"], picture)
    return [page, picture]


if __name__ == "__main__":
    for written in refresh(load()):
        print(f"wrote {written.relative_to(REPO)}")
