"""``torchvision.tv_tensors``: an ``Image`` with lazy values, which ``Image(...)`` makes of lazy images and tensors."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any, ClassVar

import torch
from PIL import Image
from torchvision import tv_tensors

from accel.hooks.patch import Body, Function
from accel.lazy import mixing, views
from accel.lazy.from_pixels import lazy_image
from accel.lazy.loader_batch import send
from accel.lazy.tensor import LazyTensor, clone, cpu, cuda, is_pinned, pin_memory, stack_lazy, to
from accel.lazy.tensor_base import LazyTensorBase, is_lazy, takes
from accel.system.private_names import private

_helpers = private("torchvision.tv_tensors._torch_function_helpers", "_must_return_subclass")


def keeps_class() -> bool:
    """Whether torch's operations must return torchvision's classes (``set_return_type``), not plain tensors."""
    return bool(_helpers._must_return_subclass())


def as_pure_tensor(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Adapt LazyTensor's handler to a function that returns plain tensors for torchvision's tv_tensors."""

    def handle(image: Any, *args: Any, **kwargs: Any) -> Any:
        result = NotImplemented if keeps_class() or not takes(handler, kwargs) else handler(image, *args, **kwargs)
        if result is NotImplemented or type(result) is LazyTensor:
            return result
        if not is_lazy(result):
            return result.as_subclass(torch.Tensor)
        pure = result.as_lazy(LazyTensor)
        pure.lazy = result.lazy
        return pure

    return handle


class LazyTVImage(LazyTensorBase, tv_tensors.Image):  # type: ignore[misc]
    """A ``torchvision.tv_tensors.Image`` on the CPU with lazy values."""

    becomes: ClassVar[type[torch.Tensor]] = tv_tensors.Image
    handlers: ClassVar[dict[Any, Callable[..., Any]]] = {
        torch.stack: as_pure_tensor(stack_lazy),
        torch.Tensor.clone: clone,
        torch.Tensor.to: to,
        torch.Tensor.cuda: as_pure_tensor(cuda),
        torch.Tensor.cpu: as_pure_tensor(cpu),
        torch.Tensor.pin_memory: as_pure_tensor(pin_memory),
        torch.Tensor.is_pinned: is_pinned,
        **dict.fromkeys((torch.Tensor.view, torch.Tensor.reshape), as_pure_tensor(mixing.view)),
        **dict.fromkeys(LazyTensorBase.either, as_pure_tensor(mixing.multiplied)),
    }

    @staticmethod
    def wrap(value: torch.Tensor, like: Any, **kwargs: Any) -> torch.Tensor:
        """Make an image of a tensor, as torchvision's own code does."""
        if is_lazy(value) and isinstance(value, LazyTensorBase):
            return value.as_lazy(LazyTVImage)
        image: torch.Tensor = value.as_subclass(tv_tensors.Image)
        return image

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        return self.clone()  # torchvision's deepcopy, too, copies no attributes


def of_image(inpt: Any) -> LazyTVImage | None:
    """The lazy ``tv_tensors.Image`` of a Pillow image, or of a lazy tensor with its memory; None: there is none."""
    if isinstance(inpt, Image.Image):
        image = lazy_image(inpt)
        return None if image is None else image.as_uint8_tensor(LazyTVImage)
    return views.of_class(inpt, LazyTVImage) if type(inpt) is LazyTensor and is_lazy(inpt) else None


def _new(
    original: Function, cls: Any, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: Any = None
) -> Any:
    """``tv_tensors.Image(data)``; one with a dtype, a device or for gradients is torchvision's own."""
    plain = cls is tv_tensors.Image and dtype is None and device is None and requires_grad is None
    lazy = of_image(data) if plain else None
    return original(cls, data, dtype=dtype, device=device, requires_grad=requires_grad) if lazy is None else lazy


PATCHES = (Body("torchvision.tv_tensors.Image.__new__", _new),)

ForkingPickler.register(LazyTVImage, send)
