"""The exceptions of collbench and the exit code that each one carries.

CollbenchError                1    a case, a rank or collbench itself failed
├── UsageError                2    a command line that cannot be carried out
│   └── ScenarioError         2    a scenario file that cannot be carried out
├── WrongData                 3    a collective returned wrong data
├── DeadlineExceeded          4    something did not finish in its time
├── ExpectationFailed         5    an expectation or a gate failed
├── Ambiguous                 6    a comparison is too noisy to decide
├── CannotRun                 7    this machine cannot run what was asked
│   └── LibraryFailed         7    a library refused what it was asked (its status is kept)
├── Interrupted             130    the user or the system ended the run
└── Agreed                    1    what went wrong on one rank, raised on all of them

AgreedCannotRun is a CannotRun that is raised on all ranks.

Every message is one sentence that says where, what was got, what was expected, and the remedy. All of them survive
pickling, since what one rank learns every rank learns.
"""

from typing import ClassVar


class CollbenchError(Exception):
    """Base of all errors that collbench raises on purpose."""

    exit_code: ClassVar[int] = 1


class UsageError(CollbenchError):
    """A command line that cannot be carried out."""

    exit_code = 2


class ScenarioError(UsageError):
    """A scenario file that cannot be carried out."""


class WrongData(CollbenchError):
    """A collective returned data that differ from the expected ones."""

    exit_code = 3


class DeadlineExceeded(CollbenchError):
    """Something did not finish in its time."""

    exit_code = 4


class ExpectationFailed(CollbenchError):
    """An expectation of the scenario or a gate failed."""

    exit_code = 5


class Ambiguous(CollbenchError):
    """A comparison is too noisy to decide."""

    exit_code = 6


class CannotRun(CollbenchError):
    """This machine cannot run what was asked."""

    exit_code = 7


class LibraryFailed(CannotRun):
    """A library refused a call; `status` is its code."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message, status)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])


class Interrupted(CollbenchError):
    """The user or the system ended the run."""

    exit_code = 130


class Agreed(CollbenchError):
    """What went wrong on one rank, raised on all of them: nobody need ask the others."""


class AgreedCannotRun(CannotRun):
    """What cannot be run here by one rank's word, raised on all of them: nobody need ask the others."""
