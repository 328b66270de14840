"""A page that answers: texts typed into it are read by the model, on this machine alone.

The server listens on 127.0.0.1. It answers requests whose Host is that address, so that no other site's name
can be made to lead here, and takes a text only from its own page, by the Origin that browsers send.
"""

import http.server
import json
import sys
import threading
from collections.abc import Callable
from typing import Any

from keras_tfm.visualize.document import Page

ADDRESS = "127.0.0.1"
MOST_BYTES = 64 * 1024  # of a request
SECONDS = 20  # that a request may take to arrive


class Server(http.server.ThreadingHTTPServer):
    """Shows the page of `look(text)` at `url`, and `page` first; `port` 0 takes a free one.

    One text is read at a time. OSError where the port is taken.
    """

    daemon_threads = True
    allow_reuse_address = False

    def __init__(self, page: Page, look: Callable[[str], Page], port: int = 0):
        self.page, self.look, self.lock = page, look, threading.Lock()
        try:
            super().__init__((ADDRESS, port), Handler)
        except OSError as error:
            message = f"port {port} of {ADDRESS} cannot be served ({error.strerror}): choose another"
            raise OSError(message) from None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that went away before it had its answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def host(self) -> str:
        return f"{ADDRESS}:{self.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.host}/"


class Handler(http.server.BaseHTTPRequestHandler):
    """GET / is the page; POST /look takes {"text": …} and gives the header and the blocks of its page."""

    server: Server
    timeout = SECONDS
    server_version = "keras-tfm"
    sys_version = ""

    def do_GET(self) -> None:
        if not self._is_ours():
            return self._refuse(403, f"this server answers as {self.server.host} alone")
        if self.path != "/":
            return self._refuse(404, "there is the page alone, at /")
        content = self.server.page.html(is_live=True).encode("utf-8", "replace")
        self._send(200, "text/html; charset=utf-8", content)

    def do_POST(self) -> None:
        if not self._is_ours() or self.headers.get("Origin") != f"http://{self.server.host}":
            return self._refuse(403, "texts are taken from this server's own page alone")
        if self.path != "/look":
            return self._refuse(404, "texts go to /look")
        if self.headers.get_content_type() != "application/json":
            return self._refuse(415, "expected application/json")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            return self._refuse(411, "expected a Content-Length")
        if len(length) > 9 or int(length) > MOST_BYTES:
            return self._refuse(413, f"a text may take {MOST_BYTES // 1024} KiB")
        try:
            asked = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            return self._refuse(400, "expected JSON")
        text = asked.get("text") if isinstance(asked, dict) else None
        if not isinstance(text, str) or not text.strip():
            return self._refuse(400, 'expected {"text": "…"}, not empty')
        try:
            with self.server.lock:
                page = self.server.look(text)
        except ValueError as error:
            return self._refuse(422, str(error))
        self._send_json(200, {"header": page.header, "blocks": page.blocks})

    def _is_ours(self) -> bool:
        """Whether the request came to this address by its own name."""
        return self.headers.get("Host") == self.server.host

    def _refuse(self, status: int, error: str) -> None:
        """Say why, and end the connection: what the request still holds is not read."""
        self.close_connection = True
        self._send_json(status, {"error": error})

    def _send_json(self, status: int, value: dict[str, Any]) -> None:
        content = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        self._send(status, "application/json; charset=utf-8", content)

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(content))),
            ("Content-Security-Policy", "frame-ancestors 'none'"),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "same-origin"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing: what was typed stays out of logs."""
