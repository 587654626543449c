"""The server answers its own page and nobody else, and bad requests with a reason."""

import base64
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest

from tests.explorer.images import encoded, huge_png, photograph
from tests.explorer.serving import SETTING, ask, serving
from torchsonic.cli import main
from torchsonic.explorer import Session, make_server
from torchsonic.explorer.images import MAX_BYTES
from torchsonic.explorer.server import MOST_POSTS

WAYS = ("upright", "turned")


@pytest.fixture(scope="module")
def server():
    with serving() as running:
        yield running


def test_pages_load_nothing_from_elsewhere(server):
    for path in ("/", "/page.css", "/page.js", "/pictures.js", "/requests.js", "/turning.js", "/words.js", "/icon.svg"):
        status, headers, body = ask(server, path)
        assert status == 200
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        text = body.decode().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text
        assert "https://" not in text


def test_a_view_holds_every_picture(server):
    status, _, answer = ask(server, "/api/view", SETTING)
    assert status == 200
    assert (answer["sonic"]["sampled"]["rows"], answer["sonic"]["sampled"]["columns"]) == (226, 113)
    assert answer["sonic"]["difference"] < 1e-5 < 0.05 < answer["gfnet"]["difference"]
    assert answer["response"]["peak"] == pytest.approx(2.0, rel=0.05)
    assert answer["meaning"]["decay_length"] == 16.0


def test_a_turned_scene_has_both_answers(server):
    status, _, answer = ask(server, "/api/turn", {"scene": 0, "angle": 90.0})
    assert status == 200
    assert set(answer) == {"image", "orbit", "conv"}
    assert answer["orbit"]["turned"]["map"] == "classes"
    assert answer["orbit"]["agreement"] > 0.99 > answer["conv"]["agreement"]
    pixels = [np.frombuffer(base64.b64decode(answer["image"][way]["pixels"]), np.uint8).reshape(64, 64) for way in WAYS]
    assert np.abs(np.rot90(pixels[0]).astype(int) - pixels[1]).max() <= 1, "positive angles turn counterclockwise"


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"scene": 0, "angle": 200.0}, "Angle must be from -180 to 180"),
        ({"scene": 0.5, "angle": 0.0}, "Scene must be a whole number"),
        ({"angle": 0.0}, "Scene must be a finite number"),
    ],
)
def test_a_turn_that_is_none_is_refused(server, request_, words):
    status, _, answer = ask(server, "/api/turn", request_)
    assert status == 400
    assert words in answer["error"]


FOREIGN = ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "10.0.0.1:{port}"]


def test_an_image_that_the_page_has_is_not_sent_again(server):
    assert "input" in ask(server, "/api/view", SETTING)[2]
    assert "input" not in ask(server, "/api/view", {**SETTING, "show_input": False})[2]


@pytest.mark.parametrize("host", FOREIGN)
@pytest.mark.parametrize("path", ["/", "/api/start"])
def test_other_hosts_are_refused(server, host, path):
    status, _, answer = ask(server, path, headers={"Host": host.format(port=server.port)})
    assert status == 403
    assert "not known here" in answer["error"]


@pytest.mark.parametrize("host", ["localhost:{port}", "LOCALHOST:{port}", "127.0.0.1:{port}", "[::1]:{port}"])
def test_own_names_are_answered(server, host):
    assert ask(server, "/", headers={"Host": host.format(port=server.port)})[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"X-Torchsonic": "0"},
    ],
)
def test_posts_of_other_sites_are_refused(server, headers):
    status, _, answer = ask(server, "/api/view", SETTING, headers=headers)
    assert status == 403
    assert "own page" in answer["error"]


def test_posts_of_the_page_are_answered(server):
    origin = {"Origin": f"http://127.0.0.1:{server.port}", "Sec-Fetch-Site": "same-origin"}
    assert ask(server, "/api/view", SETTING, headers=origin)[0] == 200


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        ("[" * 9000, "not valid JSON"),
        ("[]", "must be a JSON object"),
        ({}, "values must be an object"),
        ({**SETTING, "values": {**SETTING["values"], "scale": -1}}, "Scale must be from"),
        ({**SETTING, "values": {**SETTING["values"], "scale": None}}, "Scale must be a finite number"),
        ({**SETTING, "values": {**SETTING["values"], "scale": float("nan")}}, "Scale must be a finite number"),
        ({**SETTING, "values": {**SETTING["values"], "more": 1}}, "no value 'more'"),
        ({**SETTING, "rows": 100_000}, "Rows must be from 48 to 512"),
        ({**SETTING, "columns": "64"}, "Columns must be a finite number"),
        ({**SETTING, "filter": "magic"}, "filter must be"),
        ({**SETTING, "filter": "layer", "layer": 0}, "no checkpoint is loaded"),
        ({**SETTING, "image": "upload-none"}, "no longer in memory"),
        ({**SETTING, "image": ["shapes"]}, "image must be a name"),
        ({**SETTING, "highest": 100}, "Frequency range"),
        ({**SETTING, "rows": 10**400}, "Rows must be a finite number, got 1000"),
        ('{"rows": 1%s}' % ("0" * 5000), "not valid JSON"),
        ({**SETTING, "padding": "x" * 20_000}, "larger than 16 kB"),
    ],
)
def test_bad_requests_are_refused_with_a_reason(server, body, words):
    status, _, answer = ask(server, "/api/view", body)
    assert 400 <= status < 500
    assert words in answer["error"]


