"""Everything accel raises on its own behalf.

    AccelError
    |-- DecodeError                 (also an OSError, as Pillow's own decoding errors are)
    |   `-- TorchvisionDecodeError  (also a RuntimeError, as torchvision.io's are)
    |-- PackError                   (also an OSError)
    |-- WireError                   (also a ValueError)
    |-- ResumeError                 (also a ValueError)
    `-- BackendUnavailable          (also a RuntimeError)

Each is built from one string: DataLoader re-raises a worker's exception as ``type(exc)(message)``.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection
from typing import Any, TypeVar, cast

Result = TypeVar("Result")


class AccelError(Exception):
    """Base class of accel's exceptions."""


class DecodeError(AccelError, OSError):
    """Error of an image that cannot be decoded.

    Its message names the file, the image's place in the batch, the dataset index where it is known, and the reason.
    """

    position: int | None = None
    """The image's place in its plan, or the sample's place in its batch if ``batch`` (the batch's size) is set.

    None where unknown: unlike the message, it is not sent to other processes."""

    batch: int | None = None

    def again(self) -> DecodeError:
        """A copy of the error, to raise in another thread that waits for the same image."""
        error = type(self)(*self.args)
        error.position, error.batch = self.position, self.batch
        return error


class TorchvisionDecodeError(DecodeError, RuntimeError):
    """A ``DecodeError`` of an image that was read by ``torchvision.io``."""


class PackError(AccelError, OSError):
    """Error of a pack that is damaged or cannot be used; the message names the file and the reason."""


class WireError(AccelError, ValueError):
    """Error of a message of ``accel.wire`` that cannot be read; its text says why, and which part."""


class ResumeError(AccelError, ValueError):
    """Error of a DataLoader's state from which it cannot go on exactly; the message names what differs."""


class BackendUnavailable(AccelError, RuntimeError):
    """Error of a backend that cannot run here; its message says what is missing and how to get it."""


def meant(name: str, known: Collection[str]) -> str:
    """A hint at the backend that was meant, to end a message with; "" if it is none of those that are known."""
    plain = "cuda" if name.lower() == "gpu" else name.lower()
    return f"; did you mean {plain!r}?" if plain in known else ""


def require(holds: bool, otherwise: str) -> None:
    """Raise ``ValueError`` unless something holds that was read from bytes which may be anybody's."""
    if not holds:
        raise ValueError(otherwise)


def attempt(function: Callable[..., Result], *given: Any) -> Result | Exception:
    """Call a function and return its result, or the exception that it raised."""
    try:
        return function(*given)
    except Exception as error:
        return error


def emptied(error: Exception) -> Exception:
    """Drop the tracebacks of an exception that will be kept, and of its causes: their frames hold pixels.

    Of an exception that is not accel's, and so was not expected, the text becomes a note (Python 3.11).
    """
    if not isinstance(error, AccelError) and not getattr(error, "__notes__", None) and hasattr(error, "add_note"):
        error.add_note("".join(traceback.format_exception(error)).rstrip())
    found: list[BaseException] = [error]
    for each in found:
        each.__traceback__ = None
        found += [other for other in (each.__cause__, each.__context__) if other is not None and other not in found]
    return error


def only(results: list[Result | Exception]) -> Result:
    """Return the only result in a list, or raise it if it is an exception."""
    if isinstance(results[0], Exception):
        raise cast(Exception, results.pop())  # a variable here would keep its frames alive, and their pixels
    return results[0]
