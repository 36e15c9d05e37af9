"""A leaner numba for compiling to files. It changes numba, so it is for a process that does nothing else.

Left out are: machine code for each single function, and wrappers for calls from Python; passes for features that no
source here uses; and counting references to arrays, in units that make none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import cgutils
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
    """numba's library of a function's code, here as text: its own LLVM modules, and the libraries that it calls."""

    counts = True

    def __init__(self, codegen: Any, name: str) -> None:
        super().__init__(codegen, name)
        self.own: list[str] = []
        self.callees: list[Any] = []

    def add_ir_module(self, module: Any) -> None:
        self.own.append(cgutils.normalize_ir_text(str(module)))

    def add_linking_library(self, library: Any) -> None:
        if self.counts or library is not rtsys.library:
            self.callees.append(library)

    def finalize(self) -> None:
        self._finalized = True

    def get_llvm_str(self) -> str:
        return "\n".join(self.own)

    get_asm_str = get_llvm_str

    def get_function(self, name: str) -> None:
        """Return None: no machine code has been made."""


def strip(*, counts: bool) -> None:
    """Change numba. ``counts``: whether it counts references to arrays, which code that makes arrays needs."""
    target = cpu_target.target_context
    target.codegen()._library_class = Texts
    target.create_cpython_wrapper = target.create_cfunc_wrapper = _nothing
    target.get_executable = lambda *given: [].append  # a new built-in function each time, which is never called
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
