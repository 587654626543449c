"""A real Chromium, driven through its DevTools protocol: the few commands that these tests need."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import pytest

WAIT_SECONDS = 30
KEYS = {
    "Tab": ("Tab", 9, ""),
    "Enter": ("Enter", 13, "\r"),
    "Space": (" ", 32, " "),
    "Home": ("Home", 36, ""),
    "End": ("End", 35, ""),
    "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
}


def find_chromium():
    """The browser's path; skips the test without one, unless ``TORCHSONIC_NEEDS_CHROMIUM`` says there must be one."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        if os.environ.get("TORCHSONIC_NEEDS_CHROMIUM"):
            pytest.fail("TORCHSONIC_NEEDS_CHROMIUM is set and there is no Chromium")
        pytest.skip("there is no Chromium; install Debian's package chromium")
    return found


class Browser:
    """One headless browser with one page. ``complaints`` holds what its console and network complained of."""

    def __init__(self):
        import websocket

        self._folder = tempfile.mkdtemp(prefix="chromium-")
        options = [
            "--headless=new",
            "--no-sandbox",  # containers offer none; the only page is ours
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--remote-debugging-port=0",
            f"--user-data-dir={self._folder}",
        ]
        self._process = subprocess.Popen(
            [find_chromium(), *options, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        port = self._wait_for(self._port, "Chromium does not start")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=WAIT_SECONDS) as answer:
            pages = json.load(answer)
        address = next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
        self._socket = websocket.create_connection(address, timeout=WAIT_SECONDS, suppress_origin=True)
        self._numbers = itertools.count(1)
        self.complaints = []
        self.requests = []
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.command(f"{domain}.enable")

    def _port(self):
        lines = (Path(self._folder) / "DevToolsActivePort").read_text().splitlines()
        return int(lines[0])

    @staticmethod
    def _wait_for(look, words):
        end = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                if found := look():
                    return found
            except (OSError, IndexError):
                pass
            assert time.monotonic() < end, words
            time.sleep(0.05)

    def close(self):
        self._socket.close()
        self._process.terminate()
        self._process.wait(WAIT_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)

    def command(self, method, **parameters):
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self._note(message)

    def _note(self, message):
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(parameters["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")

    def run(self, script):
        """The value of a JavaScript expression; promises are awaited."""
        answer = self.command("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def text(self, selector):
        return self.run(f"document.querySelector({selector!r}).textContent")

    def hidden(self, selector):
        return self.run(f"document.querySelector({selector!r}).hidden")

    def until(self, script, words=None):
        return self._wait_for(lambda: self.run(script), words or f"never true: {script}")

    def open(self, address):
        self.complaints.clear()
        self.requests.clear()
        self.command("Page.navigate", url=address)
        self.until("document.body?.dataset.ready === 'yes' && document.body.dataset.drawn > 0")

    def resize(self, width, height, *, dark=False, touch=False):
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}  # a page that scrolls smoothly runs from a click
        self.command("Emulation.setEmulatedMedia", features=[scheme, still])

    def press(self, key, *, shift=False):
        name, code, text = KEYS[key]
        common = {"key": name, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.command("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        self.command("Input.dispatchKeyEvent", type="keyUp", **common)

    def click(self, selector):
        """A true click in the middle of an element, scrolled into sight first."""
        box = f"document.querySelector({selector!r})"
        self.run(f"{box}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        x, y = self.run(f"(r => [r.x + r.width / 2, r.y + r.height / 2])({box}.getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def give_file(self, selector, path):
        root = self.command("DOM.getDocument")["root"]["nodeId"]
        node = self.command("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.command("DOM.setFileInputFiles", nodeId=node, files=[str(path)])

    def screenshot(self, path, *, whole=True):
        options = {"captureBeyondViewport": True} if whole else {}
        if whole:
            size = self.command("Page.getLayoutMetrics")["cssContentSize"]
            options["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.command("Page.captureScreenshot", format="png", **options)["data"]
        Path(path).write_bytes(base64.b64decode(data))
