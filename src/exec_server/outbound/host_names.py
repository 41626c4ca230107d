"""International host names as browsers write them: the ToASCII operation of Unicode's UTS 46.

The tables and the rules for single characters are those of the `idna` package. Its own `encode` is
not used: it applies IDNA 2008, which refuses names that browsers accept, such as `☃.net`. Python's
codec is not used either: it is that of IDNA 2003, which reads `faß.de` as `fass.de`.
"""

from __future__ import annotations

import unicodedata

_PREFIX = "xn--"
_JOINERS = "\u200c\u200d"
_RIGHT_TO_LEFT = ("R", "AL", "AN")


def to_ascii(name: str) -> str:
    """Return *name* in ASCII, as it is looked up. Raises ValueError if it is not a host name.

    The options of UTS 46 are those of the WHATWG URL standard: hyphens, the length of labels and
    the characters of STD 3 are not checked.
    """
    import idna  # Its tables are large, and most names are ASCII.

    labels = [_unicode_label(label) for label in idna.uts46_remap(name, False).split(".")]
    is_bidi = any(unicodedata.bidirectional(c) in _RIGHT_TO_LEFT for c in "".join(labels))
    for label in filter(None, labels):
        idna.check_initial_combiner(label)
        if is_bidi:
            idna.check_bidi(label, check_ltr=True)
        for index, character in enumerate(label):
            if character in _JOINERS and not idna.valid_contextj(label, index):
                raise ValueError(name)
    return ".".join(map(_ascii_label, labels))


def _unicode_label(label: str) -> str:
    """Decode a label that is written in Punycode, and check that encoding gives the same again."""
    import idna

    if not label.startswith(_PREFIX):
        return label
    decoded = label.removeprefix(_PREFIX).encode("ascii").decode("punycode")
    if decoded.isascii() or idna.uts46_remap(decoded, False) != decoded:
        raise ValueError(label)
    return decoded


def _ascii_label(label: str) -> str:
    return label if label.isascii() else _PREFIX + label.encode("punycode").decode("ascii")
