from pathlib import Path

import pytest

from tests.unit.broker.turns import Broker


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)
