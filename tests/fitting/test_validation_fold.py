"""Which loaders give a part away, and that nothing is lost or doubled."""

import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler

from varlearn.fitting.validation_fold import hold_out_fold

DATA = TensorDataset(torch.arange(200.0)[:, None], torch.arange(200.0))


def test_a_loader_is_divided_without_loss_by_its_seed() -> None:
    loader = DataLoader(DATA, batch_size=16, shuffle=True, drop_last=False)
    for _ in range(2):
        found = hold_out_fold(loader, seed=3)
        assert found is not None
        rest, fold = (torch.cat([targets for _, targets in part]) for part in found)
        assert len(fold) == 20
        assert sorted([*rest.tolist(), *fold.tolist()]) == list(range(200))
    assert fold.tolist() == torch.cat([targets for _, targets in found[1]]).tolist()  # in one order
    other = hold_out_fold(loader, seed=4)
    assert other is not None
    assert set(torch.cat([targets for _, targets in other[1]]).tolist()) != set(fold.tolist())


def test_a_list_of_pairs_is_divided() -> None:
    pairs = [(x, y) for x, y in DataLoader(DATA, batch_size=64)]
    found = hold_out_fold(pairs, seed=0)
    assert found is not None
    rest, fold = (torch.cat([targets for _, targets in part]) for part in found)
    assert sorted([*rest.tolist(), *fold.tolist()]) == list(range(200))
    assert all(torch.equal(inputs[:, 0], targets) for part in found for inputs, targets in part)


class _Stream(IterableDataset):
    def __iter__(self):
        return iter(range(200))


def test_other_loaders_and_few_examples_are_left_whole() -> None:
    sampler = WeightedRandomSampler([1.0] * 200, 200)
    assert hold_out_fold(DataLoader(DATA, sampler=sampler), seed=0) is None
    assert hold_out_fold(DataLoader(_Stream()), seed=0) is None
    assert hold_out_fold([{"labels": torch.zeros(200)}], seed=0) is None
    assert hold_out_fold([(torch.zeros(50, 1), torch.zeros(50))], seed=0) is None
