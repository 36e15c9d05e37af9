"""gunicorn: a server that answers a posted photo with its mean colour. Its workers have the switch, forked or not.

gunicorn --preload --workers 4 server_gunicorn:app          curl --data-binary @photo.jpg localhost:8000
"""

import io
import json
from collections.abc import Callable, Iterable
from typing import Any

from PIL import Image
from torchvision import transforms as T

import accel

accel.set_image_backend("cpu", threads=1)  # with --preload once, and each worker is forked with it; else in each
STEPS = T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor()])


def app(environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]) -> Iterable[bytes]:
    try:
        colour = STEPS(Image.open(io.BytesIO(environ["wsgi.input"].read())).convert("RGB")).mean((1, 2)).tolist()
        status, answer = "200 OK", {"colour": colour, "backend": accel.get_image_backend()}
    except (OSError, accel.DecodeError) as error:  # at the header; and where the pixels are computed
        status, answer = "400 Bad Request", {"error": str(error)}
    start_response(status, [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]
