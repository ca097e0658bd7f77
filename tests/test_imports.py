"""Which part of the package may import which, read off the source; and what `import varlearn` brings along.

The package is cut into components, the entries directly below `src/varlearn`. A component imports itself and what its
row names, nothing else. To add a component, add a row to `MAY_IMPORT` and, where it needs more than torch, one to
`THIRD_PARTY`.
"""

import ast
import json
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "varlearn"
SOURCES = sorted(PACKAGE.rglob("*.py"))

ROOT = "varlearn"  # the package's own __init__, which re-exports the public names
BASE = {"types", "core"}
LIBRARY = BASE | {"advice", "batchnorm", "files", "merging", "metrics", "optim", "posterior", "prediction", "presets"}
LIBRARY = LIBRARY | {"approximations", "sensitivities"}
ABOVE = LIBRARY | {"data", "models"}

MAY_IMPORT: dict[str, set[str]] = {
    "advice": set(),
    "types": set(),
    "core": set(),
    "metrics": set(),
    "files": {"core"},
    "presets": set(),
    "setting_checks": set(),
    "batchnorm": set(),
    "data": {"files"},
    "models": set(),
    "optim": {"core", "advice"},
    "posterior": BASE | {"files"},
    "prediction": BASE | {"files", "metrics", "posterior"},
    "predict": {"files", "prediction"},  # forwards old imports
    "merging": BASE | {"files", "optim", "posterior", "prediction"},
    "approximations": BASE | {"batchnorm", "optim", "posterior", "prediction"},
    "sensitivities": BASE | {"posterior", "prediction"},
    "methods": LIBRARY | {"setting_checks"},
    ROOT: LIBRARY | {"train", "fitting"},
    "integrations": LIBRARY,
    "report": LIBRARY | {"methods"},
    "train": ABOVE | {"methods", "setting_checks"},
    "fitting": ABOVE | {"methods", "setting_checks", "train", "report"},
    "sklearn": {"fitting", "setting_checks"},
    "recipes": ABOVE | {"methods", "train", "report"},
    "demo": ABOVE | {"methods", "train", "report", "recipes", ROOT},
    "cli": ABOVE | {"methods", "train", "report", "recipes", "demo", ROOT},
    "__main__": {"cli"},
}


class Needs(NamedTuple):
    """Third-party packages of a component; None stands for any that is an extra."""

    at_import: set[str] | None
    inside_functions: set[str] | None


TORCH = {"torch"}
STORED = {"torch", "safetensors"}
# Kernels of accelerators, and what launches them; `triton_engine` imports them where there is one.
NEED_TRITON = {
    f"optim/engine/triton/{name}.py"
    for name in (
        "block_kernels",
        "fold_launch",
        "ivon_kernels",
        "launching",
        "normal_kernels",
        "rule_launches",
        "sample_kernels",
        "sample_tables",
        "step_kernels",
        "triton_plan",
        "vadamw_kernels",
    )
}
THIRD_PARTY: dict[str, Needs] = {
    "advice": Needs(set(), set()),
    "files": Needs(STORED, STORED),
    "posterior": Needs(STORED, STORED),
    "prediction": Needs(STORED, None),
    "merging": Needs(STORED, None),
    "approximations": Needs(STORED, None),
    "sensitivities": Needs(STORED, None),
    "integrations": Needs(STORED, None),
    "setting_checks": Needs(set(), set()),
    "methods": Needs(set(), STORED),
    "report": Needs(None, None),
    "data": Needs(None, None),
    "models": Needs(STORED, None),
    "train": Needs(STORED, None),
    "fitting": Needs(STORED, None),
    "sklearn": Needs(None, None),
    "recipes": Needs(STORED, None),
    "demo": Needs(None, None),
    "cli": Needs(None, None),
    "__main__": Needs(set(), set()),
}
PLOTTING = {"matplotlib", "seaborn", "plotly"}  # the report's alone
DEVELOPMENT_ONLY = {"ivon", "curvlinops", "laplace", "torchmetrics", "hypothesis", "pytest", "torchvision"}
DEVELOPMENT_ONLY |= {"tests", "benchmarks", "soak"}
EXTRAS = {
    "PIL",
    "accelerate",
    "cleanlab",
    "cyclopts",
    "datasets",
    "dattri",
    "lightning",
    "matplotlib",
    "mergekit",
    "pandas",
    "peft",
    "rich",
    "scipy",
    "sklearn",
    "transformers",
    "triton",
    "trl",
}
ABSENT = DEVELOPMENT_ONLY | EXTRAS


class Import(NamedTuple):
    """One import: the dotted name, and whether it waits until a function is called or serves type checkers alone."""

    name: str
    lazy: bool
    line: int


