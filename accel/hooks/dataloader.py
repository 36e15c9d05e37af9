"""Where accel enters Pillow, torchvision and torch's DataLoader: the only file that changes anything of theirs.

All of it is put in place when the first backend comes into force and taken back when the last one goes; what
is replaced passes straight through for everything that is not accel's.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from typing import IO, Any

import torch
import torchvision
from PIL import Image, ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from torch.utils.data import DataLoader, get_worker_info
from torchvision.datasets import folder
from torchvision.transforms import (
    LinearTransformation,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    functional,
    v2,
)

from accel import switch
from accel.backend import backend_of, host_of
from accel.codec.header import Header, claim
from accel.errors import DecodeError
from accel.hooks import (
    image_open,
    multiprocessing,
    patch,
    pillow_enhance,
    random_params,
    to_pil_image,
    torch_compile,
    tv_functional,
    tv_functional_pil,
    tv_functional_tensor,
    tv_io,
    v2_forward,
    v2_kernels,
)
from accel.hooks.collating import Collating
from accel.lazy import held, loader_batch, search, tensor
from accel.lazy.base import LateTensor
from accel.lazy.image import LazyImage
from accel.lazy.jpeg_file import UNCLAIMED, LazyJpegFile
from accel.lazy.unread import Unread, opened
from accel.ops import kernels as ops_kernels
from accel.options import Selection
from accel.recipe import Source
from accel.system import counters, log, memory, notes, private_names, replaced
from accel.system.imports import LazyModule
from accel.system.private_names import private
from accel.workers import slot_pool

_mpo = LazyModule("accel.lazy.mpo_file")
private("PIL.Image", "_decompression_bomb_check")
collate = private("torch.utils.data._utils.collate", "default_collate_fn_map", "collate_tensor_fn")
fetch = private("torch.utils.data._utils.fetch", "_MapDatasetFetcher.fetch", "_IterableDatasetFetcher.fetch")
worker = private("torch.utils.data._utils.worker", "_worker_loop")
wrapper = private("torch._utils", "ExceptionWrapper")
_BY_METHODS = ("hflip", "vflip", "resize", "rotate", "affine", "perspective")
_functional_pil = private(
    "torchvision.transforms._functional_pil", *_BY_METHODS, "crop", "pad", *tv_functional_pil.NAMES
)
_functional_tensor = private("torchvision.transforms._functional_tensor", *ops_kernels.V1)
v2_geometry = private(
    "torchvision.transforms.v2.functional._geometry",
    "_resize_image_pil",
    "_elastic_image_pil",
    "_resized_crop_image_pil",
)
v2_misc = private("torchvision.transforms.v2.functional._misc", "_gaussian_blur_image_pil", "convert_image_dtype")
v2_augment = private("torchvision.transforms.v2.functional._augment", "_jpeg_image_pil", "_erase_image_pil")
v2_color = private("torchvision.transforms.v2.functional._color", "_permute_channels_image_pil")
v2_dispatch = private("torchvision.transforms.v2.functional._utils", "_KERNEL_REGISTRY")
v2_transform = private(
    "torchvision.transforms.v2._transform", "_RandomApplyTransform", "Transform._needs_transform_list"
)
v2_utils = private("torchvision.transforms.v2._utils", "_get_fill")
private("torch.utils.data", "DataLoader._get_iterator")

_RECORDED = (
    "resized_crop",
    "to_tensor",
    "pil_to_tensor",
    "convert_image_dtype",
    "normalize",
    "erase",
)
"""Functions of ``torchvision.transforms.functional`` with a recorder of the same name in ``record``."""

_undo: list[patch.Undo] = []


def install() -> None:
    """Put every replacement in place.

    Raises:
        BackendUnavailable: this version of Pillow, torch or torchvision lacks a name that accel needs.
    """
    private_names.check()
    counters.share()
    with suppress(OSError):
        replaced.share()
    Image.preinit()
    try:
        _undo.append(patch.body(Image.open, image_open.image_open))  # type: ignore[arg-type]
        _undo.append(image_open.unwatch)
        _undo.append(patch.item(Image.OPEN, "JPEG", _opener(*Image.OPEN["JPEG"])))
        _undo.append(patch.body(folder.default_loader, _default_loader))
        _undo.append(patch.body(folder.pil_loader, _pil_loader))
        _undo.append(patch.body(RandomResizedCrop.get_params, random_params.get_params))
        _undo.append(patch.body(RandomCrop.get_params, random_params.get_crop))
        _undo.append(patch.body(RandomCrop.forward, random_params.crop))
        draw = random_params.make_params(v2.RandomResizedCrop.make_params)
        _undo.append(patch.attribute(v2.RandomResizedCrop, "make_params", draw))
        needs = v2_forward.needs(v2.Transform._needs_transform_list)
        _undo.append(patch.attribute(v2.Transform, "_needs_transform_list", needs))
        for transform, make in (
            (v2.Transform, v2_forward.plain),
            (v2_transform._RandomApplyTransform, v2_forward.by_chance),
        ):
            _undo.append(patch.attribute(transform, "forward", make(transform.forward)))
        for flip in (RandomHorizontalFlip, RandomVerticalFlip):
            _undo.append(patch.body(flip.forward, random_params.flip))
        for name in _BY_METHODS:
            _undo.append(patch.body(getattr(_functional_pil, name), tv_functional.on_pillow))
        for name in ("crop", "pad"):
            _undo.append(patch.body(getattr(_functional_pil, name), getattr(tv_functional, name)))
        _undo.append(patch.body(v2_geometry._resize_image_pil, tv_functional.on_pillow))
        for name in tv_functional_pil.NAMES:
            recorder = getattr(tv_functional_pil, name, None) or tv_functional_pil.recorder(name)
            _undo.append(patch.body(getattr(_functional_pil, name), recorder))
        for name in _RECORDED:
            _undo.append(patch.body(getattr(functional, name), getattr(tv_functional, name)))
        for function, recorder in (
            (functional.gaussian_blur, tv_functional_pil.gaussian_blur(1)),
            (v2_misc._gaussian_blur_image_pil, tv_functional_pil.gaussian_blur(2)),
            (functional.elastic_transform, tv_functional_pil.elastic(1)),
            (v2_geometry._resized_crop_image_pil, tv_functional.resized_crop_of_v2),
            (v2_geometry._elastic_image_pil, tv_functional_pil.elastic(2)),
            (v2_augment._jpeg_image_pil, tv_functional_pil.jpeg),
            (v2_augment._erase_image_pil, tv_functional_pil.erase),
            (v2_color._permute_channels_image_pil, tv_functional_pil.permute_channels),
        ):
            _undo.append(patch.body(function, recorder))
        for function, recorder in pillow_enhance.entries():
            _undo.append(patch.body(function, recorder))
        _undo.append(patch.body(v2.functional.to_image, v2_kernels.to_image))
        _undo.append(patch.body(functional.to_pil_image, to_pil_image.to_pil_image))
        _undo.append(patch.body(v2_misc.convert_image_dtype, v2_kernels.convert_image_dtype))
        for name in ops_kernels.V1:
            _undo.append(patch.body(getattr(_functional_tensor, name), tv_functional_tensor.v1(name)))
        for owner, name in ((LinearTransformation, "forward"), (v2.LinearTransformation, "transform")):
            _undo.append(patch.attribute(owner, name, v2_kernels.linear_transformation(getattr(owner, name))))
        for owner, name, param in ((v2.MixUp, "mixup", "lam"), (v2.CutMix, "cutmix", "box")):
            _undo.append(patch.attribute(owner, "transform", v2_kernels.mixed(owner.transform, name, param)))
        for reader, late_reader in tv_io.readers():
            _undo.append(patch.body(reader, late_reader))
        _undo.append(
            patch.attribute(v2.ToPureTensor, "transform", v2_kernels.to_pure_tensor(v2.ToPureTensor.transform))
        )
        for function, cls, kernel in v2_kernels.kernels():
            _undo.append(patch.item(v2_dispatch._KERNEL_REGISTRY[function], cls, kernel))
        _undo.append(patch.body(v2_utils._get_fill, tv_functional.get_fill))
        _undo.append(patch.attribute(v2.ToDtype, "transform", tv_functional.to_dtype(v2.ToDtype.transform)))
        torch_compile.keep_out()
        _undo.append(patch.attribute(torch, "compile", torch_compile.compile(torch.compile)))
        exporters = [(module, "to_dlpack") for module in (torch, torch.utils.dlpack)]
        for module, name in ((torch.jit, "trace"), (torch.export, "export"), *exporters):
            _undo.append(patch.attribute(module, name, torch_compile.settling(getattr(module, name))))
        # the place of all tensors: with one more key the mapping would change its size while another thread collates
        collating = _collate(collate.default_collate_fn_map[torch.Tensor])
        _undo.append(patch.item(collate.default_collate_fn_map, torch.Tensor, collating))
        for fetcher in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
            _undo.append(patch.attribute(fetcher, "fetch", _fetch(_located(fetcher.fetch))))
        if not notes.SHOWN_BY_PYTHON:
            told = notes.in_wrapped(wrapper.ExceptionWrapper.__init__)
            _undo.append(patch.attribute(wrapper.ExceptionWrapper, "__init__", told))
        _undo.append(patch.attribute(DataLoader, "_get_iterator", _get_iterator(DataLoader._get_iterator)))
        _undo.append(patch.attribute(worker, "_worker_loop", _WorkerEntry(worker._worker_loop)))
        made = staticmethod(_parameter(torch.nn.Parameter.__new__))
        _undo.append(patch.attribute(torch.nn.Parameter, "__new__", made))
        for replace in multiprocessing.entries():
            _undo.append(replace())
    except Exception as error:
        uninstall()
        private_names.refuse(f"{type(error).__name__}: {error}")


def uninstall() -> None:
    """Take everything back, last change first."""
    while _undo:
        _undo.pop()()


switch.on_use(install, uninstall)


# -- opening images -----------------------------------------------------------------------------------------


def _opener(original: Callable[..., Any], accept: Any) -> tuple[Callable[..., Any], Any]:
    """Pillow's JPEG opener: ours for files that accel claims, else the original."""

    def open_jpeg(file: IO[bytes], filename: str | bytes = "") -> Any:
        selection = switch.current()
        if selection.steps_aside:
            return original(file, filename)
        data = opened(file)
        if isinstance(data, Unread):
            return LazyJpegFile.open_unread(data, filename, _name(file, filename), selection, _claimed)
        header = claim(data)
        if header is None or not _claimed(header, selection):
            counters.fallback(UNCLAIMED)
            file.seek(0)
            return original(file, filename)
        source = Source(data, header, _name(file, filename), selection)
        kept = original(BytesIO(data), filename) if header.pictures else None  # Pillow says what it is
        if kept is None or type(kept) is JpegImageFile:
            image = LazyJpegFile.open(source, filename)
            image._file = kept
        else:
            image = _mpo.LazyMpoFile.open(source, filename, kept)
        image.__dict__["_open_file"] = file
        return image

    return open_jpeg, accept


