"""The tables of ``accel.hooks``: all that accel replaces is in them, and every original comes back."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from types import FunctionType, ModuleType
from typing import Any

import pytest
import torch
from PIL import Image, ImageFile, JpegImagePlugin
from torch.utils.data._utils import collate, worker
from torchvision import transforms as T
from torchvision.datasets import folder
from torchvision.transforms import functional

import accel
from accel import hooks
from accel.hooks import patch
from accel.system import private_names
from tests.support import helpers
from tests.support.patches import Place, Same, place, table
from tests.support.processes import in_threads

_SETTINGS = "multiprocessing.process._current_process._config"
NOT_EVERYWHERE = ("os.environ", "torch._utils.ExceptionWrapper.__init__", _SETTINGS)
"""Names that are replaced where Ray is installed, and before Python 3.11; and one that no module holds."""


ORIGINALS: dict[str, Any] = {}
FUNCTIONS = (folder.pil_loader, functional.to_tensor, functional.pil_to_tensor, functional.normalize)


@pytest.fixture(autouse=True)
def _originals() -> None:
    """Those of the moment: torch.compile replaces ``torch.jit.trace`` when it is first used."""
    ORIGINALS.update(table())


def assert_installed(installed: bool) -> None:
    for name, value in table().items():
        if not name.startswith(NOT_EVERYWHERE):
            assert (value != ORIGINALS[name]) is installed, name
    for function in FUNCTIONS:
        assert hasattr(function, "__wrapped__") is installed


class State:
    """All that the modules of Pillow, torch and torchvision hold: names, functions, classes and mappings."""

    def __init__(self) -> None:
        self.parts: dict[int, dict[Any, Any]] = {}  # by the id of what they are parts of
        self.keep: list[Any] = []
        for name, module in list(sys.modules.items()):
            if name.split(".")[0] in ROOTS:
                self.look(module, 4)

    def look(self, value: Any, depth: int) -> None:
        kind = type(value)  # isinstance would ask some of them what they stand for
        if kind is ModuleType:
            parts = {name: part for name, part in vars(value).items() if type(part) is not ModuleType}
            parts = {name: part for name, part in parts.items() if not name.startswith("__")}
        elif kind in (staticmethod, classmethod):
            parts = {None: value.__func__}
        elif kind is FunctionType:
            parts = {**vars(value), **(value.__kwdefaults__ or {}), "__code__": value.__code__}
        elif issubclass(kind, dict):
            parts = dict(value)
        elif issubclass(kind, type) and value.__module__.split(".")[0] in ROOTS:
            parts = dict(vars(value))
        else:
            return
        if depth and id(value) not in self.parts:
            self.parts[id(value)] = parts
            self.keep.append(value)
            for part in parts.values():
                self.look(part, depth - 1)

    def changed(self) -> set[Place]:
        """Names that have changed since, of all that there were."""
        now = State().parts
        return {
            (owner, name)
            for owner, parts in self.parts.items()
            for name in parts.keys() | now.get(owner, parts).keys()
            if parts.get(name, Same) is not now.get(owner, parts).get(name, Same)
        }


ROOTS = ("PIL", "torch", "torchvision", "multiprocessing")


def test_the_tables_list_all_that_is_replaced() -> None:
    rows = {place(row)[0]: row.name for row in hooks.PATCHES}
    expected = {where for where, name in rows.items() if name not in NOT_EVERYWHERE}
    png = BytesIO()
    Image.new("RGB", (3, 2)).save(png, "PNG")
    with accel.image_backend("cpu"):  # what is imported, and kept, at the first switch
        pass
    before = State()
    with accel.image_backend("cpu", on_error="replace"):
        found = before.changed()
        Image.open(png)
        watched = before.changed() - found
    assert not before.changed(), "something is not put back"
    bodies = {owner for owner, name in found if name == "__code__"}
    found -= {(owner, name) for owner in bodies for name in ("__wrapped__", "_accel_instead")}
    assert found <= rows.keys(), "something is replaced that no table lists"
    assert expected <= found, "a table lists what is not replaced"
    assert watched == {(id(ImageFile.ImageFile), "load")}
    undo = patch.body(functional.get_dimensions, lambda original: original)
    assert (id(functional.get_dimensions), "__code__") in before.changed(), "it would not be seen"
    undo()


def test_installs_are_counted_and_every_name_is_the_original_again() -> None:
    assert_installed(False)
    accel.set_image_backend("cpu")
    assert_installed(True)
    for name in ("torchvision", "cpu"):
        accel.set_image_backend("torchvision")
        assert_installed(False)
        with accel.image_backend(name):
            assert_installed(name == "cpu")
    assert_installed(False)
    with accel.image_backend("cpu"):
        accel.set_image_backend("cpu")
        with accel.image_backend("cpu", threads=1):
            assert_installed(True)
        accel.set_image_backend("torchvision")
        assert_installed(True)
        accel.set_image_backend("cpu")
    assert_installed(True)
    accel.set_image_backend("cpu", threads=2)
    assert_installed(True)
    accel.set_image_backend("torchvision")
    assert_installed(False)


@pytest.fixture
def mapping() -> Iterator[dict[Any, Any]]:
    """torch's functions by types, which have their order again afterwards."""
    mapping: dict[Any, Any] = collate.default_collate_fn_map
    before = dict(mapping)
    yield mapping
    mapping.clear()
    mapping.update(before)


