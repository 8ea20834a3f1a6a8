"""What a check of the doctor finds."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """One finding: how grave it is, what was seen, why it matters, what to do, and where that is known from."""

    check: str
    level: Level
    seen: str
    why: str = ""
    remedy: str = ""
    source: str = ""

    def text(self) -> str:
        """The finding in a few lines."""
        lines = [f"{self.level:8} {self.check}: {self.seen}"]
        for name, value in (("why", self.why), ("remedy", self.remedy), ("source", self.source)):
            if value:
                lines.append(f"         {name}: {value}")
        return "\n".join(lines)
