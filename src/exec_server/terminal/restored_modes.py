"""The modes of a terminal that a dump restores."""

from __future__ import annotations

# (number, is it an ANSI mode, its default)
RESTORED_MODES: list[tuple[int, bool, bool]] = [
    (4, True, False),
    (20, True, False),
    *((number, False, False) for number in (1, 5, 6, 9, 45, 66, 67, 69)),
    *((number, False, False) for number in (1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016)),
    *((number, False, False) for number in (2004, 2027)),
    *((number, False, True) for number in (7, 25, 1007)),
]
# Each of them shows the alternate screen.
ALTERNATE_MODES = (1049, 1047, 47)
