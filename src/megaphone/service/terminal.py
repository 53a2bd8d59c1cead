"""The terminal: what the command line writes there. Nothing in it is an order, wherever the text comes from."""

import argparse
import sys
from typing import Any

from megaphone.printing import plain


def say(text: str) -> None:
    """Write an answer to standard output."""
    sys.stdout.write(plain(text))
    sys.stdout.flush()


def say_json(value: Any) -> None:
    """Write an answer for programs to standard output."""
    # Here, since a version or a wrong argument is answered without it, and at once.
    import msgspec

    from megaphone.service.encoding import encode_json

    say(msgspec.json.format(encode_json(value), indent=2).decode() + "\n")


def complain(error: object) -> None:
    """Say what is wrong, on standard error."""
    sys.stderr.write(f"megaphone: {plain(str(error))}\n")


class Parser(argparse.ArgumentParser):
    """A parser whose complaints show arguments as they are: a name of a file can be anything."""

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(plain(message), file)
