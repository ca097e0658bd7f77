"""Where a pretrained model is: a folder, an installed package that has one, or a name on the Hugging Face Hub."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


def pretrained_folder(path: str) -> str:
    """What `from_pretrained` takes for `model.path`.

    Args:
        path: a folder; the name of an installed package that holds one model, which is not imported; or a name on the
            Hugging Face Hub, "owner/name", which transformers looks for in its cache and on the network.

    >>> pretrained_folder("FacebookAI/roberta-base")
    'FacebookAI/roberta-base'
    >>> pretrained_folder("")
    Traceback (most recent call last):
    ...
    ValueError: model.path='' names no pretrained model; give a folder, an installed package or a name such as \
'FacebookAI/roberta-base'
    """
    if not path:
        raise ValueError(
            f"model.path={path!r} names no pretrained model; give a folder, an installed package or a name such as "
            "'FacebookAI/roberta-base'"
        )
    if find_spec("transformers") is None:
        raise ModuleNotFoundError(
            'model.path needs transformers; install it with: pip install "varlearn[transformers]"', name="transformers"
        )
    folder = Path(path).expanduser()
    if folder.exists():
        if not (folder / "config.json").is_file():
            raise ValueError(f"model.path={path!r} has no config.json; give a folder that from_pretrained reads")
        return str(folder.resolve())
    if path.isidentifier():
        return str(_inside_package(path))
    if path.count("/") == 1 and not path.startswith((".", "/", "~")):
        return path
    raise ValueError(f"model.path={path!r} does not exist; give the folder of a model")


def _inside_package(name: str) -> Path:
    """The only folder of a package with a `config.json` beside weights."""
    spec = find_spec(name)
    places = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    configs = [config for place in places for config in sorted(place.rglob("config.json"))]
    found = [one.parent for one in configs if any(any(one.parent.glob(pattern)) for pattern in _WEIGHTS)]
    if len(found) != 1:
        what = f"a package with {len(found)} models" if spec else "no folder and no installed package"
        raise ValueError(f"model.path={name!r} is {what}; give the folder of a model, or install the package")
    return found[0]
