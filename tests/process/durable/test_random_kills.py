"""The server is killed at random moments under load: every byte comes once and in order."""

from __future__ import annotations

import pytest

from tests.requirements import requirement
from tests.support.endurance import Endurance

pytestmark = pytest.mark.one_loop


@requirement("durable:random-kills")
@pytest.mark.timeout(300)
async def test_random_kills_lose_nothing(tmp_path):
    endurance = Endurance(tmp_path, jobs=8, kills=8, seed=1)
    await endurance.run()
