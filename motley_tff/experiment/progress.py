"""How a run tells a person what it is doing; the library itself never prints."""

from typing import Protocol


class Progress(Protocol):
    """Receives a run's progress."""

    def start(self, stage: str, total: int, done: int = 0) -> None:
        """A stage of `total` steps begins, of which `done` were done in an earlier session."""

    def advance(self, steps: int = 1, **facts: float) -> None:
        """Steps were done; facts are numbers worth showing, such as `loss`."""

    def finish(self) -> None:
        """The stage ends."""


class Silent:
    """Shows nothing."""

    def start(self, stage: str, total: int, done: int = 0) -> None:
        """Does nothing when a stage begins."""

    def advance(self, steps: int = 1, **facts: float) -> None:
        """Does nothing when steps are done."""

    def finish(self) -> None:
        """Does nothing when a stage ends."""
