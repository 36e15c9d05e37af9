"""Private names of torch, torchvision and Pillow: one that is gone is named at the switch, and nothing is changed."""

import json
import re

import pytest
import torch

import accel
from accel.system import private_names
from tests.support import helpers

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
