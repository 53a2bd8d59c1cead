"""What can go wrong, and whose it is to fix.

    MegaphoneError
      PlanError         the user's: a plan, a control message or an argument that cannot be followed
      FoldError         the user's: a fold that raised; carries operator, bin and time
      WorkerLost        the machine's: a worker process is gone
      CheckpointError   the checkpoint's: state that is damaged, missing, or of another query
      ProtocolError     ours: the one rule would have been broken

The first line of every message says the fact with its values, since Spark buries the rest.
"""

from megaphone.printing import plain


class MegaphoneError(Exception):
    """Base of everything Megaphone raises on purpose."""

    def __str__(self) -> str:
        # Python prints it when nobody catches it, whatever it quotes.
        return plain(super().__str__())


class PlanError(MegaphoneError):
    """A plan, control message or argument that cannot be followed; nothing has changed."""


class FoldError(MegaphoneError):
    """A user's fold raised; the first line says in which operator, bin and time."""


class WorkerLost(MegaphoneError):
    """A worker process is gone, and none could be put in its place."""


class CheckpointError(MegaphoneError):
    """What is in the checkpoint location is damaged, missing, or does not fit the query."""


class ProtocolError(MegaphoneError):
    """The one rule would have been broken: a bug in Megaphone, never the user's."""
