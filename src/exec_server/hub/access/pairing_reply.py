"""What a machine sends about a code that was typed on it, to be passed on to the other machine."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from exec_server.hub.access.refusals import RegistryRefusal

_Word = Annotated[str, msgspec.Meta(pattern=r"\A[!-~]{0,200}\Z")]
# The reply of a machine that did not accept the offer.
REFUSED = "refused"


class PairingReply(msgspec.Struct, frozen=True):
    """The key of the machine, with the proof that the sender knows the secret of the code."""

    code: Annotated[str, msgspec.Meta(max_length=64)]
    is_refused: bool = msgspec.field(default=False, name="refused")
    fingerprint: _Word = ""
    proof: _Word = ""

    @property
    def stored(self) -> str:
        """The text for the store; it is never empty."""
        return REFUSED if self.is_refused else f"{self.fingerprint} {self.proof}"


def read_reply(body: bytes) -> PairingReply:
    """The body of a reply. Raises RegistryRefusal if it is malformed."""
    try:
        return msgspec.json.decode(body, type=PairingReply)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RegistryRefusal(
            400, "invalid_request", "`code`, `fingerprint` and `proof` are short texts"
        ) from None


def told(stored: str) -> dict[str, Any] | None:
    """A stored reply as the other machine gets it; None if there is none yet."""
    if not stored or stored == REFUSED:
        return None
    fingerprint, _, proof = stored.partition(" ")
    return {"fingerprint": fingerprint, "proof": proof}
