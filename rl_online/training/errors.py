"""Why an update ends without a checkpoint.

UpdateFailed
  ContradictoryUpdate   the config asks for what batch or model cannot give; refused before any work
  UpdateDiverged        it ran away from its data: three steps in a row, or all of them, could not be taken
UpdateCancelled         somebody asked to stop
DoesNotFit              memory ran out; another try may find more
"""


class UpdateFailed(RuntimeError):
    """Nothing usable can come of this update; the message says why."""


class ContradictoryUpdate(UpdateFailed):
    """The batch cannot be learnt from as the config asks; the message says what would be right."""


class UpdateDiverged(UpdateFailed):
    """Learning from this batch leads nowhere good; nothing of it is kept, and it should not be learnt from again."""


class UpdateCancelled(RuntimeError):
    """Somebody asked to stop. No checkpoint was written; the last snapshot stays."""


class DoesNotFit(RuntimeError):
    """Memory ran out even with one sample at a time."""
