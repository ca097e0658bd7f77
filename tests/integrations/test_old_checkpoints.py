"""Checkpoints that Lightning and Hugging Face's Trainer wrote with version 0.1 go on to the end that it reached."""

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.files.test_old_files import assert_same
from tests.fixtures.v0_1 import cases, frameworks


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:.*`isinstance\\(treespec, LeafSpec\\)` is deprecated.*")
def test_lightning(tmp_path: Path) -> None:
    stored = cases.HERE / "lightning"
    module, _ = frameworks.fit_lightning(tmp_path, 4, stored / "two_steps.ckpt")
    assert_same(module.state_dict(), load_file(stored / "four_steps.safetensors"))


def test_hugging_face_trainer(tmp_path: Path) -> None:
    stored = cases.HERE / "trainer"
    checkpoint = shutil.copytree(stored / "checkpoint-2", tmp_path / "checkpoint-2")
    trainer = frameworks.hugging_face(tmp_path)
    trainer.train(resume_from_checkpoint=str(checkpoint))
    assert_same(trainer.model.state_dict(), load_file(stored / "four_steps.safetensors"))
