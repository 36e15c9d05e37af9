"""Functions for numba's code that say in LLVM's instructions what they do."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from numba.extending import intrinsic


def emitted(result: Any, *kinds: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make an intrinsic of a function of LLVM's builder and values, which emits what becomes of them.

    Args:
        result: numba's type of what the function returns; ``void``: nothing.
        kinds: the types of the values; None: as they are given.
    """

    def made(emit: Callable[..., Any]) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            value = emit(builder, *values)
            return context.get_dummy_value() if value is None else value

        @wraps(emit)
        def typed(typing_context: Any, *given: Any) -> Any:
            return result(*(kind or each for kind, each in zip(kinds, given, strict=True))), generate

        return intrinsic(typed)

    return made
