"""Which extra of varlearn brings a package that is not installed."""

from __future__ import annotations

from importlib.util import find_spec

EXTRAS = {
    "PIL": "data",
    "accelerate": "transformers",
    "cycler": "plot",
    "cyclopts": "cli",
    "lightning": "lightning",
    "matplotlib": "plot",
    "numpy": "data",
    "optuna": "sweep",
    "peft": "peft",
    "rich": "cli",
    "scipy": "data",
    "sklearn": "demo",
    "tensorboard": "log",
    "tiktoken": "data",
    "transformers": "transformers",
    "trl": "trl",
}


def missing_package(module: str, what: str = "this command") -> str:
    """What to say about a module that cannot be imported.

    >>> missing_package("matplotlib.pyplot")
    "this command needs matplotlib, which is not installed; pip install 'varlearn[plot]'"
    """
    package = module.partition(".")[0]
    wanted = f"'varlearn[{EXTRAS[package]}]'" if package in EXTRAS else package
    return f"{what} needs {package}, which is not installed; pip install {wanted}"


def require(*packages: str) -> None:
    """Refuse to start a command that would later miss one of the packages.

    >>> require("json")
    """
    for package in packages:
        try:
            found = find_spec(package) is not None
        except ValueError:  # a module in sys.modules without a spec
            found = False
        if not found:
            raise ModuleNotFoundError(missing_package(package))
