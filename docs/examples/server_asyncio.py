"""asyncio: a server that answers photos with their mean colour. What arrives while it computes is the next batch.

python server_asyncio.py 8000          curl --data-binary @photo.jpg localhost:8000
"""

import asyncio
import io
import json
import sys
from typing import Any

from PIL import Image
from torchvision import transforms as T

import accel

STEPS = T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor()])
MOST, LARGEST = 32, 16_000_000  # images of a batch, bytes of a request
Requests = asyncio.Queue[tuple[Any, asyncio.Future[Any]]]


async def compute(requests: Requests) -> None:
    """Compute all that waits, at most ``MOST`` at a time; nobody waits for a batch to be full."""
    while True:
        batch = [await requests.get()]
        while len(batch) < MOST and not requests.empty():
            batch.append(requests.get_nowait())
        found = await asyncio.wrap_future(accel.submit([image for image, _ in batch], errors="return"))
        for (_, answer), result in zip(batch, found, strict=True):
            if not answer.done():  # else who asked has gone
                answer.set_exception(result) if isinstance(result, Exception) else answer.set_result(result)


async def serve(requests: Requests, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().partition("\r\ncontent-length:")[2]
        body = await reader.readexactly(min(int(head.split("\r\n")[0]), LARGEST))
        image = STEPS(Image.open(io.BytesIO(body)).convert("RGB"))  # recorded; only the header is read
        answer = asyncio.get_running_loop().create_future()
        requests.put_nowait((image, answer))  # which raises if 1,000 wait already
        status, text = "200 OK", {"colour": (await answer).mean((1, 2)).tolist()}
    except Exception as error:  # of this request alone
        status, text = "400 Bad Request", {"error": f"{type(error).__name__}: {error}"}
    content = json.dumps(text).encode()
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode() + content)
    writer.close()


async def main(port: int) -> None:
    accel.set_image_backend("cpu")
    accel.warm("cpu", [(MOST, 375, 500)], STEPS)
    requests: Requests = asyncio.Queue(1000)
    server = await asyncio.start_server(lambda *streams: serve(requests, *streams), "127.0.0.1", port)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await asyncio.gather(compute(requests), compute(requests))  # one is submitted while another is computed


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