def _name(file: IO[bytes], filename: str | bytes) -> str:
    return str(os.fsdecode(filename) or getattr(file, "name", "") or "<bytes>")


def _claimed(header: Header, selection: Selection) -> bool:
    """Whether a file is accel's. An incomplete one is Pillow's, which raises, unless it is to be replaced."""
    replaced = selection.options.on_error == "replace" and not ImageFile.LOAD_TRUNCATED_IMAGES
    return header.complete or replaced


def _default_loader(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torchvision.datasets.folder.default_loader``, without its import statement."""

    def default_loader(path: Any) -> Any:
        return (original if torchvision.get_image_backend() == "accimage" else folder.pil_loader)(path)

    return default_loader


def _pil_loader(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torchvision.datasets.folder.pil_loader``, without the detour through ``Image.open``."""

    def pil_loader(path: Any) -> Any:
        selection = switch.current()
        if selection.steps_aside:
            return original(path)
        read = memory.file_buffers.read(path)
        if read is None:
            return original(path)
        buffer, size = read
        header = claim(buffer, size)
        if header is None or header.pictures or not _claimed(header, selection):
            memory.file_buffers.give_back(buffer)
            return original(path)
        try:
            Image._decompression_bomb_check((header.width, header.height))
        except Image.DecompressionBombError:  # Image.open says so as well, or replaces it
            memory.file_buffers.give_back(buffer)
            return original(path)
        source = Source(memoryview(buffer)[:size].toreadonly(), header, str(path), selection, buffer)
        return LazyImage.load_rgb(source)

    return pil_loader


# -- loading batches ----------------------------------------------------------------------------------------


def _collate(original: Callable[..., Any]) -> Callable[..., Any]:
    """What ``default_collate`` does with tensors, late ones too; what a user has put there gets these as they are."""

    @functools.wraps(original)
    def collate_tensor_fn(batch: list[Any], *, collate_fn_map: Any = None) -> Any:
        if original is not collate.collate_tensor_fn or not isinstance(batch[0], LateTensor):
            return original(batch, collate_fn_map=collate_fn_map)
        stacked = (
            None if isinstance(batch[0], v2_kernels.LazyTVImage) and v2_kernels.keeps_class() else tensor.stack(batch)
        )
        if stacked is None:
            plain = [LateTensor.evaluate(t) if isinstance(t, LateTensor) else t for t in batch]
            return original(plain, collate_fn_map=collate_fn_map)
        return tensor.evaluated_in_worker(stacked)

    return collate_tensor_fn


def _parameter(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.nn.Parameter.__new__``: of a late tensor's values, for it makes something else of other classes."""

    @functools.wraps(original)
    def new(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        data = LateTensor.evaluate(data) if isinstance(data, LateTensor) else data
        return original(cls, data, requires_grad)

    return new


def _located(original: Callable[..., Any]) -> Callable[..., Any]:
    """A fetcher's ``fetch``; what a sample raises has a note from where it came."""

    def fetch(self: Any, index: Any) -> Any:
        if switch.current().steps_aside:
            return original(self, index)
        batched = self.auto_collation and type(index) is list
        indices = notes.Indices(index) if batched else index
        try:
            return original(self, indices)
        except StopIteration:
            raise
        except Exception as error:
            if notes.passed(error, Collating.__call__):
                indices = None
            elif self.auto_collation and not batched:
                indices = tuple(index)
            notes.locate(error, indices)
            raise

    return fetch


def _fetch(original: Callable[..., Any]) -> Callable[..., Any]:
    """A fetcher's ``fetch``; a host backend's worker computes the batch there, before it is sent."""

    @functools.wraps(original)
    def fetch_batch(self: Any, index: Any) -> Any:
        if not isinstance(self.collate_fn, Collating):
            self.collate_fn = Collating(self.collate_fn)
        if get_worker_info() is None:
            batch = original(self, index)
            loader_batch.gather(search.late_tensors(batch), 0, index)
            return batch
        if sys._getframe(1).f_code.co_name != "_worker_loop":
            return original(self, index)
        computes = _computes_in_workers(switch.current())
        try:
            with tensor.fetching():
                batch = original(self, index)
            lates = search.late_tensors(batch, sent=computes)
            loader_batch.gather(lates, slot_pool.loader_number(), index)
            for late_tensor in lates:
                tensor.evaluated_in_worker(late_tensor)
        except DecodeError as error:
            where = index[error.position or 0] if isinstance(index, list) and error.batch == len(index) else None
            if where is None:
                raise
            raise type(error)(f"{error} (dataset index {where})") from error
        return slot_pool.outgoing(batch)

    return fetch_batch


def _computes_in_workers(selection: Selection) -> bool:
    return not selection.steps_aside and not backend_of(selection).devices


def _get_iterator(original: Callable[..., Any]) -> Callable[..., Any]:
    """``DataLoader._get_iterator``, which prepares what workers need before they are started."""

    @functools.wraps(original)
    def get_iterator(self: Any) -> Any:
        selection = switch.current()
        if self.num_workers == 0 or selection.steps_aside:
            return original(self)
        host_of(selection).prepare()
        held.compute(self.dataset, getattr(selection.options, "threads", None))
        log.settle()
        with slot_pool.loader(self.multiprocessing_context) as keep_for:
            iterator = original(self)
            keep_for(iterator)
        return iterator

    return get_iterator


class _WorkerEntry:
    """The function a DataLoader worker runs. Not forked, it brings along what only its loader knows."""

    def __init__(self, original: Callable[..., Any]) -> None:
        self.original = original

    def __call__(self, *args: Any) -> Any:
        try:
            return self.original(*args)
        finally:
            log.settle()

    def __reduce__(self) -> tuple[Any, ...]:
        return _enter_worker, (switch.current(), slot_pool.to_join())


def _enter_worker(selection: Selection, loader: Any) -> Callable[..., Any]:
    slot_pool.join(*loader)
    switch.adopt(selection)
    return worker._worker_loop  # type: ignore[no-any-return]
