"""Removes known secrets from what a terminal shows, however the output is split.

A secret is found although chunks, line ends, wraps, colours or movements of the cursor are between
its characters. Each of its characters becomes `*`, so that the screen keeps its layout.
"""

from __future__ import annotations

import re
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
# More than this is not held back: what may be a secret in it becomes stars.
_MOST_HELD = 64 * 1024
# The end of the text in which the beginning of a secret is looked for, in characters for each that
# may be visible: colours and movements of the cursor are among them.
_DENSITY = 4


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
        self._alphabets = [_rarest_first(each) for each in (*self.secrets, _TOKEN_BEGIN)]
        longest = len(self.secrets[0]) if self.secrets else 0
        # So many visible characters decide what is held back.
        self._reach = max(longest, _LONGEST_TOKEN + len(_TOKEN_BEGIN))
        self._held = ""
        # The places in it that belong to a secret that was found; another one may begin there.
        self._stars: set[int] = set()

    @property
    def held(self) -> tuple[str, list[int]]:
        """What is held back, for a filter that takes over; see `take_over`."""
        return self._held, sorted(self._stars)

    def take_over(self, text: str, stars: Iterable[int]) -> None:
        """Go on where another filter with the same secrets has stopped."""
        self._held, self._stars = text, set(stars)

    def feed(self, text: str) -> str:
        """What may be written of the text so far."""
        text = self._held + text
        end = _unfinished(text)
        stars = set(self._stars)
        if stars or self._is_hidden_in(text):
            stars |= self._secret_places(text, _places(text), is_last=False)
        keep = self._kept_from(text, end)
        if len(text) - keep > _MOST_HELD:
            stars.update(place + keep for place in _places(text[keep:]))
            keep = len(text)
        self._held = text[keep:]
        self._stars = {place - keep for place in stars if place >= keep}
        return _with_stars(text, stars)[:keep]

    def _kept_from(self, text: str, end: int) -> int:
        """Where a secret may begin that goes on after *text*, whose last sequence is at *end*."""
        start = _readable_from(text, end - _DENSITY * self._reach)
        visible = _quickly_visible(text[start:end])
        if start and len(visible) < self._reach:
            start, visible = 0, _quickly_visible(text[:end])
        is_whole = end == len(text)
        # Many lines end with an `e`; only one at the very end is held back.
        is_at_end = is_whole and text.endswith(_TOKEN_BEGIN[0])
        held = self._held_length(visible, is_at_end=is_at_end)
        keep = _place_before(text, end, held) if held else len(text)
        if not is_whole:
            # The beginning of a sequence may be text of a secret as well.
            rest = _quickly_visible(text[start:])
            held = self._held_length(rest, is_at_end=text.endswith(_TOKEN_BEGIN[0]))
            keep = min(keep, _place_before(text, len(text), held)) if held else keep
        return keep

    def rest(self) -> str:
        """What was held back; nothing follows. The beginning of a secret is masked, too."""
        text, self._held = self._held, ""
        places = _places(text)
        stars = self._stars | self._secret_places(text, places, is_last=True)
        self._stars = set()
        held = self._held_length("".join([text[place] for place in places]))
        # A short beginning is in ordinary text, too.
        return _with_stars(text, {*stars, *(places[-held:] if held >= SHORTEST_SECRET else ())})

    def _is_hidden_in(self, text: str) -> bool:
        """A quick look: False if no whole secret can be in *text*, whatever is in between."""
        # A character that is absent decides it, and most secrets have one.
        for characters in self._alphabets:
            if all(character in text for character in characters):
                return self._is_in(_quickly_visible(text))
        return False

    def _is_in(self, visible: str) -> bool:
        if _TOKEN_BEGIN in visible and _TOKEN.search(visible):
            return True
        return any(secret in visible for secret in self.secrets)

    def _secret_places(self, text: str, places: list[int], *, is_last: bool) -> set[int]:
        """Where the whole secrets are, in a text that is visible at *places*."""
        visible = "".join([text[place] for place in places])
        stars: set[int] = set()
        for start, stop in self._found(visible, is_last=is_last):
            stars.update(places[start:stop])
        return stars

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


def _places(text: str, start: int = 0) -> list[int]:
    """Where the visible characters are, from *start* on."""
    places: list[int] = []
    end = start
    for found in _BETWEEN.finditer(text, start):
        places.extend(range(end, found.start()))
        end = found.end()
    places.extend(range(end, len(text)))
    return places


def _place_before(text: str, end: int, count: int) -> int:
    """Where the last *count* visible characters before *end* begin."""
    size = _DENSITY * count
    while True:
        start = _readable_from(text, end - size)
        places = _places(text[:end], start)
        if len(places) >= count:
            return places[-count]
        if not start:
            # The quick look has seen more, so nothing is certain.
            return 0
        size *= 8


def _rarest_first(secret: str) -> list[str]:
    """The characters of a secret; those that most output has are the last."""
    return sorted(set(secret), key=lambda each: (each.islower(), each.isalnum(), each))


def _quickly_visible(text: str) -> str:
    """The text at its `_places`."""
    # A control character stays for a sequence: a blank before it has no return after it.
    text = _SEQUENCES.sub("\0", text) if "\x1b" in text else text
    if " \r" in text:
        text = text.replace(" \r\n", " \n").replace(" \r", "")
    return text.translate(_CONTROLS)


def _readable_from(text: str, limit: int) -> int:
    """The last place up to *limit* at which no sequence goes on; 0 if none is found."""
    if limit <= 0:
        return 0
    line = text.rfind("\n", 0, limit) + 1
    # A line end can be inside a title, which is no longer than this.
    if text.rfind("\x1b", max(0, line - _LONGEST_SEQUENCE), line) < 0:
        return line
    return max(0, text.rfind("\x1b[", 0, limit))


def _unfinished(text: str) -> int:
    """Where a sequence or a blank begins that the next text may go on with; or the end."""
    if text.endswith(" "):
        return len(text) - 1
    least = max(0, len(text) - _LONGEST_SEQUENCE)
    start = text.rfind("\x1b", least)
    if start < 0 or _UNFINISHED.match(text, start) is None:
        return len(text)
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
