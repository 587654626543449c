"""An explorer that listens while a test runs."""

import http.client
import json
import threading
from contextlib import contextmanager

from torchsonic.explorer import Session, make_server

SETTING = {
    "values": {"orientation": 30.0, "scale": 8.0, "damping": 0.5, "oscillation": 3.0, "transverse": 10.0},
    "filter": "mode",
    "image": "shapes",
    "rows": 226,
    "columns": 113,
    "highest": 0.785,
    "reach": 64,
}


@contextmanager
def serving(checkpoint=None, **options):
    server = make_server(Session(checkpoint), **options)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ask(server, path, body=None, *, headers=None, method=None):
    """Status, headers and body of an answer; a JSON body is decoded, and one to send is encoded."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        sent = json.dumps(body) if isinstance(body, dict | list) else body
        own = {} if body is None else {"X-Torchsonic": "1"}
        chosen = method or ("GET" if body is None else "POST")
        connection.request(chosen, path, sent, {**own, **(headers or {})})
        answer = connection.getresponse()
        data = answer.read()
        if answer.headers["Content-Type"] == "application/json" and data:
            data = json.loads(data)
        return answer.status, answer.headers, data
    finally:
        connection.close()
