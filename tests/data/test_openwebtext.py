import json
from pathlib import Path

import numpy as np
import pytest

from tests.data.files import write
from varlearn.data.errors import CorruptDataError, MissingDataError
from varlearn.data.openwebtext import openwebtext


def test_openwebtext(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="make it from the files of the corpus: varlearn prepare openwebtext"):
        openwebtext("train", tmp_path)
    write(tmp_path / "openwebtext" / "train.bin", np.arange(100, dtype="<u2").tobytes())
    with pytest.raises(CorruptDataError, match=r"train.bin has no readable prepared.json beside it"):
        openwebtext("train", tmp_path)
    write(tmp_path / "openwebtext" / "prepared.json", json.dumps({"tokens": {"train": 100, "test": 3}}).encode())
    assert openwebtext("train", tmp_path).inputs[:].tolist() == list(range(100))
    write(tmp_path / "openwebtext" / "test.bin", b"1234")
    with pytest.raises(CorruptDataError, match=r"test.bin has 4 bytes, not two for each of 3 tokens"):
        openwebtext("test", tmp_path)
    with pytest.raises(ValueError, match="split='valid' must be one of train, test"):
        openwebtext("valid", tmp_path)
