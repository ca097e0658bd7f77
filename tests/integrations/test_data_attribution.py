"""cleanlab and dattri take what the sensitivities give."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import varlearn
from varlearn.posterior import DiagGaussian

CLASSES, N, WRONG = 3, 300, 15


@pytest.fixture(scope="module")
def trained() -> tuple[nn.Module, DiagGaussian, Tensor, Tensor, Tensor]:
    """A network, its posterior, inputs, labels of which some are wrong, and which these are."""
    torch.manual_seed(0)
    centres = 3 * torch.eye(CLASSES, 4)
    true = torch.arange(N) % CLASSES
    x = centres[true] + torch.randn(N, 4)
    wrong = torch.zeros(N, dtype=torch.bool)
    wrong[torch.randperm(N)[:WRONG]] = True
    y = torch.where(wrong, (true + 1) % CLASSES, true)
    model = nn.Linear(4, CLASSES)
    optimizer = varlearn.VAdamW.for_model(model, n=N, batch_size=N, steps=300, seed=0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=300)
    for _ in range(300):
        with optimizer.sampled_params(train=True):
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
        optimizer.step()
        schedule.step()
    return model.eval(), DiagGaussian.from_optimizer(model, optimizer), x, y, wrong


def test_cleanlab_finds_label_issues_in_leave_one_out_probabilities(
    trained: tuple[nn.Module, DiagGaussian, Tensor, Tensor, Tensor],
) -> None:
    from cleanlab.filter import find_label_issues

    model, q, x, y, wrong = trained
    found = varlearn.sensitivity(model, q, [(x, y)])
    issues = torch.from_numpy(find_label_issues(y.numpy(), found.loo_probs.numpy()))
    assert (issues & wrong).sum() >= 0.8 * WRONG
    assert (issues & wrong).sum() >= 0.6 * issues.sum()


@pytest.mark.filterwarnings("ignore")
def test_datalab_takes_them_too(trained: tuple[nn.Module, DiagGaussian, Tensor, Tensor, Tensor]) -> None:
    cleanlab = pytest.importorskip("cleanlab")
    pytest.importorskip("datasets")
    model, q, x, y, wrong = trained
    found = varlearn.sensitivity(model, q, [(x, y)])
    lab = cleanlab.Datalab({"label": y.numpy()}, label_name="label", verbosity=0)
    lab.find_issues(pred_probs=found.loo_probs.numpy(), issue_types={"label": {}})
    issues = torch.from_numpy(lab.get_issues("label")["is_label_issue"].to_numpy())
    assert (issues & wrong).sum() >= 0.8 * WRONG


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")
def test_the_attributor_has_the_first_order_changes_of_test_losses(
    trained: tuple[nn.Module, DiagGaussian, Tensor, Tensor, Tensor],
) -> None:
    pytest.importorskip("dattri")
    from dattri.metric import mislabel_detection_auc

    from varlearn.integrations.data_attribution import mpe_attributor

    model, q, x, y, wrong = trained
    train, test = DataLoader(TensorDataset(x, y), batch_size=64), [(x[:5], y[:5])]
    attributor = mpe_attributor(model, q)
    scores = attributor.attribute(train, test)
    attributor.cache(train)
    assert torch.equal(attributor.attribute(train, test), scores)
    assert scores.shape == (N, 5)
    inputs = torch.cat([x, torch.ones(N, 1)], 1)
    errors = model(x).softmax(1).detach() - nn.functional.one_hot(y, CLASSES)
    slopes = torch.einsum("nc,nd->ncd", errors, inputs)  # of the weights, then of the bias
    variance = torch.cat([q.std["weight"], q.std["bias"][:, None]], 1).square()
    expected = torch.einsum("ncd,cd,mcd->nm", slopes, variance, slopes[:5])
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-6)
    own = attributor.self_attribute(train)  # type: ignore[attr-defined]
    torch.testing.assert_close(own[:5], scores[:5].diagonal(), rtol=1e-4, atol=1e-7)
    assert mislabel_detection_auc(own, wrong)[0] > 0.9
