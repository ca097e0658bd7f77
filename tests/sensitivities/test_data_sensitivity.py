"""Deviations against dense Jacobians, leave-one-out against refitting, and what is refused. All in float64."""

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import varlearn
from varlearn.models.frn import FilterResponseNorm
from varlearn.models.gru import gru
from varlearn.posterior import DiagGaussian, Mixture
from varlearn.sensitivities import example_deviation
from varlearn.sensitivities.example_deviation import ExampleDeviation

CLASSES = 3


class Encoder(nn.Module):
    """A transformer encoder layer between an embedding and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 8)
        self.layer = nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layer(self.tokens(tokens)).mean(1))


class Tied(nn.Module):
    """Two layers that share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


def images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), FilterResponseNorm(4), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, CLASSES)
    )


def case(name: str) -> tuple[nn.Module, Tensor]:
    """A network in float64 and inputs for five examples."""
    torch.manual_seed(0)
    tokens = torch.randint(1, 11, (5, 6))
    match name:
        case "mlp":
            found = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, CLASSES)), torch.randn(5, 4).double()
        case "cnn":
            found = images(), torch.randn(5, 2, 4, 4).double()
        case "gru":
            found = gru(CLASSES, vocab=11, embedding=3, hidden=4), tokens
        case "transformer":
            found = Encoder(), tokens
        case _:
            found = Tied(), torch.randn(5, 4).double()
    return found[0].double().eval(), found[1]


NETWORKS = ["mlp", "cnn", "gru", "transformer", "tied"]
LABELS = torch.tensor([0, 2, 1, 1, 0])


def posterior_of(model: nn.Module, offset: float = 0.0) -> DiagGaussian:
    """A Gaussian with a different variance for every weight; its mean is `offset` away from the model."""
    generator = torch.Generator().manual_seed(1)
    mean = {name: value.detach() + offset for name, value in model.named_parameters()}
    hess = {name: 0.2 + torch.rand(value.shape, generator=generator).to(value) for name, value in mean.items()}
    return DiagGaussian(mean, hess, ess=20.0, weight_decay=0.1)


