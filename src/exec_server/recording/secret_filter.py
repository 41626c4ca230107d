"""Removes known secrets from what a terminal shows, however the output is split.

A secret is found although chunks, line ends, wraps, colours or movements of the cursor are between
its characters. Each of its characters becomes `*`, so that the screen keeps its layout.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator

# A shorter value would be found in ordinary words.
SHORTEST_SECRET = 4
# Tokens of this project, which are secret wherever they appear.
_TOKEN = re.compile(r"exs_[\w-]{16,}")
_TOKEN_BEGIN = "exs_"
# What may stand between two characters that are neighbours on the screen. Shells print a blank and
# a return, or a character and a return, where a line wraps.
_BETWEEN = re.compile(
    r" \r(?!\n)|\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P_^X][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)"
    r"|[ -/]+[0-~]|[0-OQ-WYZ\\`-~])|[\x00-\x1a\x1c-\x1f]"
)
# The same for a quick look: sequences, which are found by their first character, and the rest.
_SEQUENCES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P_^X][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)"
    r"|[ -/]+[0-~]|[0-OQ-WYZ\\`-~])"
)
_CONTROLS = {number: None for number in range(0x20) if number != 0x1B}
# A sequence that has begun.
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]P_^X][^\x07\x1b]{0,4096}\x1b?|[ -/]*)\Z")
# A token that goes on for longer than this is not held back any more.
_LONGEST_TOKEN = 512
_LONGEST_SEQUENCE = 4200


class SecretFilter:
    """Holds text back while it may be the beginning of a secret."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        found = {secret.strip() for secret in secrets}
        parts = {line.strip() for each in found for line in each.splitlines()}
        # What is on one line of a secret of several lines is secret, too. Line ends in the output
        # are ignored, so the secret as a whole is found by its lines.
        self.secrets = sorted(
            (each for each in parts if len(each) >= SHORTEST_SECRET), key=len, reverse=True
        )
        self._held = ""
        # The places in it that belong to a secret that was found; another one may begin there.
        self._stars: set[int] = set()

    def feed(self, text: str) -> str:
        """What may be written of the text so far."""
        text = self._held + text
        unfinished = _unfinished(text)
        is_at_end = text.endswith(_TOKEN_BEGIN[0])
        if not self._stars and unfinished is None:
            visible = _quickly_visible(text)
            if not self._held_length(visible, is_at_end=is_at_end) and not self._is_in(visible):
                self._held = ""
                return text
        stars, places = self._places(text, is_last=False)
        visible = "".join([text[place] for place in places])
        held = self._held_length(visible, is_at_end=is_at_end)
        keep = places[-held] if held else len(text)
        if unfinished is not None:
            # A secret may go on after the sequence, whose beginning was counted as visible.
            before = bisect_left(places, unfinished)
            hidden = self._held_length(visible[:before], is_at_end=False)
            keep = min(keep, places[before - hidden]) if hidden else keep
        self._held = text[keep:]
        self._stars = {place - keep for place in stars if place >= keep}
        return _with_stars(text, stars)[:keep]

    def rest(self) -> str:
        """What was held back; nothing follows. The beginning of a secret is masked, too."""
        text, self._held = self._held, ""
        stars, places = self._places(text, is_last=True)
        self._stars = set()
        held = self._held_length("".join([text[place] for place in places]))
        # A short beginning is in ordinary text, too.
        return _with_stars(text, {*stars, *(places[-held:] if held >= SHORTEST_SECRET else ())})

    def _is_in(self, visible: str) -> bool:
        if _TOKEN_BEGIN in visible and _TOKEN.search(visible):
            return True
        return any(secret in visible for secret in self.secrets)

    def _places(self, text: str, *, is_last: bool) -> tuple[set[int], list[int]]:
        """Where the whole secrets are, and where the visible characters are."""
        places: list[int] = []
        end = 0
        for found in _BETWEEN.finditer(text):
            places.extend(range(end, found.start()))
            end = found.end()
        places.extend(range(end, len(text)))
        visible = "".join([text[place] for place in places])
        stars = set(self._stars)
        for start, stop in self._found(visible, is_last=is_last):
            stars.update(places[start:stop])
        return stars, places

    def _found(self, visible: str, *, is_last: bool) -> Iterator[tuple[int, int]]:
        for secret in self.secrets:
            start = visible.find(secret)
            while start >= 0:
                yield start, start + len(secret)
                # Secrets may overlap with themselves.
                start = visible.find(secret, start + 1)
        for found in _TOKEN.finditer(visible) if _TOKEN_BEGIN in visible else ():
            start, stop = found.span()
            # One at the end may go on; it is held back as it is.
            if is_last or stop < len(visible) or stop - start > _LONGEST_TOKEN:
                yield start, stop

    def _held_length(self, visible: str, *, is_at_end: bool = True) -> int:
        """How many characters at the end may be the beginning of a secret."""
        longest = 0
        for secret in self.secrets:
            longest = max(longest, _overlap(visible, secret))
        begin = _overlap(visible, _TOKEN_BEGIN)
        # Many lines end with an `e`; only one at the very end is held back.
        if begin > 1 or is_at_end:
            longest = max(longest, begin)
        start = visible.rfind(_TOKEN_BEGIN, max(0, len(visible) - _LONGEST_TOKEN))
        if start >= 0 and re.fullmatch(r"[\w-]*", visible[start:]):
            longest = max(longest, len(visible) - start)
        return longest


def _quickly_visible(text: str) -> str:
    text = _SEQUENCES.sub("", text) if "\x1b" in text else text
    return text.replace(" \r\n", " \n").replace(" \r", "").translate(_CONTROLS)


def _unfinished(text: str) -> int | None:
    """Where a sequence begins that has not ended, or a blank whose return may follow."""
    if text.endswith(" "):
        return len(text) - 1
    least = max(0, len(text) - _LONGEST_SEQUENCE)
    start = text.rfind("\x1b", least)
    if start < 0 or _UNFINISHED.match(text, start) is None:
        return None
    # The last one may be the end of a longer sequence.
    first = text.rfind("\x1b", least, start)
    is_longer = first >= 0 and _UNFINISHED.match(text, first) is not None
    return first if is_longer else start


def _with_stars(text: str, places: set[int]) -> str:
    if not places:
        return text
    characters = list(text)
    for place in places:
        characters[place] = "*"
    return "".join(characters)


def _overlap(text: str, secret: str) -> int:
    """The length of the longest end of *text* that begins *secret*, and is not all of it."""
    size = min(len(text), len(secret) - 1)
    tail = text[len(text) - size :]
    start = tail.find(secret[0]) if size else -1
    while start >= 0:
        if secret.startswith(tail[start:]):
            return size - start
        start = tail.find(secret[0], start + 1)
    return 0
