"""Some modules run every test twice: over plain TCP and over TLS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from exec_server.server import serving
from exec_server.transport.address import TcpAddress
from exec_server.transport.certificate import Certificate
from tests.support.certificates import make_certificates


@pytest.fixture(scope="session")
def certificate_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `server.pem`, which has certificate and key, and `authority.pem`."""
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


@pytest.fixture
def carrier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What carries the WebSockets of servers on TCP in a test: `plain` or `tls`.

    Modules ask for both with `parametrize`.
    """
    kind = str(request.param)
    if kind == "tls":
        files: Path = request.getfixturevalue("certificate_files")
        listen: Any = serving._listen
        pem = str(files / "server.pem")

        def listen_with_tls(bound: Any, *rest: Any, **options: Any) -> Any:
            if isinstance(bound.address, TcpAddress):
                options["tls"] = Certificate(pem, pem)
            return listen(bound, *rest, **options)

        monkeypatch.setattr(serving, "_listen", listen_with_tls)
    return kind
