"""What a program tells its user in one line, and the signal that asks it to stop."""

import signal


def printable(text: str) -> str:
    """Returns a text of which nothing moves a terminal's cursor: spaces for what would."""
    return "".join(c if c.isprintable() else " " for c in text)


class UserError(Exception):
    """An error that its reader can act on: a bad flag, a broken file, a full disk.

    The message is one line that says what was found, what was expected, and what to do. Programs
    print it to stderr without a stack trace and leave with `exit_status`; 2: the user can mend it.
    """

    exit_status = 2

    def __init__(self, message: str):
        """Makes the message one line, whatever was quoted in it."""
        super().__init__(" ".join(printable(line).strip() for line in str(message).splitlines()))


class WorkerError(UserError):
    """TFF's worker process did not start, died, or cannot be reached: not the user's fault."""

    exit_status = 1


class Terminated(SystemExit):
    """A signal asked the program to end: raised in the main thread, so that `finally` blocks run.

    It is no `Exception`: code that handles errors lets it pass. `exit_status` is as a shell reports
    a signal: 143 for SIGTERM.
    """

    def __init__(self, signal_number: int = signal.SIGTERM):
        """Makes an exit with the signal's status."""
        self.exit_status = 128 + signal_number
        super().__init__(self.exit_status)
        self.signal_name = signal.Signals(signal_number).name