def test_unknown_pages_are_not_found(server):
    assert ask(server, "/../session.py")[0] == 404
    assert ask(server, "/api/nothing", {})[0] == 404
    assert ask(server, "/", method="DELETE")[0] == 501


def test_a_head_has_no_body(server):
    status, headers, body = ask(server, "/", method="HEAD")
    assert status == 200
    assert int(headers["Content-Length"]) > 1000
    assert body == b""


def test_an_upload_is_filtered(server):
    status, _, answer = ask(server, "/api/upload", encoded(photograph()))
    assert status == 200
    status, _, view = ask(server, "/api/view", {**SETTING, "image": answer["image"]})
    assert status == 200
    assert view["input"]["reference"]["pixels"] != ask(server, "/api/view", SETTING)[2]["input"]["reference"]["pixels"]


def test_bad_uploads_are_refused(server):
    status, _, answer = ask(server, "/api/upload", huge_png())
    assert status == 413
    assert "100 megapixels" in answer["error"]
    assert ask(server, "/api/upload", b"text")[0] == 415


def test_length_is_checked_before_reading(server):
    """The client promises a gigabyte and sends nothing: the answer comes at once."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        head = f"POST /api/upload HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nX-Torchsonic: 1\r\n"
        client.sendall(f"{head}Content-Length: {MAX_BYTES + 1}\r\n\r\n".encode())
        assert client.recv(100).startswith(b"HTTP/1.1 413")
    for length in ("", "Content-Length: -1\r\n", "Content-Length: ten\r\n", "Transfer-Encoding: chunked\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
            client.sendall(f"{head}{length}\r\n".encode())
            assert client.recv(100).startswith(b"HTTP/1.1 411"), length


def test_too_many_at_once_are_told_to_come_back(server):
    head = f"POST /api/view HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nX-Torchsonic: 1\r\nContent-Length: 9\r\n\r\n"
    for _ in range(MOST_POSTS - 1):
        assert server.posts.acquire(blocking=False)
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as slow:
            slow.sendall(head.encode())  # promises a body, and keeps the last place until it comes
            end = time.monotonic() + 20
            while server.posts.acquire(blocking=False):
                server.posts.release()
                assert time.monotonic() < end
                time.sleep(0.01)
            status, _, answer = ask(server, "/api/view", SETTING)
            assert status == 503
            assert "too many requests" in answer["error"]
            assert ask(server, "/api/start")[0] == 200
            slow.sendall(b"{}       ")
            assert slow.recv(100).startswith(b"HTTP/1.1 400")
        assert ask(server, "/api/view", SETTING)[0] == 200
    finally:
        server.posts.release(MOST_POSTS - 1)


def test_connections_are_counted(server, monkeypatch):
    monkeypatch.setattr("torchsonic.explorer.server.MOST_CONNECTIONS", 0)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with suppress(ConnectionResetError):
            assert client.recv(100) == b""
    monkeypatch.undo()
    assert ask(server, "/api/start")[0] == 200


def test_many_threads_get_the_answers_of_one(server):
    angles = list(range(0, 160, 20))
    settings = [{**SETTING, "values": {**SETTING["values"], "orientation": angle}} for angle in angles]
    alone = [ask(server, "/api/view", setting)[2]["sonic"]["sampled"]["pixels"] for setting in settings]
    assert len(set(alone)) == len(angles)
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda s: ask(server, "/api/view", s)[2]["sonic"]["sampled"]["pixels"], settings))
    assert together == alone


def test_a_failure_is_told_and_does_not_end_the_server(server, monkeypatch, capsys):
    monkeypatch.setattr(Session, "start", lambda self: 1 / 0)
    status, _, answer = ask(server, "/api/start")
    assert status == 500
    assert "ZeroDivisionError" in answer["error"]
    monkeypatch.undo()
    assert ask(server, "/api/start")[0] == 200


def test_a_busy_port_is_named(server, capsys):
    assert main(["explore", "--port", str(server.port), "--no-browser"]) == 1
    error = capsys.readouterr().err
    assert f"--port {server.port} is in use" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "70000"], "--port must be from 0"),
        (["--host", "no.such.host.invalid"], "--host no.such.host.invalid"),
        (["no/such/folder"], "there is no folder 'no/such/folder'"),
        ([__file__], "test_server.py is a file; pass the folder"),
    ],
)
def test_wrong_options_end_in_one_line(arguments, words, capsys):
    assert main(["explore", *arguments, "--no-browser"]) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_flag_that_switches_off_shows_no_default(capsys):
    with pytest.raises(SystemExit):
        main(["explore", "--help"])
    shown = capsys.readouterr().out
    assert "Do not open a browser." in shown
    assert "default: True" not in shown


def test_only_this_machine_is_served_unless_told_otherwise():
    with make_server(Session()) as own:
        assert own.local
        assert own.address == f"http://127.0.0.1:{own.port}/"
    with make_server(Session(), host="0.0.0.0") as everywhere:
        assert not everywhere.local
        assert everywhere.knows_host(f"192.168.1.7:{everywhere.port}")
        assert not everywhere.knows_host(f"evil.example:{everywhere.port}")


def test_interrupting_ends_it_cleanly():
    command = [sys.executable, "-m", "torchsonic.cli", "explore", "--no-browser"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts background jobs, such as a whole test run, with this signal ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    timer = threading.Timer(120, process.kill)
    timer.start()
    assert process.stdout is not None
    assert "http://127.0.0.1:" in process.stdout.readline()
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    timer.cancel()
    assert process.returncode == 0
    assert "stopped" in out
    assert err == ""
