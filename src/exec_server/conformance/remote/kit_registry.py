"""What a harness asks of a registry."""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from exec_server.conformance.remote.kit_noise import PublicKey

SCHEMES = ("noise+http://", "noise+https://")
_LARGEST = 1024 * 1024


class Answer(NamedTuple):
    """An answer of the registry."""

    status: int
    body: Any


class KitBundle(NamedTuple):
    """What a harness needs for one connection."""

    url: str
    environment_id: str
    registration_id: str
    executor: PublicKey
    authorization: str


def place_of(url: str) -> tuple[str, str]:
    """The registry's URL and the environment's id in `noise+http://REGISTRY/ENVIRONMENT`."""
    parts = urlsplit(url.removeprefix("noise+"))
    path, _, environment_id = parts.path.rpartition("/")
    if not environment_id or not parts.netloc:
        raise ValueError(f"{url} names no environment")
    return urlunsplit((parts.scheme, parts.netloc, path, "", "")), environment_id


async def ask_connect(
    url: str, headers: dict[str, str], body: Any, *, patience: float, environment_id: str = ""
) -> Answer:
    """Send `connect` for the environment in *url*, or for another one."""
    from aiohttp import ClientError, ClientSession, ClientTimeout

    registry, mine = place_of(url)
    target = f"{registry}/cloud/environment/{environment_id or mine}/connect"
    timeout = ClientTimeout(total=patience)
    try:
        async with (
            ClientSession(timeout=timeout, trust_env=False) as session,
            session.post(target, json=body, headers=headers, allow_redirects=False) as response,
        ):
            text = await response.content.read(_LARGEST)
            status = response.status
    except ClientError as exc:
        raise OSError(f"the registry does not answer: {exc}") from exc
    try:
        return Answer(status, json.loads(text))
    except ValueError:
        return Answer(status, None)


def bundle_of(answer: Answer, environment_id: str) -> KitBundle:
    """What the registry has told. Raises ValueError if something is missing or wrong."""
    if not 200 <= answer.status < 300 or not isinstance(answer.body, dict):
        raise ValueError(f"`connect` was answered with {answer.status}: {answer.body!r:.200}")
    told = answer.body
    wanted = {"environment_id": environment_id, "security_profile": "noise_hybrid_ik_v1"}
    for name, value in wanted.items():
        if told.get(name) != value:
            raise ValueError(f"`{name}` is {told.get(name)!r:.100}, not {value!r}")
    texts = ("url", "executor_registration_id", "harness_key_authorization")
    for name in texts:
        if not isinstance(told.get(name), str) or not told[name].strip():
            raise ValueError(f"`{name}` is {told.get(name)!r:.100}")
    if len(told["harness_key_authorization"].encode()) > 4096:
        raise ValueError("`harness_key_authorization` has more than 4096 bytes")
    url, registration_id, authorization = (told[name] for name in texts)
    key = PublicKey.from_json(told.get("executor_public_key"))
    return KitBundle(url, environment_id, registration_id, key, authorization)
