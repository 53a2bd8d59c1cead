"""Printing: texts from outside made harmless for a terminal, which takes some characters for orders.

Names, hosts, keys, paths and errors of others can have escapes in them, which clear the screen or write into it, and
characters that turn the direction of writing, so that a text reads as another one.
"""

import logging


def printable(text: str) -> str:
    """A text in one line, in which nothing is an order for a terminal, or is no Unicode.

    >>> printable("no\\x1b[2J \\ud800")
    'no\\\\x1b[2J \\\\ud800'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def plain(text: str) -> str:
    """The same for a text of several lines, with tabs.

    >>> plain("one\\n\\ttwo\\r\\u202e")
    'one\\n\\ttwo\\\\r\\\\u202e'
    """
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


class Harmless(logging.Filter):
    """Lets every record pass, as a text that is harmless."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Put the text of a record into form."""
        record.msg, record.args = plain(record.getMessage()), None
        if record.exc_info and not record.exc_text:
            record.exc_text = plain(logging.Formatter().formatException(record.exc_info))
        return True


LOGGER = logging.getLogger("megaphone")
"""What is told of queries, and of what goes wrong."""

LOGGER.addFilter(Harmless())
