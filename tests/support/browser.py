"""Pages in a headless Chromium, spoken to over a pipe by its DevTools protocol: no driver and no library is needed."""

import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections import deque
from pathlib import Path
from typing import Any

COMMAND = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
BASH = shutil.which("bash")

_QUIET = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--no-first-run", "--disable-sync", "--disable-background-networking", "--disable-component-update"),
    *("--disable-extensions", "--disable-default-apps", "--mute-audio", "--force-color-profile=srgb"),
)
_PIPES = 'exec 3<&"$0" 4>&"$1"; exec "${@:2}"'  # where Chromium reads commands, and writes answers
_SECONDS = 60

LOOK = r"""
(async awaited => {
  while (awaited && !document.querySelector(awaited)) await new Promise(requestAnimationFrame);
  await document.fonts.ready;
  await new Promise(requestAnimationFrame);
  const width = document.documentElement.clientWidth;
  const article = document.querySelector("article") || document.documentElement;
  const PADDING = 4;  // of code at the end of a line
  const problems = [], shown = e => getComputedStyle(e).visibility !== "hidden" && e.getClientRects().length > 0;
  const says = e => `<${e.tagName.toLowerCase()}> ${(e.textContent || "").trim().replace(/\s+/g, " ").slice(0, 60)}`;
  const clips = e => getComputedStyle(e).overflowX !== "visible";
  const scrolls = e => /auto|scroll/.test(getComputedStyle(e).overflowX);
  if (document.documentElement.scrollWidth > width + 1)
    problems.push(`the page is ${document.documentElement.scrollWidth} pixels wide`);
  for (const e of article.querySelectorAll("*")) {
    const box = e.getBoundingClientRect();
    if (!shown(e) || box.width < 2 || box.height < 2) continue;
    let clipping = e.parentElement;
    while (clipping && clipping !== article && !clips(clipping)) clipping = clipping.parentElement;
    const room = clipping && clipping !== article ? clipping.getBoundingClientRect() : {left: 0, right: width};
    const reached = clipping && clipping !== article && scrolls(clipping);
    if (!reached && (box.right > room.right + 1 || box.left < room.left - 1)) problems.push(`cut off: ${says(e)}`);
    else if (e.clientWidth && e.scrollWidth > e.clientWidth + PADDING && !scrolls(e) && !e.closest("svg"))
      problems.push(`wider than its place: ${says(e)}`);
  }
  for (const e of document.querySelectorAll("svg text")) {
    const box = e.getBoundingClientRect(), room = e.ownerSVGElement.getBoundingClientRect();
    if (box.right > room.right || box.left < room.left) problems.push(`cut off: ${says(e)}`);
  }
  for (const e of article.querySelectorAll("table")) {
    const outer = [e, e.parentElement, e.parentElement.parentElement].find(scrolls);
    if (width > 1000 && outer && outer.scrollWidth > outer.clientWidth + 1) problems.push(`scrolls: ${says(e)}`);
  }
  const texts = document.createTreeWalker(article, NodeFilter.SHOW_TEXT), lines = [];
  while (texts.nextNode()) {
    const text = texts.currentNode, e = text.parentElement, range = document.createRange();
    if (!text.data.trim() || !shown(e) || e.closest("svg, mjx-container")) continue;
    range.selectNodeContents(text);
    for (const box of range.getClientRects()) {
      let {left, right, top, bottom} = box;
      for (let outer = e; outer && outer !== article; outer = outer.parentElement)
        if (clips(outer)) {
          const room = outer.getBoundingClientRect();
          [left, right] = [Math.max(left, room.left), Math.min(right, room.right)];
        }
      if (right - left > 2 && bottom - top > 2) lines.push({left, right, top, bottom, e});
    }
  }
  lines.sort((a, b) => a.top - b.top);
  lines.forEach((a, i) => {
    for (let j = i + 1; j < lines.length && lines[j].top < a.bottom; j++) {
      const b = lines[j], across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - b.top;
      if (across > 2 && down > 0.4 * Math.min(a.bottom - a.top, b.bottom - b.top))
        problems.push(`overlapping: ${says(a.e)} and ${says(b.e)}`);
    }
  });
  for (const image of document.images || [])
    if (!image.complete || !image.naturalWidth) problems.push(`no picture: ${image.getAttribute("src")}`);
  return {
    problems: [...new Set(problems)],
    links: [...document.querySelectorAll("a[href]")].map(a => a.href),
    anchors: [...document.querySelectorAll("[id]")].map(e => e.id),
    text: document.body ? document.body.innerText : "",
  };
})
"""


class Browser:
    """A Chromium with one page. Use it in a ``with`` block, which ends it."""

    def __init__(self, folder: Path) -> None:
        """``folder``: an empty one, for its profile."""
        commands, self._commands = map(_high, os.pipe())
        self._answers, answers = map(_high, os.pipe())
        environment = {**os.environ, "HOME": str(folder)}
        chromium = (str(COMMAND), *_QUIET, f"--user-data-dir={folder}", "--remote-debugging-pipe", "about:blank")
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [str(BASH), "-c", _PIPES, str(commands), str(answers), *chromium],
                pass_fds=(commands, answers),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        os.close(commands)
        os.close(answers)
        self._number, self._received, self._events = 0, b"", deque[dict[str, Any]]()
        self._session: str | None = None
        try:
            target = self._call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Network", "Runtime"):
                self._call(f"{domain}.enable")
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._commands)
        os.close(self._answers)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def look(self, url: str, width: int, awaited: str = "") -> dict[str, Any]:
        """Open a page on a screen of this width.

        ``awaited``: a selector of what its scripts put there after it was loaded.

        Returns:
            A dictionary: ``problems``, a list of texts; ``links``, the urls that it links to; ``anchors``, its ids;
            ``text``, as it is shown.
        """
        self._events.clear()
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        self._call("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._receive()
        found = self._call(
            "Runtime.evaluate", expression=f"{LOOK}({json.dumps(awaited)})", awaitPromise=True, returnByValue=True
        )
        result: dict[str, Any] = found["result"]["value"]
        origin = url.split("/", 3)[:3]
        for event in self._events:
            about = event["params"]
            if event["method"] == "Network.requestWillBeSent":
                asked = about["request"]["url"]
                if asked.split("/", 3)[:3] != origin and not asked.startswith(("data:", "blob:")):
                    result["problems"].append(f"asks another site: {asked}")
            elif (
                event["method"] == "Network.responseReceived"
                and about["response"]["status"] >= 400
                and not about["response"]["url"].endswith("favicon.ico")
            ):
                result["problems"].append(f"status {about['response']['status']}: {about['response']['url']}")
            elif event["method"] == "Runtime.exceptionThrown":
                result["problems"].append(f"an error: {about['exceptionDetails']['text']}")
        return result

    def picture(self) -> str:
        """The whole page as a PNG file, in base64."""
        data: str = self._call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        return data

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        """The next message; events are kept as well."""
        deadline = time.monotonic() + _SECONDS
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._answers], [], [], deadline - time.monotonic())
            received = os.read(self._answers, 1 << 20) if ready else b""
            assert received, "Chromium does not answer, or has ended"
            self._received += received
        first, _, self._received = self._received.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        if "method" in message:
            self._events.append(message)
        return message


def _high(descriptor: int) -> int:
    """The same with a number that none of 3 and 4 is."""
    copied = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return copied