def dense_jacobians(model: nn.Module, posterior: DiagGaussian, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """f (N, C), J (N, C, P) and sigma^2 (P,), by plain backward passes over a copy of the model at the mean."""
    model = copy.deepcopy(model)
    model.load_state_dict(dict(posterior.mean), strict=False)
    params = [dict(model.named_parameters())[name] for name in posterior.mean]
    outputs, rows = [], []
    for i in range(len(inputs)):
        f = model(inputs[i : i + 1])[0]
        outputs.append(f.detach())
        grads = [torch.autograd.grad(value, params, retain_graph=True) for value in f]
        rows.append(torch.stack([torch.cat([part.flatten() for part in grad]) for grad in grads]))
    variance = torch.cat([posterior.std[name].flatten() for name in posterior.mean]).square()
    return torch.stack(outputs), torch.stack(rows), variance


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_deviation_is_that_of_the_dense_jacobian(name: str, diagonal: bool) -> None:
    model, inputs = case(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    posterior = posterior_of(model, offset=0.01)
    f, jacobian, variance = dense_jacobians(model, posterior, inputs)
    v = (jacobian * variance) @ jacobian.transpose(1, 2)  # (N, C, C)
    e = f.softmax(-1) - F.one_hot(LABELS, CLASSES)
    expected = v.diagonal(dim1=1, dim2=2) * e if diagonal else (v @ e.unsqueeze(-1)).squeeze(-1)
    found = varlearn.sensitivity(model, posterior, [(inputs, LABELS)], diagonal=diagonal)
    torch.testing.assert_close(found.outputs, f, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found.error, e, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found.deviation, expected, rtol=1e-10, atol=1e-10)
    assert expected.abs().max() > 1e-2
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_the_tensors_that_go_with_the_weights_are_the_posteriors() -> None:
    model, inputs = case("cnn")
    other = copy.deepcopy(model)
    other[2].running_mean += 1.0  # type: ignore[index, operator]
    learned = posterior_of(other)
    carrying = dataclasses.replace(learned, fixed={name: value.clone() for name, value in other.named_buffers()})
    found = varlearn.sensitivity(model, carrying, [(inputs, LABELS)])
    expected = varlearn.sensitivity(other, learned, [(inputs, LABELS)])
    torch.testing.assert_close(found.deviation, expected.deviation)
    assert not torch.allclose(expected.outputs, varlearn.sensitivity(model, learned, [(inputs, LABELS)]).outputs)


def test_frozen_weights_stay_the_models_own_and_do_not_vary() -> None:
    model, inputs = case("mlp")
    whole = posterior_of(model)
    hess = {name: torch.full_like(h, torch.inf) if name.startswith("0.") else h for name, h in whole.hess.items()}
    certain = varlearn.sensitivity(model, dataclasses.replace(whole, hess=hess), [(inputs, LABELS)])
    for parameter in model[0].parameters():  # type: ignore[index]
        parameter.requires_grad_(False)
    head = {name: value for name, value in whole.mean.items() if name.startswith("2.")}
    partial = DiagGaussian(head, {name: whole.hess[name] for name in head}, ess=20.0, weight_decay=0.1)
    found = varlearn.sensitivity(model, partial, [(inputs, LABELS)])
    torch.testing.assert_close(found.deviation, certain.deviation)


def test_what_follows_from_the_deviation() -> None:
    model, inputs = case("mlp")
    found = varlearn.sensitivity(model, posterior_of(model), [(inputs, LABELS)])
    p = found.outputs.softmax(-1)
    slope = torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)
    shift = (slope @ found.deviation.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(found.probs, p)
    torch.testing.assert_close(found.probability_shift, shift)
    torch.testing.assert_close(found.score, shift.abs().sum(-1))
    torch.testing.assert_close(found.loo_probs, (found.outputs + found.deviation).softmax(-1))
    torch.testing.assert_close(found.loo_loss, -found.loo_probs.gather(1, LABELS[:, None]).squeeze(1).log())
    torch.testing.assert_close(found.loss, -p.gather(1, LABELS[:, None]).squeeze(1).log())
    assert (found.loo_loss > found.loss).all()  # V is positive definite: the loss rises along V e
    paper = varlearn.sensitivity(model, posterior_of(model), [(inputs, LABELS)], score="paper")
    torch.testing.assert_close(paper.score, found.deviation.abs().sum(-1))


def test_scores_go_by_name() -> None:
    model, inputs = case("mlp")
    q = posterior_of(model)
    found = varlearn.sensitivity(model, q, [(inputs, LABELS)])
    for what, values in (("probability", found.probability_shift), ("paper", found.deviation)):
        for norm, order in (("", 1.0), ("_l2", 2.0), ("_max", float("inf"))):
            score: Any = what + norm
            other = varlearn.sensitivity(model, q, [(inputs, LABELS)], score=score)
            torch.testing.assert_close(other.score, torch.linalg.vector_norm(values, order, dim=1))
            torch.testing.assert_close(other.paper_score, found.deviation.abs().sum(1))
            torch.testing.assert_close(other.probability_score, found.score)


def test_a_network_that_predicts_its_variance_has_the_gradient_of_its_own_loss() -> None:
    class MeanVariance(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            out = self.layer(x)
            return out[:, :1], F.softplus(out[:, 1:])

    torch.manual_seed(0)
    model, inputs, y = MeanVariance().double(), torch.randn(5, 4).double(), torch.randn(5).double()
    found = varlearn.sensitivity(model, posterior_of(model), [(inputs, y)])
    mean, variance = model(inputs)
    loss = F.gaussian_nll_loss(mean.squeeze(1), y, variance.squeeze(1), full=True, reduction="none", eps=0.0)
    torch.testing.assert_close(found.loss, loss.detach())
    f = found.outputs.clone().requires_grad_()
    own = F.gaussian_nll_loss(f[:, 0], y, f[:, 1].exp(), full=True, reduction="sum", eps=0.0)
    torch.testing.assert_close(found.error, torch.autograd.grad(own, f)[0])
    assert (found.loo_loss > found.loss).all()


@pytest.mark.parametrize("noise_variance", [1.0, 0.5])
@pytest.mark.parametrize("shape", [(8, 1), (8,)])
def test_leave_one_out_of_ridge_regression_with_an_orthogonal_design(
    noise_variance: float, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(3)
    x = torch.linalg.qr(torch.randn(8, 3).double())[0] * torch.tensor([3.0, 2.0, 1.0])
    y, decay = torch.randn(8, 1).double(), 0.3

    def fitted(x: Tensor, y: Tensor) -> Tensor:
        """argmin of sum (f - y)^2 / (2 s^2) + decay |w|^2 / 2."""
        return torch.linalg.solve(x.T @ x / noise_variance + decay * torch.eye(3).double(), x.T @ y / noise_variance)

    model = nn.Sequential(nn.Linear(3, 1, bias=False), *([nn.Flatten(0)] if len(shape) == 1 else [])).double()
    hess = (x.T @ x / noise_variance).diagonal()[None] / 8  # of the mean loss
    posterior = DiagGaussian({"0.weight": fitted(x, y).T}, {"0.weight": hess}, ess=8.0, weight_decay=decay / 8)
    found = varlearn.sensitivity(model, posterior, [(x, y.reshape(shape))], noise_variance=noise_variance)
    others = [[j for j in range(8) if j != i] for i in range(8)]
    refitted = torch.cat([x[i : i + 1] @ fitted(x[rest], y[rest]) for i, rest in enumerate(others)])
    torch.testing.assert_close(found.refitted_outputs, refitted, rtol=1e-10, atol=1e-10)
    v = ((x * posterior.std["0.weight"]) ** 2).sum(1, keepdim=True)
    first_order = x @ fitted(x, y) + v * (x @ fitted(x, y) - y) / noise_variance
    torch.testing.assert_close(found.loo_outputs, first_order, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found.loo_loss, (first_order - y).square().squeeze(1) / (2 * noise_variance))
    torch.testing.assert_close(found.score, found.deviation.abs().squeeze(1))


@pytest.mark.parametrize("name", ["mlp", "gru"])
def test_neither_chunks_nor_batches_change_the_results(name: str) -> None:
    model, inputs = case(name)
    posterior = posterior_of(model)
    whole = varlearn.sensitivity(model, posterior, [(inputs, LABELS)])
    chunked = varlearn.sensitivity(model, posterior, [(inputs, LABELS)], chunk=2)
    batched = varlearn.sensitivity(model, posterior, DataLoader(TensorDataset(inputs, LABELS), batch_size=3), chunk=1)
    for other in (chunked, batched):
        assert other.ids.tolist() == [0, 1, 2, 3, 4]
        for field in ("targets", "outputs", "error", "deviation", "score"):
            torch.testing.assert_close(getattr(other, field), getattr(whole, field), rtol=1e-12, atol=1e-12)


def test_chunks_are_bounded_by_the_memory_of_the_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = case("mlp")
    gradients = 8 * sum(value.numel() for value in model.parameters())
    activations = 8 * (4 + 6)  # the inputs of the two linear layers; tanh keeps its output, which is the second
    size = 2 * gradients + 2 * activations + 4 * 8 * CLASSES  # of one example
    compute = ExampleDeviation(model, posterior_of(model), lambda f, _: f)
    assert compute.chunk(inputs) == 64
    monkeypatch.setattr(example_deviation, "_CHUNK_BYTES", 4 * size)
    assert compute.chunk(inputs) == 4
    monkeypatch.setattr(example_deviation, "_CHUNK_BYTES", size // 2)
    assert compute.chunk(inputs) == 1


@pytest.mark.parametrize("name", NETWORKS)
def test_examples_run_together_in_two_forward_passes_after_one_that_measures_memory(name: str) -> None:
    model, inputs = case(name)
    calls: list[int] = []
    model.register_forward_hook(lambda *_: calls.append(1))
    varlearn.sensitivity(model, posterior_of(model), [(inputs, LABELS)])
    assert len(calls) == 3


def test_ids_come_from_the_caller_or_from_the_batches() -> None:
    model, inputs = case("mlp")
    posterior, names = posterior_of(model), torch.tensor([9, 4, 7, 1, 3])
    given = varlearn.sensitivity(model, posterior, [(inputs, LABELS)], ids=names.tolist())
    shuffled = DataLoader(TensorDataset(inputs, LABELS, names), batch_size=2, shuffle=True)
    carried = varlearn.sensitivity(model, posterior, shuffled)
    order = [carried.ids.tolist().index(name) for name in names.tolist()]
    assert given.ids.tolist() == names.tolist()
    torch.testing.assert_close(carried.score[order], given.score)


def test_inputs_by_name_and_logits_in_an_object() -> None:
    class Named(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, *, x: Tensor, scale: float) -> dict[str, Tensor]:
            return {"logits": self.inner(scale * x)}

    inner, inputs = case("mlp")
    plain = varlearn.sensitivity(inner, posterior_of(inner), [(inputs, LABELS)])
    model = Named(inner)
    named = varlearn.sensitivity(model, posterior_of(model), [{"x": inputs / 2, "scale": 2.0, "labels": LABELS}])
    torch.testing.assert_close(named.deviation, plain.deviation)


class Random(nn.Linear):
    """Drops by a function, which no look at the modules finds."""

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(super().forward(x), 0.5)


def refused(change: str) -> Any:
    """Call `sensitivity` with one thing wrong."""
    model, inputs = case("mlp")
    settings: dict[str, Any] = {}
    labels, posterior = LABELS, posterior_of(model)
    match change:
        case "label":
            labels = torch.tensor([0, 2, 3, 1, 0])
        case "ignored label":
            labels = torch.tensor([0, 2, 1, -100, 0])
        case "network":
            posterior = posterior_of(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)))
        case "mixture":
            return varlearn.sensitivity(model, Mixture((posterior, posterior)), [])  # type: ignore[arg-type]
        case "batchnorm":
            model = nn.Sequential(model, nn.BatchNorm1d(3)).double().train()
            posterior = posterior_of(model)
        case "batch statistics":
            model = nn.Sequential(model, nn.BatchNorm1d(3, track_running_stats=False)).double().eval()
            posterior = posterior_of(model)
        case "dropout":
            model = nn.Sequential(model, nn.Dropout(0.1)).train()
            posterior = posterior_of(model)
        case "random":
            model = Random(4, 3).double()
            posterior = posterior_of(model)
        case "nan":
            inputs = inputs.clone()
            inputs[3] = float("nan")
        case "rows":
            inputs = inputs[:, None].expand(5, 2, 4)
        case "float labels":
            labels = labels.double()
        case "no labels":
            return varlearn.sensitivity(model, posterior, [inputs])
        case "empty":
            return varlearn.sensitivity(model, posterior, [])
        case "shuffle":
            loader = DataLoader(TensorDataset(inputs, labels), shuffle=True)
            return varlearn.sensitivity(model, posterior, loader, ids=range(5))
        case _:
            settings = {"score": {"score": "l2"}, "chunk": {"chunk": 0}, "noise": {"noise_variance": 0.0}}.get(
                change, {"ids": [1, 2]}
            )
    return varlearn.sensitivity(model, posterior, [(inputs, labels)], **settings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("label", "label 3 of example 2 must be one of 0 to 2"),
        ("ignored label", "label -100 of example 3"),
        ("network", "does not fit the model: wrong shape: '0.weight'"),
        ("mixture", "a Mixture has no diagonal variance"),
        ("batchnorm", r"'1' \(BatchNorm1d\) is in training mode.*model.eval"),
        ("batch statistics", r"'1' \(BatchNorm1d\) keeps no running statistics"),
        ("dropout", r"'1' \(Dropout\) is in training mode.*model.eval"),
        ("random", "draws random numbers"),
        ("nan", "outputs of example 3 are .nan, nan, nan.*must be finite"),
        ("rows", r"outputs of shape \(1, 2, 3\)"),
        ("float labels", "as many numbers as the outputs, 3"),
        ("no labels", "without targets"),
        ("empty", "gave no example"),
        ("shuffle", "the loader shuffles"),
        ("score", "score='l2' must be"),
        ("chunk", "chunk=0 must be >= 1"),
        ("noise", "noise_variance=0.0 must be > 0"),
        ("ids", "2 ids must be as many as the loader's 5 examples"),
    ],
)
def test_bad_input_is_refused_by_name(change: str, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        refused(change)


def test_what_only_classes_or_only_numbers_have() -> None:
    model, inputs = case("mlp")
    posterior = posterior_of(model)
    numbers = varlearn.sensitivity(model, posterior, [(inputs, torch.zeros(5, 3).double())])
    with pytest.raises(ValueError, match="loo_probs of a regression"):
        _ = numbers.loo_probs
    with pytest.raises(ValueError, match="refitted_outputs of a regression with 3 outputs"):
        _ = numbers.refitted_outputs
    with pytest.raises(ValueError, match="refitted_outputs of a classification"):
        _ = varlearn.sensitivity(model, posterior, [(inputs, LABELS)]).refitted_outputs