class _Collector(ast.NodeVisitor):
    def __init__(self, package: list[str]) -> None:
        self.package, self.lazy, self.found = package, False, list[Import]()

    def _add(self, name: str, node: ast.stmt | ast.expr) -> None:
        self.found.append(Import(name, self.lazy, node.lineno))

    def _visit_lazily(self, nodes: list[ast.stmt]) -> None:
        before, self.lazy = self.lazy, True
        for node in nodes:
            self.visit(node)
        self.lazy = before

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._visit_lazily(node.body)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            self._visit_lazily(node.body)
            for other in node.orelse:
                self.visit(other)
        else:
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        parents = self.package[: len(self.package) - node.level + 1] if node.level else []
        module = ".".join([*parents, *([node.module] if node.module else [])])
        for alias in node.names:
            self._add(f"{module}.{alias.name}", node)

    def visit_Call(self, node: ast.Call) -> None:
        if ast.unparse(node.func) in ("import_module", "importlib.import_module", "__import__") and node.args:
            match node.args[0]:
                case ast.Constant(value=str(name)) if not name.startswith("."):
                    self._add(name, node)
                case _:
                    self._add("<computed>", node)
        self.generic_visit(node)


def imports_of(source: str, path: Path) -> list[Import]:
    """Every import in `source`, absolute, the file standing at `path` relative to the package."""
    collector = _Collector([ROOT, *path.parent.parts])
    collector.visit(ast.parse(source))
    return collector.found


def component_of(path: Path) -> str:
    """The component that the file at `path`, relative to the package, belongs to."""
    first = path.parts[0].removesuffix(".py")
    return ROOT if first == "__init__" else first


def violations(source: str, path: Path) -> list[str]:
    """Imports in `source` that the tables above forbid, each as a readable line."""
    component = component_of(path)
    needs = THIRD_PARTY.get(component, Needs(TORCH, TORCH))
    if path.as_posix() in NEED_TRITON:
        needs = Needs(TORCH | {"triton"}, TORCH)
    bad = []
    for name, lazy, line in imports_of(source, path):
        top, _, rest = name.partition(".")
        where = f"{path}:{line}: {component} imports {name}"
        if name == "<computed>":
            bad.append(f"{where}; write the module's name out so that this test can read it")
        elif top == ROOT:
            target = rest.split(".")[0]
            target = target if target in MAY_IMPORT else ROOT
            if target not in (component, *MAY_IMPORT[component]):
                bad.append(f"{where}; its row allows {sorted(MAY_IMPORT[component]) or 'no other component'}")
        elif top not in sys.stdlib_module_names:
            allowed = needs.inside_functions if lazy else needs.at_import
            if top in DEVELOPMENT_ONLY:
                bad.append(f"{where}, which is for development only")
            elif top in PLOTTING and component != "report":
                bad.append(f"{where}; only report draws")
            elif allowed is not None and top not in allowed:
                bad.append(f"{where} {'in a function' if lazy else 'at import'}; allowed there: {sorted(allowed)}")
    return bad


def test_every_component_has_a_row() -> None:
    unknown = {component_of(path.relative_to(PACKAGE)) for path in SOURCES} - MAY_IMPORT.keys()
    assert not unknown, f"add to MAY_IMPORT what {sorted(unknown)} may import"


