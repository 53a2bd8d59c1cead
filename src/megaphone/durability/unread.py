"""An epoch that its sink did not read to the end: Spark has committed it, but some workers have not applied it.

Spark runs only the tasks whose rows a sink asks for. Its commit is then wrong, and the epoch must be repeated.
"""

from megaphone.errors import CheckpointError


def unread(checkpoint: str, epoch: int, fact: str) -> CheckpointError:
    """The error that says which epoch is incomplete, and how to repeat it.

    >>> print(unread("/data/words", 7, "workers [1] have not applied epoch 7"))
    workers [1] have not applied epoch 7, which Spark has committed: a sink must read all rows of every epoch; change \
the sink, delete the files numbered 7 and higher in commits/ and 8 and higher in offsets/ of /data/words, and start \
the query again, which repeats epoch 7
    """
    return CheckpointError(
        f"{fact}, which Spark has committed: a sink must read all rows of every epoch; change the sink, delete the "
        f"files numbered {epoch} and higher in commits/ and {epoch + 1} and higher in offsets/ of {checkpoint}, and "
        f"start the query again, which repeats epoch {epoch}"
    )
