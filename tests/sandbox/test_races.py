"""Each race of `tests.sandbox.races`, for a short time; `make races` runs them for longer."""

from __future__ import annotations

import pytest

from exec_server.sandbox.backends import HERE
from tests.requirements import requirement
from tests.sandbox import races

pytestmark = pytest.mark.skipif(
    not HERE.bubblewrap_report.works, reason=f"{HERE.bubblewrap_report.obstacle}"
)

SECONDS = 2.0


@pytest.mark.parametrize("name", races.RACES)
@requirement("security/races:mounted")
def test_a_swap_during_the_start_gains_nothing(name):
    outcome = races.run(name, SECONDS)
    assert outcome.escapes == []
    # Otherwise the run proves nothing.
    assert outcome.caught, str(outcome)
