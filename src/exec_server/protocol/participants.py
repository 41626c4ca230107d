"""Who takes part in a process."""

from __future__ import annotations

from typing import Literal

# A person may always take the input from an agent; an agent never takes it from a person.
Kind = Literal["person", "agent"]
