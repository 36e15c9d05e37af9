"""Calls of functions that record a row of the table by themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from accel.ops.accept import NotFinite
from accel.ops.row import Accept, Params, Subject


class Call(NamedTuple):
    """How a function is called.

    Attributes:
        first: its first parameter, the image. names: those after it. defaults: of those that have one.
        accept: the row's check.
    """

    first: str
    names: tuple[str, ...]
    defaults: dict[str, Any]
    accept: Accept

    @staticmethod
    def of(function: Callable[..., Any], accept: Accept) -> Call:
        first, *others = inspect.signature(function).parameters.values()
        defaults = {each.name: each.default for each in others if each.default is not each.empty}
        return Call(first.name, tuple([each.name for each in others]), defaults, accept)

    def params(self, of: Subject, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Params | None:
        """The parameters of the step to record, from the arguments after the first; None: it is not recorded.

        Raises:
            NotFinite: one is NaN or infinite.
        """
        others = self.names[len(args) :]
        if kwargs or others or len(args) > len(self.names):
            rest = {**self.defaults, **kwargs}
            if len(args) > len(self.names) or not kwargs.keys() <= set(others) <= rest.keys():
                return None
            args = (*args, *[rest[name] for name in others])
        try:
            return self.accept(of, args)
        except NotFinite:
            raise
        except Exception:
            return None  # the original says what is wrong
