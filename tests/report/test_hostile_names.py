"""Names of runs, data sets, methods and settings that are HTML, SVG or TeX stay text on the page."""

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from varlearn.prediction import Predictions, load_predictions, save_predictions
from varlearn.report import write_report

HTML = "<script>a()<\\script><img src=x onerror=a()> \" onload='a()' ]]> &lt;"
TEX = "$\\frac{a}{$ _^ 100% \u202e --><iframe srcdoc=x>"


class Elements(HTMLParser):
    """Names and attributes of all elements."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile(folder: Path, name: str) -> Path:
    """The run with the name wherever a file or a user may put one."""
    config = json.loads((folder / "config.json").read_text())
    config |= {"recipe": name, "scale": name, "model": {"name": name}, "data": {"name": name, "ood": [name]}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "env.json").write_text(json.dumps({name: name}))
    metrics = json.loads((folder / "metrics.json").read_text())
    for kind in ("mean", "averaged"):
        metrics[kind]["ood"] = {name: metrics[kind]["ood"]["noise"]}
        metrics[kind] |= {"nll": name, name: name}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    found = load_predictions(folder / "predictions.safetensors")
    renamed: dict[str, Predictions] = {key.replace("noise", name.replace("/", " ")): one for key, one in found.items()}
    save_predictions(renamed, folder / "predictions.safetensors")
    return folder.rename(folder.with_name(name.replace("/", " ")))


@pytest.mark.parametrize(("name", "count"), [(HTML, 1), (TEX, 2)], ids=["html", "tex"])
def test_a_name_stays_text(name: str, count: int, folder: Path, tmp_path: Path) -> None:
    run = hostile(folder, name)
    page = write_report([run] * count, tmp_path / "report").read_text(encoding="utf-8")
    found = Elements()
    found.feed(page)
    found.close()
    assert not found.tags & {"script", "iframe", "object", "embed", "base", "form", "foreignobject"}
    assert not [key for key, _ in found.attributes if key.startswith("on") or key in ("srcdoc", "action", "formaction")]
    outside = [value for key, value in found.attributes if key in ("href", "src", "xlink:href") and value]
    assert [value for value in outside if not value.startswith(("#", "data:"))] == []
    assert name in found.text
