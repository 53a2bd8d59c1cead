"""Trust: whether what is in a checkpoint may be unpickled, for those who read it and for queries that go on from it.

On a local file system nobody may be able to put anything there but this user and root, and whom the user has let in by
group rights; anything else is refused, unless the user vouches for it. Where rights cannot be judged the user is told.
"""

from pathlib import Path

from megaphone.durability.rights import fault_of_file, fault_of_folder, remarks_on, resolved
from megaphone.errors import CheckpointError
from megaphone.printing import LOGGER

SWITCH = "spark.megaphone.trust.checkpoint"
"""A setting of Spark's with which the user vouches for all checkpoints."""

DANGER = "what is read from a checkpoint can run code as you"

_told: set[str] = set()


def is_trusted(setting: str | None) -> bool:
    """Does the user vouch for checkpoints? By the value of the switch."""
    return (setting or "").strip().lower() == "true"


class Judge:
    """Refuses what others could have put into one checkpoint on a local file system."""

    def __init__(self, checkpoint: str) -> None:
        """Judge what is read below a folder, itself included."""
        self._checkpoint = resolved(checkpoint)
        self._good: dict[str, str] = {}

    def folder(self, folder: str) -> str:
        """Where a folder is, without links, if nobody else can change that, or what is in it; refused otherwise."""
        if folder not in self._good:
            real = resolved(folder)
            _refuse(fault_of_folder(real, self._checkpoint))
            self._good[folder] = real
        return self._good[folder]

    def file(self, file: str) -> str:
        """Where a file is, if nobody else can have put it there; refused otherwise."""
        given = Path(file)
        # The folder first: from then on nobody else can change what is found in it.
        path = Path(self.folder(str(given.parent)), given.name)
        if path.is_symlink():
            path = Path(resolved(str(path)))
            self.folder(str(path.parent))
        _refuse(fault_of_file(path))
        return str(path)

    def tell(self, folder: str) -> None:
        """Tell the user what only the user can judge."""
        for remark in remarks_on(resolved(folder), self._checkpoint):
            tell_once(remark)


def tell_once(remark: str) -> None:
    """Tell the user something about a checkpoint, once in the life of a process."""
    if remark not in _told:
        _told.add(remark)
        LOGGER.warning(
            "%s: let nobody write there whom you would not let run code as you (%s=true: say no more)", remark, SWITCH
        )


def _refuse(fault: str | None) -> None:
    if fault is not None:
        raise CheckpointError(
            f"{fault}, and {DANGER}; use a folder that nobody else can write to, or set {SWITCH}=true if you trust all "
            "who can"
        )