def test_what_others_register_meanwhile_is_theirs(mapping: dict[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(Image.OPEN, "JPEG", Image.OPEN["JPEG"])

    def opener(file: Any, filename: str | bytes = "") -> Image.Image:
        return JpegImagePlugin.jpeg_factory(file, filename)

    def collate_mine(tensors: list[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
        return before(tensors, collate_fn_map=collate_fn_map).flip(0)

    accel.set_image_backend("cpu")
    before = mapping[torch.Tensor]
    Image.register_open("JPEG", opener, JpegImagePlugin._accept)
    mapping[torch.Tensor] = collate_mine
    accel.set_image_backend("torchvision")
    assert Image.OPEN["JPEG"] == (opener, JpegImagePlugin._accept)
    assert mapping[torch.Tensor] is collate_mine
    assert collate.default_collate([torch.zeros(2), torch.ones(2)]).tolist() == [[1, 1], [0, 0]]
    with accel.image_backend("cpu"):  # which begins with theirs
        assert isinstance(Image.open(BytesIO(helpers.jpeg(9, 9))), accel.LazyImage)
    assert Image.OPEN["JPEG"][0] is opener
    accel.set_image_backend("cpu")
    del mapping[torch.Tensor]
    accel.set_image_backend("torchvision")
    assert torch.Tensor not in mapping


def test_names_bound_early_are_caught_and_let_go() -> None:
    from torchvision.transforms.functional import to_tensor

    assert to_tensor is functional.to_tensor
    data = helpers.jpeg(20, 10)
    with accel.image_backend("cpu"):
        assert helpers.is_lazy(to_tensor(Image.open(BytesIO(data))))
    assert type(to_tensor(Image.open(BytesIO(data)))) is torch.Tensor


def test_messages_name_the_function_that_is_called() -> None:
    with accel.image_backend("cpu"):
        image = Image.open(BytesIO(helpers.jpeg(20, 10)))
        before = accel.stats()["fallbacks"]
        functional.resized_crop(functional.hflip(image), 5, -3, 0, 9, [4, 4])  # nothing of it is left: Pillow is asked
        after = accel.stats()["fallbacks"]
        told = [reason for reason, count in after.items() if count != before.get(reason, 0)]
        assert told == ["torchvision.transforms.functional.resized_crop asked for the pixels of a single image"]


@pytest.mark.parametrize(
    "called",
    [
        T.RandomCrop.get_params,
        T.RandomResizedCrop.get_params,
        *(cls.forward for cls in (T.RandomCrop, T.RandomHorizontalFlip, T.RandomVerticalFlip)),
    ],
    ids=lambda called: called.__qualname__,
)
def test_wrong_calls_are_told_of_as_without(called: Callable[..., Any]) -> None:
    def told() -> str:
        with pytest.raises(TypeError) as raised:
            called(*range(9))
        return str(raised.value)

    expected = told()
    with accel.image_backend("cpu"):
        assert told() == expected


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_functions_can_still_be_scripted_and_inspected() -> None:
    import inspect

    signature = inspect.signature(functional.normalize)
    with accel.image_backend("cpu"):
        assert inspect.signature(functional.normalize) == signature
        scripted = torch.jit.script(torch.nn.Sequential(Normalized()))
        value = torch.rand(3, 4, 5)
        assert torch.equal(scripted(value), functional.normalize(value, [0.5] * 3, [0.25] * 3))


class Normalized(torch.nn.Module):
    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return functional.normalize(tensor, [0.5, 0.5, 0.5], [0.25, 0.25, 0.25])


def test_an_unknown_version_of_torchvision_is_refused_and_nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(worker, "_worker_loop")
    with pytest.raises(accel.BackendUnavailable, match=r"_worker_loop.*It is tested with torch"):
        accel.set_image_backend("cpu")
    monkeypatch.undo()
    assert_installed(False)
    assert accel.get_image_backend() == "torchvision"
    accel.set_image_backend("cpu")
    assert_installed(True)


def test_switching_from_many_threads_at_once() -> None:
    failures = []
    data = helpers.jpeg(30, 20)
    expected = Image.open(BytesIO(data)).tobytes()

    def work(number: int) -> None:
        for turn in range(60):
            with accel.image_backend("cpu" if (turn + number) % 2 else "torchvision"):
                name = accel.get_image_backend()
                opened = Image.open(BytesIO(data))
                if isinstance(opened, accel.LazyImage) != (name == "cpu") or opened.tobytes() != expected:
                    failures.append((number, turn, name, type(opened)))
            if turn % 7 == number % 7:
                accel.set_image_backend("cpu" if number % 2 else "torchvision")

    in_threads([partial(work, number) for number in range(8)])
    assert not failures
    accel.set_image_backend("torchvision")
    assert_installed(False)
    with accel.image_backend("cpu"):
        assert_installed(True)
    assert_installed(False)


# -- private names that are gone -------------------------------------------------------------------------------------


GONE = (
    "PIL.Image._decompression_bomb_check",
    "torch.Tensor._make_wrapper_subclass",
    "torch._C._nn._parse_to",
    "torch._C._swap_tensor_impl",
    "torch.utils._device.CURRENT_DEVICE",
    "torch.utils._pytree.tree_map",
    "torch.utils.data._utils.collate.collate_tensor_fn",
    "torch.utils.data._utils.fetch._MapDatasetFetcher",
    "torch.utils.data._utils.worker._worker_loop",
    "torch.utils.data.DataLoader._get_iterator",
    "torchvision.transforms._functional_pil",
    "torchvision.transforms._functional_pil.pad",
    "torchvision.transforms._functional_tensor",
    "torchvision.transforms.v2._utils._get_fill",
    "torchvision.transforms.v2.functional._geometry._check_interpolation",
    "torchvision.transforms.v2.functional._utils._KERNEL_REGISTRY",
    "torchvision.transforms.v2._transform._RandomApplyTransform",
    "torchvision.tv_tensors._torch_function_helpers._must_return_subclass",
    # public names
    "torchvision.transforms.v2.functional.to_image",
    "torchvision.datasets.folder.pil_loader",
)

WITHOUT = """
import json, sys
from importlib import import_module
from operator import attrgetter
import torch.utils._device, torch.utils.data, torchvision.datasets.folder, torchvision.transforms.v2
from PIL import Image
Image.preinit()

def state():
    named = ("torchvision.datasets.folder", "torchvision.transforms.functional", "torchvision.transforms.v2.functional",
             "torchvision.transforms._functional_pil", "torch.utils.data._utils.collate",
             "torch.utils.data._utils.fetch", "torch.utils.data._utils.worker", "torch.utils.data.dataloader")
    values = [value for name in named if sys.modules[name] for value in list(vars(sys.modules[name]).values())]
    parts = [part for value in values if isinstance(value, type) for part in list(vars(value).values())]
    dictionaries = [dict(value) for value in values if isinstance(value, dict) and value is not __builtins__]
    codes = [getattr(value, "__code__", None) for value in values + parts]
    return dict(Image.OPEN), [id(value) for value in values + parts + codes], list(map(len, dictionaries))

def without(key):
    parts = key.split(".")
    count = max(count for count in range(len(parts) + 1) if ".".join(parts[:count]) in sys.modules)
    module, path = ".".join(parts[:count]), ".".join(parts[count:])
    if not path:
        parent, _, name = module.rpartition(".")
        parent, kept = import_module(parent), sys.modules[module]
        delattr(parent, name)
        sys.modules[module] = None  # an import fails
        def put_back():
            sys.modules[module] = kept
            setattr(parent, name, kept)
    else:
        owner, _, name = path.rpartition(".")
        owner = attrgetter(owner)(import_module(module)) if owner else import_module(module)
        holder = owner if not isinstance(owner, type) else next(c for c in owner.__mro__ if name in vars(c))
        if holder is torch._C.TensorBase:  # a built-in type keeps its methods: hide them from attribute access
            class Gone:
                def __get__(self, *_):
                    raise AttributeError(name)
            setattr(owner, name, Gone())
            return lambda: delattr(owner, name)
        kept = vars(holder)[name]
        delattr(holder, name)
        put_back = lambda: setattr(holder, name, kept)
    return put_back

outcomes = {}
for key in json.loads(sys.argv[1]):
    for name in [name for name in sys.modules if name.split(".")[0] == "accel"]:
        del sys.modules[name]
    put_back = without(key)
    import accel
    before = state()
    messages = []
    for use in (accel.set_image_backend, lambda name: accel.image_backend(name).__enter__()):
        try:
            use("cpu")
        except accel.BackendUnavailable as error:
            messages.append(str(error))
        assert accel.get_image_backend() == "torchvision", key
    assert state() == before, key
    put_back()
    outcomes[key] = messages
import accel.hooks
for name in [name for name in sys.modules if name.split(".")[0] == "accel"]:
    del sys.modules[name]
import accel
before = state()
accel.set_image_backend("cpu")  # with every name back
assert state() != before
print(json.dumps(outcomes))
"""


def test_a_name_that_is_gone_is_named_at_the_switch() -> None:
    outcomes = json.loads(helpers.python(WITHOUT, json.dumps(GONE)))
    assert outcomes.keys() == set(GONE)
    for name, messages in outcomes.items():
        assert len(messages) == 2, f"{name} is gone, and the switch says nothing"
        for message in messages:
            assert name in message
            assert re.search(rf"torch {re.escape(torch.__version__)}.* tested with torch 2\.11 to ", message)


def test_all_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_names, "_missing", [])
    assert private_names.private("torch.utils.data", "DataLoader.vanished", "DataLoader", "no.such") is torch.utils.data
    gone = private_names.private("torchvision._a_module_that_is_gone", "anything")
    names = "torch.utils.data.DataLoader.vanished, torch.utils.data.no.such, torchvision._a_module_that_is_gone"
    with pytest.raises(accel.BackendUnavailable, match=f"they lack {names}. It is tested with"):
        private_names.check()
    with pytest.raises(accel.BackendUnavailable, match=r"they lack torchvision\._a_module_that_is_gone"):
        gone.anything()
    with pytest.raises(accel.BackendUnavailable):
        accel.set_image_backend("cpu")
    assert accel.get_image_backend() == "torchvision"