def test_the_table_has_no_cycle_and_keeps_optim_and_posterior_apart() -> None:
    order = list(TopologicalSorter(MAY_IMPORT).static_order())  # raises CycleError
    assert set(order) == MAY_IMPORT.keys()

    def reach(component: str) -> set[str]:
        direct = MAY_IMPORT[component]
        return direct.union(*map(reach, direct)) if direct else set()

    assert "posterior" not in reach("optim")
    assert "optim" not in reach("posterior")
    assert reach("core") == reach("metrics") == set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_dependency_direction(path: Path) -> None:
    relative = path.relative_to(PACKAGE)
    if component_of(relative) not in MAY_IMPORT:
        pytest.skip("reported by test_every_component_has_a_row")
    assert not (found := violations(path.read_text(encoding="utf-8"), relative)), "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("optim/ivon.py", "from varlearn.posterior import DiagGaussian"),
        ("optim/ivon.py", "from varlearn import posterior"),
        ("optim/ivon.py", "from ..posterior.gaussian import DiagGaussian"),
        ("optim/ivon.py", "from .. import posterior"),
        ("optim/ivon.py", "def f():\n    import varlearn.posterior"),
        ("optim/ivon.py", "if TYPE_CHECKING:\n    from varlearn.posterior import Posterior"),
        ("optim/ivon.py", "importlib.import_module('varlearn.posterior')"),
        ("optim/ivon.py", "importlib.import_module(name)"),
        ("optim/__init__.py", "from ..posterior import x"),
        ("posterior/gaussian.py", "from varlearn.optim import IVON"),
        ("posterior/gaussian.py", "from varlearn import IVON"),
        ("posterior/gaussian.py", "import varlearn"),
        ("posterior/gaussian.py", "def f():\n    import numpy"),
        ("core/update.py", "from varlearn.types import Params"),
        ("core/update.py", "import numpy as np"),
        ("optim/engine/triton/triton_engine.py", "import triton"),
        ("core/update.py", "import safetensors.torch"),
        ("metrics/ood.py", "from varlearn.core.noise import normal_"),
        ("metrics/ood.py", "async def f():\n    import scipy.stats"),
        ("metrics/ood.py", "try:\n    import sklearn\nexcept ImportError:\n    pass"),
        ("prediction.py", "from varlearn.optim import IVON"),
        ("prediction.py", "import rich"),
        ("integrations/transformers.py", "import transformers"),
        ("train/training_loop.py", "from varlearn.recipes import digits"),
        ("train/training_loop.py", "def f():\n    import matplotlib.pyplot"),
        ("report/page.py", "from varlearn.train import training_loop"),
        ("methods/ivon.py", "import torch"),
        ("methods/ivon.py", "from varlearn.train import Run"),
        ("cli.py", "from ivon import IVON"),
        ("__init__.py", "from varlearn.cli import main"),
        ("__init__.py", "from .report import page"),
    ],
)
def test_a_forbidden_import_is_found(path: str, source: str) -> None:
    assert len(violations(source, Path(path))) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("optim/ivon.py", "import math\nimport torch\nfrom varlearn.core.update import x\nfrom .vogn import y"),
        (
            "posterior/posterior_file.py",
            "from safetensors.torch import save_file\nfrom ..types import Params\nfrom ..core import noise",
        ),
        ("prediction.py", "from .posterior import Point\ndef f():\n    import rich"),
        ("integrations/transformers.py", "class C:\n    def f(self):\n        import transformers"),
        ("report/page.py", "import matplotlib"),
        ("demo.py", "from sklearn.datasets import load_digits\nfrom varlearn import IVON"),
        ("__init__.py", "from .optim import IVON\nfrom .posterior import Point"),
    ],
)
def test_an_allowed_import_passes(path: str, source: str) -> None:
    assert violations(source, Path(path)) == []


def run_python(code: str) -> Any:
    """Run `code` in a fresh interpreter, warnings as errors, and return the JSON it prints."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def fresh_import() -> dict[str, list[str]]:
    """Modules that `import varlearn` adds to `import torch`, and the global settings that it changes."""
    return run_python("""
import json, logging, os, random, signal, sys, threading, warnings, torch

def settings():
    return {
        "torch's RNG": torch.get_rng_state().tolist(),
        "Python's RNG": repr(random.getstate()),
        "default dtype": str(torch.get_default_dtype()),
        "default device": str(torch.get_default_device()),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "grad mode": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul precision": torch.get_float32_matmul_precision(),
        "environment": dict(os.environ),
        "sys.path": list(sys.path),
        "warning filters": repr(warnings.filters),
        "log handlers": (repr(logging.root.handlers), logging.root.level),
        "signals": repr([signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]),
        "Python threads": threading.active_count(),
    }

modules, before = set(sys.modules), settings()
import varlearn
for name in varlearn.__all__:  # they are imported when they are first used
    getattr(varlearn, name)
after = settings()
added = {name.partition(".")[0] for name in set(sys.modules) - modules}
print(json.dumps({
    "added": sorted(added - set(sys.stdlib_module_names)),
    "changed": [name for name in before if before[name] != after[name]],
}))
""")


def test_import_loads_nothing_beyond_torch_and_safetensors(fresh_import: dict[str, list[str]]) -> None:
    assert set(fresh_import["added"]) <= {"varlearn", "torch", "safetensors"}


@pytest.mark.parametrize("module", ["varlearn", "varlearn.train"])
def test_names_are_imported_when_they_are_first_used(module: str) -> None:
    found = run_python(f"""
import json, sys
import {module} as module
early = "torch" in sys.modules
missing = sorted(set(module.__all__) - set(dir(module)))
wrong = [name for name in module.__all__ if getattr(module, name) is None]
print(json.dumps([early, missing, wrong, "torch" in sys.modules, hasattr(module, "nonsense")]))
""")
    assert found == [False, [], [], True, False]


def test_import_changes_no_global_setting(fresh_import: dict[str, list[str]]) -> None:
    assert fresh_import["changed"] == []


def test_the_library_imports_without_any_extra() -> None:
    relatives = [path.relative_to(PACKAGE) for path in SOURCES]
    names = [
        ".".join([ROOT, *path.with_suffix("").parts]).removesuffix(".__init__")
        for path in relatives
        if component_of(path) in LIBRARY and path.as_posix() not in NEED_TRITON
    ]
    loaded = run_python(f"""
import json, sys
from importlib import import_module

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
for name in {names!r}:
    import_module(name)
print(json.dumps(sorted(set(sys.modules) & {ABSENT!r})))
""")
    assert loaded == []
