"""Prediction with a model sharded over two ranks, and unsharded with the same posterior; what came out of both."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from varlearn import IVON
from varlearn.posterior import DiagGaussian, Mixture, kl, load, save
from varlearn.prediction import (
    Linearized,
    Predictions,
    TokenPredictions,
    gather_ranks,
    predict,
    predict_regression,
)

EXAMPLES = 7  # odd: one rank repeats an example


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(EXAMPLES, 4, generator=generator, dtype=torch.float64)
    return TensorDataset(x, torch.arange(EXAMPLES) % 3)


def trained() -> tuple[nn.Sequential, IVON]:
    """The second layer belongs to the root module, which keeps gathered weights after a forward pass."""
    net, mesh = make_model(), init_device_mesh("cpu", (2,))
    fully_shard(net[0], mesh=mesh)
    fully_shard(net, mesh=mesh)
    opt = IVON(net.parameters(), lr=0.1, ess=20.0, betas=(0.9, 0.9), weight_decay=0.01, seed=0, prior_mean="init")
    x, y = data()[:]
    for _ in range(3):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
        opt.step()
    return net, opt


def refusal(call: Any) -> str:
    try:
        call()
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def two_ranks(rank: int, folder: Path) -> dict[str, Any]:
    net, opt = trained()
    with torch.no_grad():
        net(data()[:][0])  # the root now shows gathered weights
    q = DiagGaussian.from_optimizer(net, opt)
    whole = q.gathered()
    plain = make_model()
    plain.load_state_dict(whole.state_dict())
    before = [param.full_tensor().clone() for param in net.parameters()]  # type: ignore[attr-defined]
    loader = DataLoader(data(), batch_size=2)
    share = DataLoader(data(), batch_size=2, sampler=DistributedSampler(data(), shuffle=False))
    mixture = Mixture((q, q.tempered(0.25)))
    pairs = {
        "all": (predict(net, q, loader, samples=5), predict(plain, whole, loader, samples=5)),
        "mixture": (
            predict(net, mixture, loader, samples=3),
            predict(plain, Mixture((whole, whole.tempered(0.25))), loader, samples=3),
        ),
        "share": (
            gather_ranks(predict(net, q, share, samples=5, keep_samples=True), EXAMPLES),
            predict(plain, whole, loader, 5),
        ),
        "regression": (
            gather_ranks(predict_regression(plain, whole, share, 3, noise_variance=0.1, unpack=floats), EXAMPLES),
            predict_regression(plain, whole, loader, 3, noise_variance=0.1, unpack=floats),
        ),
    }
    after = [param.full_tensor() for param in net.parameters()]  # type: ignore[attr-defined]
    if rank == 0:
        save(whole, folder / "posterior.safetensors")
        assert torch.equal(load(folder / "posterior.safetensors").mean["0.weight"], whole.mean["0.weight"])
    sample, own = q.sample(3, 1), whole.sample(3, 1)
    return {
        "pairs": {name: tuple(vars(each) for each in pair) for name, pair in pairs.items()},
        "sample": {name: (value.full_tensor(), own[name]) for name, value in sample.items()},  # type: ignore
        "numbers": [(q.log_prob(sample), whole.log_prob(own)), (kl(q, q.prior()), kl(whole, whole.prior()))],
        "kl": (opt.kl(), kl(whole, whole.prior())),
        "unchanged": all(map(torch.equal, before, after)),
        "tokens": vars(gather_ranks(tokens(rank), 3)),
        "refused": {
            "save": refusal(lambda: save(q, folder / "no.safetensors")),
            "vectorize": refusal(lambda: predict(net, q, loader, vectorize=True)),
            "linearized": refusal(lambda: predict(net, Linearized(q), loader)),
            "generator": refusal(lambda: q.sample(torch.Generator())),
            "gap": refusal(lambda: gather_ranks(some(3 if rank == 0 else 1))),
        },
    }


def floats(batch: Any) -> tuple[Tensor, Tensor]:
    x, y = batch
    return x, y.double().unsqueeze(1).expand(-1, 3)


def some(count: int) -> Predictions:
    return Predictions(torch.zeros(count, 2), None, torch.zeros(count), torch.ones(1))


def tokens(rank: int) -> TokenPredictions:
    """Sequence k of a rank has k + 1 tokens, worth the number of the sequence among all, 2 k + rank."""
    sequences = torch.tensor([0, 1, 1])
    return TokenPredictions(2.0 * sequences + rank, 2 * sequences + rank, sequences, torch.ones(1))
