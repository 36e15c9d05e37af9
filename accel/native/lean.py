"""numba without what code for a file does not need. It changes numba, so it is for a process that does nothing else.

Left out are: machine code of each function, and functions around it for calls from Python; passes that serve what no
source here does; and counting references to arrays, in units that make none. Types of calls are looked up once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from numba.core import cgutils, types
from numba.core.codegen import CodeLibrary
from numba.core.compiler import DefaultPassBuilder
from numba.core.registry import cpu_target
from numba.core.runtime.context import NRTContext
from numba.core.runtime.nrt import rtsys

_OF_NO_USE = {
    "AnnotateTypes",
    "DumpParforDiagnostics",
    "FindLiterallyCalls",
    "InlineClosureLikes",
    "InlineInlinables",
    "InlineOverloads",
    "LiteralPropagationSubPipelinePass",
    "LiteralUnroll",
    "MakeFunctionToJitFunction",
    "NoPythonSupportedFeatureValidation",
    "NopythonRewrites",
    "RewriteDynamicRaises",
    "WithLifting",
}
"""Passes for closures, ``with``, ``literal_unroll``, whole-array expressions and reports."""


class Texts(CodeLibrary):  # type: ignore[misc]
    """What numba keeps a function's code in, here as text: a module of LLVM's, and the libraries that it calls."""

    counts = True

    def __init__(self, codegen: Any, name: str) -> None:
        super().__init__(codegen, name)
        self.own: list[str] = []
        self.linked: list[Any] = []

    def add_ir_module(self, module: Any) -> None:
        self.own.append(cgutils.normalize_ir_text(str(module)))

    def add_linking_library(self, library: Any) -> None:
        if self.counts or library is not rtsys.library:
            self.linked.append(library)

    def finalize(self) -> None:
        self._finalized = True

    def get_llvm_str(self) -> str:
        return "\n".join(self.own)

    get_asm_str = get_llvm_str

    def get_function(self, name: str) -> None:
        """None has been made."""


def texts(libraries: Iterable[Any]) -> list[str]:
    """The modules, as text, that the code in these libraries consists of, each once."""
    seen: list[Any] = []
    ahead, found = list(libraries), list[str]()
    while ahead:
        library = ahead.pop()
        if library not in seen:
            seen.append(library)
            is_ours = isinstance(library, Texts)
            found += library.own if is_ours else [library.get_llvm_str()]
            ahead += library.linked if is_ours else ()
    return found


def strip(*, counts: bool) -> None:
    """Change numba. ``counts``: it is to count the references to arrays, as code that makes some needs."""
    typing, target = cpu_target.typing_context, cpu_target.target_context
    target.codegen()._library_class = Texts
    target.create_cpython_wrapper = target.create_cfunc_wrapper = _nothing
    target.get_executable = lambda *given: [].append  # a built-in function of its own, which is never called
    typing.resolve_function_type = _remembering(typing.resolve_function_type)
    DefaultPassBuilder.define_nopython_pipeline = staticmethod(_shorter(DefaultPassBuilder.define_nopython_pipeline))
    if not counts:
        NRTContext.incref = NRTContext.decref = _nothing
        Texts.counts = False


def _nothing(*given: Any, **more: Any) -> None:
    pass


def _shorter(define: Callable[..., Any]) -> Callable[..., Any]:
    def pipeline(state: Any, name: str = "nopython") -> Any:
        made = define(state, name)
        made.passes = [each for each in made.passes if each[0].__name__ not in _OF_NO_USE]
        return made

    return pipeline


def _remembering(resolve: Callable[..., Any]) -> Callable[..., Any]:
    """``resolve``, which tries all that an operator or a function of numba's may mean, once for each kind of call."""
    known: dict[Any, Any] = {}

    def resolved(function: Any, given: tuple[Any, ...], named: Any) -> Any:
        is_numbas = isinstance(function, types.Function) or not isinstance(function, types.Type)
        if named or not is_numbas or not all(isinstance(kind, types.Type) for kind in given):
            return resolve(function, given, named)
        if (found := known.get((function, given))) is None:
            found = known[function, given] = resolve(function, given, named)
        return found

    return resolved
