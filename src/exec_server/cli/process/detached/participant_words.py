"""Who looks on at a process and who drives it, in words."""

from __future__ import annotations

import time
from collections.abc import Iterator

from exec_server.printable import printable
from exec_server.protocol.sharing import ControlChangedEvent, ControlState, Participant


def change_words(change: ControlChangedEvent) -> str:
    """A change of the driver, as the one who reads it sees it."""
    is_mine = change.driver.id == change.control.you
    name = shown(change.driver)
    if change.reason == "offered":
        return f"{name} offers you the keyboard; ~t takes it"
    if is_mine:
        return {
            "taken": "you have the keyboard now; ~g gives it back",
            "accepted": "you have the keyboard now; ~g gives it back",
            "givenBack": "you have the keyboard again",
            "left": "you have the keyboard again: the driver has left",
        }[change.reason]
    if change.reason in ("taken", "accepted"):
        return f"{name} has taken the keyboard; ~t takes it"
    return f"{name} has the keyboard again"


def participant_lines(state: ControlState) -> Iterator[str]:
    """One line for each who takes part."""
    for each in state.participants:
        facts: list[str] = [each.kind]
        if each.id == state.you:
            facts.append("you")
        facts.append("drives" if each.drives else "looks on")
        if not each.connected:
            facts.append("away")
        else:
            idle = max(0, round(time.time() - each.idle_since / 1000))
            facts.append(f"idle {idle} s")
        yield f"{printable(each.name)} ({', '.join(facts)})"


def shown(participant: Participant) -> str:
    return f"{printable(participant.name)} ({participant.kind})"
