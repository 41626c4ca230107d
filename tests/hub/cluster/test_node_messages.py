"""The texts on the wire between nodes: nodes of an older release read and write the same."""

from __future__ import annotations

import msgspec
import pytest

from exec_server.hub.cluster.node_messages import (
    JoinAccepted,
    JoinRefused,
    JoinRequest,
    OwnerRecord,
    PresenceRequest,
    RegistrationGone,
    Takeover,
    encode,
)
from tests.requirements import requirement

MESSAGES = [
    (PresenceRequest(), {"type": "Ask"}),
    (
        JoinRequest("registration", "node", b"channel"),
        {
            "type": "Join",
            "registration_id": "registration",
            "node": "node",
            "channel": b"channel",
        },
    ),
    (
        JoinAccepted(b"channel", "socket"),
        {"type": "Joined", "channel": b"channel", "seat": "socket"},
    ),
    (JoinRefused(), {"type": "Full"}),
    (RegistrationGone(), {"type": "Gone"}),
    (
        OwnerRecord(
            node="node", socket_id="socket", registration_id="registration", generation=2, since=1.5
        ),
        {
            "node": "node",
            "seat": "socket",
            "registration_id": "registration",
            "generation": 2,
            "since": 1.5,
        },
    ),
    (
        Takeover(
            environment_id="build",
            generation=2,
            socket_id="socket",
            revision=3,
            since=1.5,
            replaced_socket_id="other",
        ),
        {
            "environment_id": "build",
            "generation": 2,
            "seat": "socket",
            "revision": 3,
            "since": 1.5,
            "before": "other",
        },
    ),
]


@requirement("hub/cluster:same-words")
@pytest.mark.parametrize(("message", "expected"), MESSAGES)
def test_a_message_has_the_names_of_the_first_release(message, expected):
    data = encode(message)
    assert msgspec.msgpack.decode(data) == expected
    assert msgspec.msgpack.decode(data, type=type(message)) == message
