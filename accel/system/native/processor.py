"""The processor that code is compiled for, and run on."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import llvmlite.binding as ll


@cache
def found() -> tuple[str, str]:
    """LLVM's names of the processor and its features: $NUMBA_CPU_NAME and $NUMBA_CPU_FEATURES, or this machine's."""
    if name := os.environ.get("NUMBA_CPU_NAME"):
        return name, os.environ.get("NUMBA_CPU_FEATURES", "")
    try:
        return ll.get_host_cpu_name(), ll.get_host_cpu_features().flatten()
    except RuntimeError:  # LLVM does not know them here
        return ll.get_host_cpu_name(), ""


def machine(cpu: str, features: str) -> Any:
    """LLVM's target machine for a processor, with the same settings as numba's."""
    ll.initialize_native_target()
    ll.initialize_native_asmprinter()
    target = ll.Target.from_triple(ll.get_process_triple())
    place = "static" if target.name.startswith("x86") else "default"
    return target.create_target_machine(cpu, features, opt=3, reloc=place, codemodel="jitdefault", jit=True)


def engine(code: bytes) -> Any:
    """LLVM's engine with an object file loaded, ready to run."""
    made = ll.create_mcjit_compiler(ll.parse_assembly(""), machine(*found()))
    made.add_object_file(ll.ObjectFileRef.from_data(code))
    made.finalize_object()
    return made
