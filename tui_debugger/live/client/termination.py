"""What ends a training on request of the debugger."""

from __future__ import annotations


class TrainingTerminated(SystemExit):
    """The debugger told this training process to end.

    Raised in the thread that trains, from ``step``, ``node_end`` or ``begin``. Where it is not caught the process ends
    with exit status 0, after ``finally`` blocks and ``atexit`` functions. MindSpore's client ends the process on the
    spot; here there is a chance to save what was trained::

        try:
            train()
        except TrainingTerminated:
            save_checkpoint()
            raise

    Attributes:
        step: the step after (or in) which it was told, -1 before the first.
    """

    def __init__(self, step: int) -> None:
        """Ends the process with status 0."""
        super().__init__(0)
        self.step = step

    def __str__(self) -> str:
        """For people."""
        return "the debugger ended this training"
