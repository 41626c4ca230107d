"""A registry of three nodes, as processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """For all tests of a module, each of which leaves it as it was."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made
