"""FastAPI: a server that answers a posted photo with its mean colour, and clients that try it.

uvicorn server_fastapi:app          curl --data-binary @photo.jpg localhost:8000          python server_fastapi.py
"""

import asyncio
import io

from fastapi import FastAPI, HTTPException, Request
from fastapi.testclient import TestClient
from PIL import Image
from torchvision import transforms as T

import accel

accel.set_image_backend("cpu")
STEPS = T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor()])
app = FastAPI()


@app.post("/")
async def colour(request: Request) -> list[float]:
    try:
        image = STEPS(Image.open(io.BytesIO(await request.body())).convert("RGB"))  # recorded; the header is read
        values = await asyncio.wrap_future(accel.submit(image))  # accel's threads decode and compute
    except (OSError, accel.DecodeError) as error:
        raise HTTPException(400, str(error)) from error
    return values.mean((1, 2)).tolist()


def main() -> None:
    client = TestClient(app)
    for number in range(8):
        channels = [Image.radial_gradient("L").rotate(10 * number + angle) for angle in (0, 90, 180)]
        file = io.BytesIO()
        Image.merge("RGB", channels).resize((160 + number, 120)).save(file, "JPEG")
        print(client.post("/", content=file.getvalue()).json())
    print(client.post("/", content=b"no photo").status_code)
    print(accel.summary())


if __name__ == "__main__":
    main()
