"""The page that answers, on this machine alone: who may ask it, and for what."""

import http.client
import json
import socket
import threading

import pytest

from keras_tfm.visualize.document import Page
from keras_tfm.visualize.packing import packed_weights
from keras_tfm.visualize.serve import MOST_BYTES, Server
from tests.visualize.browser import Tab, headless
from tests.visualize.test_packing import random_weights


def page_of(text):
    """A page of words that attend to each other at random; no more than 20 of them."""
    words = text.split()
    if len(words) > 20:
        raise ValueError(f"The page would show {len(words)} tokens, more than 20.")
    weights = random_weights(2, len(words), len(words), seed=len(words))
    size = {"heads": 2, "queries": len(words), "keys": len(words), "top": 15, "query": "all", "key": "all"}
    entry = {"index": 0, "kind": "encoder", "layer": 0, "name": "attention"} | size
    header = {"about": "words", "text": text, "answer": text.upper(), "notes": [], "precision": ""}
    header |= {"sides": {"all": {"tokens": words, "grid": None}}, "entries": [entry], "patterns": []}
    return Page(
        header | {"picture": None, "steps": [], "written": None}, {"weights-0": packed_weights(weights)}
    )


@pytest.fixture(scope="module")
def server():
    with Server(page_of("one two three"), page_of) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server, body, path="/look", method="POST", **changes):
    """The status and the JSON value of an answer; `changes` of the headers that the page sends."""
    connection = http.client.HTTPConnection(*server.server_address, timeout=10)
    headers = {"Origin": server.url[:-1], "Content-Type": "application/json"} | changes
    connection.request(method, path, body, {name: x for name, x in headers.items() if x is not None})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    is_json = response.headers.get_content_type() == "application/json"
    return response.status, json.loads(content) if is_json else content.decode()


def test_a_text_becomes_a_page(server):
    status, answer = ask(server, json.dumps({"text": "vier fünf"}))
    expected = page_of("vier fünf")
    assert status == 200 and answer == {"header": expected.header, "blocks": expected.blocks}
    status, html = ask(server, None, path="/", method="GET")
    assert status == 200 and "connect-src 'self'" in html and '"is_live": true' in html


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"Origin": None}, 403),
        ({"Origin": "http://example.org"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "example.org"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"path": "/"}, 404),
        ({"path": "/x", "method": "GET"}, 404),
        ({"path": "/", "method": "GET", "Host": "attacker.example"}, 403),
    ],
)
def test_others_are_refused(server, changes, status):
    assert ask(server, '{"text": "a"}', **changes)[0] == status


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("", 400), ("[" * 50_000, 400), ('{"text": 3}', 400), ('{"text": "  "}', 400), ('["a"]', 400),
        (b"\xff\xfe", 400), (json.dumps({"text": "a " * 30}), 422),
    ],
)  # fmt: skip
def test_wrong_requests_are_told(server, body, status):
    found, answer = ask(server, body)
    assert found == status and answer["error"]


@pytest.mark.parametrize("length", [str(MOST_BYTES + 1), "100000000", "9" * 30, "-1", "x", "²", None])
def test_a_large_request_is_not_read(server, length):
    with socket.create_connection(server.server_address, timeout=10) as connection:
        lines = ["POST /look HTTP/1.1", f"Host: {server.host}", f"Origin: {server.url[:-1]}"]
        lines += ["Content-Type: application/json"] + [f"Content-Length: {length}"] * (length is not None)
        connection.sendall("\r\n".join([*lines, "", ""]).encode("utf-8"))
        status = connection.recv(100).decode().split()[1]
        assert status == ("413" if length and length.isascii() and length.isdigit() else "411")


def test_it_listens_on_this_machine_alone_and_tells_of_a_taken_port(server):
    assert server.server_address[0] == "127.0.0.1"
    port = server.server_address[1]
    with pytest.raises(OSError, match=f"port {port} of 127.0.0.1 cannot be served .*: choose another"):
        Server(server.page, page_of, port)


def test_typed_texts_are_drawn(server):
    with headless() as browser:
        tab = Tab(browser, server.url)
        assert tab.text("#asked") == "one two three"
        tab.page.fill("#text", "a b </script> d")
        tab.page.keyboard.press("Enter")
        tab.drawn("1 Lines")
        assert tab.page.locator(".tokens.key li").all_inner_texts() == ["a", "b", "</script>", "d"]
        assert tab.text("#answered") == "A B </SCRIPT> D" and tab.errors == []
        tab.page.fill("#text", "a " * 30)
        tab.page.keyboard.press("Enter")
        tab.page.wait_for_selector("#answer:has-text('more than 20')")
