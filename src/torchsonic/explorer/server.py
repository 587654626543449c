"""A small web server for one person on one machine.

Other web sites must not reach it through the user's browser. So a request has to name this server as its host (a
name that an attacker's DNS points here is refused), requests that change or compute something have to come from the
page itself (origin and a header that other sites cannot send), and the page may load nothing but its own files.
"""

from __future__ import annotations

import errno
import ipaddress
import json
import socket
import socketserver
import sys
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any

from torchsonic.explorer.images import MAX_BYTES
from torchsonic.explorer.knobs import RefusedError
from torchsonic.explorer.session import Session

FILES = ("page.html", "page.css", "page.js", "pictures.js", "requests.js", "turning.js", "words.js", "icon.svg")
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
OWN_HEADER = "X-Torchsonic"
MAX_JSON = 16 << 10
SILENCE_SECONDS = 30
POLL_SECONDS = 0.2
MOST_CONNECTIONS = 64
MOST_POSTS = 16
"""Bodies that are read or worked on at once, each up to 20 MB."""


class ExplorerServer(ThreadingHTTPServer):
    """Listens as soon as it is made; ``address`` is where a browser finds it."""

    daemon_threads = True
    allow_reuse_address = sys.platform != "win32"  # there it would share a busy port

    def __init__(self, host: str, port: int, session: Session) -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except OSError as error:
            raise ValueError(f"--host {host}: this machine has no such address ({error.strerror})") from error
        self.address_family = found[0][0]
        self.session, self.host = session, host
        self.posts = threading.BoundedSemaphore(MOST_POSTS)
        self._connections: set[socket.socket] = set()
        super().__init__((str(found[0][4][0]), port), _Handler)
        self.port = self.server_address[1]

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # that of HTTP would ask the DNS for this machine's name

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the server."""
        return ipaddress.ip_address(str(self.server_address[0])).is_loopback

    @property
    def address(self) -> str:
        """For a browser on this machine."""
        bound = ipaddress.ip_address(str(self.server_address[0]))
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(str(bound), str(bound))
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def knows_host(self, header: str | None) -> bool:
        """Whether a ``Host`` header means this server: an address, which no DNS can turn here, or a known name."""
        name, port = _split_host(header or "")
        if port != self.port:
            return False
        if name == "localhost" or name == self.host.lower():
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return not self.local and name == socket.gethostname().lower()
        return address.is_loopback or not self.local

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, client = super().get_request()
        self._connections.add(connection)
        return connection, client

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Each connection has a thread: one beyond the most is closed unheard."""
        return len(self._connections) <= MOST_CONNECTIONS

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Browsers keep connections open; they end here too."""
        super().server_close()
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away is no error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def _split_host(header: str) -> tuple[str, int | None]:
    name, _, port = header.strip().lower().rpartition(":")
    if not name or header.endswith("]"):
        name, port = header.strip().lower(), "80"
    return name.strip("[]").rstrip("."), int(port) if port.isascii() and port.isdigit() else None


class _Handler(BaseHTTPRequestHandler):
    server: ExplorerServer  # type: ignore[assignment]
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "torchsonic", ""
    timeout = SILENCE_SECONDS
    disable_nagle_algorithm = True  # else the end of an answer may wait for the browser to acknowledge its start

    def do_GET(self) -> None:
        self._answer(self._get)

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, work: Callable[[], tuple[bytes, str]]) -> None:
        status = HTTPStatus.OK
        try:
            if not self.server.knows_host(self.headers.get("Host")):
                raise RefusedError("this address is not known here; open the one that the command printed", 403)
            body, kind = work()
        except RefusedError as error:
            status, body, kind = HTTPStatus(error.status), *_as_json({"error": str(error)})
        except (ConnectionError, TimeoutError):
            self.close_connection = True
            return
        except Exception as error:
            self.log_error("%s: %s", type(error).__name__, error)
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            body, kind = _as_json({"error": f"the explorer failed: {type(error).__name__}: {error}"})
        if status != HTTPStatus.OK:
            self.close_connection = True  # a body may be left unread
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _get(self) -> tuple[bytes, str]:
        name = self.path.partition("?")[0].removeprefix("/") or "page.html"
        if name == "api/start":
            return _as_json(self.server.session.start())
        if name not in FILES:
            raise RefusedError("there is no such page", 404)
        return resources.files("torchsonic.explorer").joinpath("page", name).read_bytes(), KINDS[Path(name).suffix]

    def _post(self) -> tuple[bytes, str]:
        self._check_sender()
        session, posts = self.server.session, self.server.posts
        if not posts.acquire(blocking=False):
            raise RefusedError("too many requests at once; try again in a moment", 503)
        try:
            if self.path == "/api/upload":
                return _as_json(session.upload(self._body(MAX_BYTES)))
            answers = {"/api/view": session.view, "/api/sheet": session.sheet, "/api/turn": session.turn}
            if self.path not in answers:
                raise RefusedError("there is no such page", 404)
            return _as_json(answers[self.path](self._json()))
        finally:
            posts.release()

    def _check_sender(self) -> None:
        """Refuse what another site makes the user's browser send."""
        origin = self.headers.get("Origin")
        same = origin is None or origin.lower() == f"http://{(self.headers.get('Host') or '').lower()}"
        elsewhere = self.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none")
        if not same or elsewhere or self.headers.get(OWN_HEADER) != "1":
            raise RefusedError("only the explorer's own page may send this request", 403)

    def _body(self, limit: int) -> bytes:
        text = self.headers.get("Content-Length", "")
        if not (text.isascii() and text.isdigit()):
            raise RefusedError("the request has no Content-Length", 411)
        length = int(text)
        if length > limit:
            size = f"{limit >> 20} MB" if limit >= 1 << 20 else f"{limit >> 10} kB"
            raise RefusedError(f"the file is larger than {size}; make it smaller first", 413)
        body = self.rfile.read(length)
        if len(body) < length:
            raise RefusedError("the request was cut short")
        return body

    def _json(self) -> dict[str, Any]:
        body = self._body(MAX_JSON)
        try:
            value = json.loads(body)
        except (ValueError, RecursionError) as error:  # of bytes, of syntax, or of thousands of digits
            raise RefusedError(f"the request is not valid JSON: {error}") from error
        if not isinstance(value, dict):
            raise RefusedError("the request must be a JSON object")
        return value

    def log_error(self, format: str, *args: Any) -> None:
        """A connection that a browser keeps open without a word is no error."""
        if not any(isinstance(argument, TimeoutError) for argument in args):
            super().log_error(format, *args)

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        """Every move of a slider is a request; none is worth a line."""


def _as_json(value: Any) -> tuple[bytes, str]:
    return json.dumps(value, allow_nan=False).encode(), "application/json"  # browsers read no NaN


def make_server(session: Session, *, host: str = "127.0.0.1", port: int = 0) -> ExplorerServer:
    """Bind to an address, or refuse with the reason and the remedy; port 0 takes a free one."""
    if not 0 <= port <= 65535:
        raise ValueError(f"--port must be from 0 (any free port) to 65535, got {port}")
    try:
        return ExplorerServer(host, port, session)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ValueError(f"--port {port} is in use; choose another, or 0 for any free port") from error
        raise ValueError(f"cannot listen at --host {host} --port {port}: {error.strerror}") from error


def serve(server: ExplorerServer, *, browser: bool = True, say: Callable[[str], None] = print) -> None:
    """Answer until interrupted."""
    say(f"torchsonic explorer: {server.address}  (press Ctrl-C to stop)")
    if not server.local:
        say("warning: others on the network can use it, since there is no password")
    if browser:
        threading.Thread(target=webbrowser.open, args=(server.address,), daemon=True).start()
    try:
        server.serve_forever(poll_interval=POLL_SECONDS)
    except KeyboardInterrupt:
        say("\nstopped")
    finally:
        server.server_close()
