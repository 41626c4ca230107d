"""A registry of three nodes, as processes, and the two ends of a channel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from exec_server.hub.cluster.reliable import ReliableChannel
from tests.support.cluster import Cluster
from tests.support.reliable_channels import channel


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all tests of a module. Each test leaves all parts running."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def near() -> ReliableChannel:
    return channel()


@pytest.fixture
def far() -> ReliableChannel:
    return channel()
