"""Compiling functions written for numba to object code.

Numba only translates them, and LLVM optimises all functions of a unit once, together. (By itself numba also optimises
each function with all that it calls, and makes code for calls from Python, which are not needed here: see ``lean``.)
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import llvmlite.binding as ll
import numpy as np
from llvmlite import ir
from numba import from_dtype, njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from accel.system.native.intrinsics import emitted
from accel.system.native.processor import machine
from accel.system.native.signatures import FAILED, WRONG, Parameter, parameters

_LIBM = ("sin", "cos", "exp", "log", "pow", "fmod", "floor", "ceil", "trunc", "rint", "nearbyint", "round", "fma")
_MEMORY = ("memcpy", "memmove", "memset", "memcmp", "malloc", "free")
_LIBC = {*_MEMORY, "clock_gettime", *_LIBM, *(f"{name}f" for name in _LIBM)}
"""Functions that compiled code may call, because every process has them."""


def compiled(functions: Sequence[tuple[str, str, str]], cpu: str, features: str) -> bytes:
    """Compile functions (module, name, signature) to an object file with an entry for each, under its name.

    An entry is a C function ``int64 entry(int64 ndarray, ...)``: its first argument is the type ``numpy.ndarray``; of
    the others, arrays are NumPy's objects, and the rest are numbers. ``cpu`` and ``features`` are LLVM's names.

    Raises:
        NotImplementedError: the code calls a function that only numba has.
    """
    made = {name: _translated(getattr(import_module(module), name), signature) for module, name, signature in functions}
    whole = ll.parse_assembly("")
    for text in _texts(library for _, library in made.values()):
        part = ll.parse_assembly(text)
        for function in part.functions:
            if not function.is_declaration:
                function.linkage = "weak_odr"
        whole.link_in(part)
    for name, (symbol, _) in made.items():
        whole.get_function(symbol).name = inner = f"{name}.inner"
        whole.link_in(ll.parse_assembly(_entry(whole.get_function(inner), name)))
    if any(function.name == "NRT_MemInfo_call_dtor" for function in whole.functions):
        whole.link_in(ll.parse_assembly(_allocator()))
    entries = {name for _, name, _ in functions}
    for function in whole.functions:
        if not function.is_declaration and function.name not in entries:
            function.linkage = "internal"
    target = machine(cpu, features)
    whole.triple, whole.data_layout = ll.get_process_triple(), str(target.target_data)
    _optimise(whole, target)
    called = {function.name for function in whole.functions if function.is_declaration}
    if strange := {name for name in called - _LIBC if not name.startswith("llvm.")}:
        raise NotImplementedError(f"compiled code calls {', '.join(sorted(strange))}, which only numba has")
    code: bytes = target.emit_object(whole)
    return code


def _texts(libraries: Iterable[Any]) -> list[str]:
    """The modules that the code in these libraries consists of, as text, each once.

    A library of numba's has everything that it calls in its module; one of ``lean``'s only its own functions. ``lean``
    is not imported for this: if it does not fit a version of numba, code is compiled without it.
    """
    seen: list[Any] = []
    ahead, found = list(libraries), list[str]()
    while ahead:
        library = ahead.pop()
        if library not in seen:
            seen.append(library)
            found += getattr(library, "own", None) or [library.get_llvm_str()]
            ahead += getattr(library, "callees", ())
    return found


def _optimise(module: Any, target: Any) -> None:
    options = ll.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = True
    passes = ll.create_pass_builder(target, options)
    manager = passes.getModulePassManager()
    manager.add_refprune_pass()  # removes pairs of taking and releasing a reference
    manager.run(module, passes)


def _allocator() -> str:
    """LLVM code for the allocator of arrays that numba's code expects, by malloc.

    A block begins with numba's MemInfo, of which the code uses the first word, the number of references, and the
    fourth, the address.
    """
    module, word, byte = ir.Module(), ir.IntType(64), ir.IntType(8).as_pointer()
    malloc = ir.Function(module, ir.FunctionType(byte, [word]), "malloc")
    free = ir.Function(module, ir.FunctionType(ir.VoidType(), [byte]), "free")
    for safe in ("", "_safe"):
        kind = ir.FunctionType(byte, [word, ir.IntType(32)])
        function = ir.Function(module, kind, f"NRT_MemInfo_alloc{safe}_aligned")
        builder = ir.IRBuilder(function.append_basic_block())
        size, alignment = function.args[0], builder.zext(function.args[1], word)
        header = ir.Constant(word, _HEADER)
        block = builder.call(malloc, [builder.add(builder.add(size, alignment), header)])
        with builder.if_then(builder.icmp_unsigned("==", block, ir.Constant(byte, None))):
            builder.ret(block)
        start = builder.add(builder.ptrtoint(block, word), builder.add(header, alignment))
        start = builder.sub(start, builder.urem(start, alignment))
        fields = builder.bitcast(block, word.as_pointer())
        for place, value in ((0, ir.Constant(word, 1)), (3, start)):
            builder.store(value, builder.gep(fields, [ir.Constant(word, place)]))
        builder.ret(block)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [byte]), "NRT_MemInfo_call_dtor")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.call(free, [function.args[0]])
    builder.ret_void()
    return str(module)


_HEADER = 64


# -- entries ------------------------------------------------------------------------------------------------


def _entry(inner: Any, name: str) -> str:
    """LLVM code for an entry with C's calling convention, around one with numba's.

    That is ``int inner(int64 *result, error **, ...)``, where 0 is success.
    """
    result, error, *kinds = (str(argument.type) for argument in inner.arguments)
    raised = "ptr" if error == "ptr" else error[:-1]  # the type that it points to
    given = ", ".join(f"{kind} %a{i}" for i, kind in enumerate(kinds))
    return f"""
        declare i32 @"{inner.name}"({", ".join([result, error, *kinds])})
        define i64 @"{name}"({given}) {{
            %result = alloca i64
            %error = alloca {raised}
            %status = call i32 @"{inner.name}"({result} %result, {error} %error, {given})
            %good = icmp eq i32 %status, 0
            %value = load i64, {result} %result
            %found = select i1 %good, i64 %value, i64 {FAILED}
            ret i64 %found
        }}"""


def _translated(function: Any, signature: str) -> tuple[str, Any]:
    """Translate a function by numba; return the name of an entry to it, and numba's library with that."""
    kinds = [_Argument(parameter) for parameter in parameters(signature)]
    tuple_type = types.Tuple([kind.type for kind in kinds])

    @emitted(types.boolean, None)
    def fits(builder: Any, words: Any) -> Any:
        ndarray, *words = cgutils.unpack_tuple(builder, words)
        good = cgutils.alloca_once_value(builder, cgutils.true_bit)
        for kind, word in zip(kinds, words, strict=True):
            for check in kind.checks:
                with builder.if_then(builder.load(good)):
                    builder.store(check(builder, word, ndarray), good)
        return builder.load(good)

    @intrinsic
    def arguments(typing: Any, words: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            words = cgutils.unpack_tuple(builder, values[0])[1:]
            made = [kind.value(context, builder, word) for kind, word in zip(kinds, words, strict=True)]
            return context.make_tuple(builder, tuple_type, made)

        return tuple_type(words), generate

    @intrinsic
    def integer(typing: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            if value == types.none:
                return context.get_constant(types.int64, 0)
            return context.cast(builder, values[0], value, types.int64)

        return types.int64(value), generate

    @njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)
    def entry(words):  # type: ignore[no-untyped-def]
        if not fits(words):
            return WRONG
        return integer(function(*arguments(words)))

    entry.compile((types.Tuple([types.int64, *(kind.word for kind in kinds)]),))
    (made,) = entry.overloads.values()
    return made.fndesc.llvm_func_name, made.library


class _Argument:
    """A parameter: a number, or a C-contiguous array.

    The fields of NumPy's objects are read at the places in numpy/ndarraytypes.h, which are the same for all versions.
    """

    def __init__(self, parameter: Parameter) -> None:
        self.dtype = np.dtype(parameter.code)
        self.type, self.word = from_dtype(self.dtype), types.int64
        self.checks: tuple[Any, ...] = ()
        self._parameter = parameter
        if parameter.dimensions:
            self.type = types.Array(self.type, parameter.dimensions, "C", readonly=not parameter.is_written)
            self.checks = (self._is_array, self._is_like_it)
        elif self.dtype.kind == "f":
            self.word = types.float64

    def value(self, context: Any, builder: Any, word: Any) -> Any:
        """The value of the parameter, from its word."""
        if self.checks:
            return self._array(context, builder, word)
        kind = context.get_value_type(self.type)
        if self.dtype.kind == "b":
            return builder.icmp_unsigned("!=", word, word.type(0))
        if self.dtype.itemsize == 8:
            return word
        return builder.fptrunc(word, kind) if self.dtype.kind == "f" else builder.trunc(word, kind)

    def _is_array(self, builder: Any, word: Any, ndarray: Any) -> Any:
        return builder.icmp_unsigned("==", _field(builder, word, -8, 64), ndarray)

    def _is_like_it(self, builder: Any, word: Any, ndarray: Any) -> Any:
        dimensions, flags = _field(builder, word, 8, 32), _field(builder, word, 48, 32)
        required = flags.type(_C_CONTIGUOUS | _ALIGNED | (_WRITEABLE if self._parameter.is_written else 0))
        good = builder.icmp_unsigned("==", builder.and_(flags, required), required)
        good = builder.and_(good, builder.icmp_unsigned("==", dimensions, dimensions.type(self.type.ndim)))
        if self._parameter.is_any:
            return good
        dtype = _field(builder, word, 40, 64)
        order, number = _field(builder, dtype, 10, 8), _field(builder, dtype, 12, 32)
        good = builder.and_(good, builder.icmp_unsigned("==", number, number.type(self.dtype.num)))
        return builder.and_(good, builder.icmp_unsigned("!=", order, order.type(ord(_FOREIGN))))

    def _array(self, context: Any, builder: Any, word: Any) -> Any:
        sizes = _field(builder, word, 16, 64)
        shape = [_at(builder, sizes, 8 * axis, 64) for axis in range(self.type.ndim)]
        item = context.get_constant(types.intp, self.dtype.itemsize)
        strides: list[Any] = [item]
        for size in reversed(shape[1:]):
            strides.insert(0, builder.mul(strides[0], size))
        array = context.make_array(self.type)(context, builder)
        data = builder.inttoptr(_field(builder, word, 0, 64), array.data.type)
        populate_array(array, data=data, shape=shape, strides=strides, itemsize=item, meminfo=None)
        return array._getvalue()


def _field(builder: Any, word: Any, offset: int, bits: int) -> Any:
    """An integer in a Python object, at an offset in bytes from the end of the header that all objects have."""
    return _at(builder, word, object.__basicsize__ + offset, bits)


def _at(builder: Any, address: Any, offset: int, bits: int) -> Any:
    place = builder.add(address, address.type(offset))
    return builder.load(builder.inttoptr(place, ir.IntType(bits).as_pointer()))


_C_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400
_FOREIGN = ">" if sys.byteorder == "little" else "<"
