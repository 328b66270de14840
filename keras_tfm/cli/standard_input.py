"""Standard input, line by line as the lines arrive."""

import collections
import io
import select
from typing import Any


class StandardInput:
    """Reads a binary stream line by line, and knows whether another line has arrived already."""

    def __init__(self, stream: Any):
        self.stream, self.is_at_end = stream, False
        self.lines: collections.deque[bytes] = collections.deque()
        self.parts: list[bytes] = []  # of the incomplete line

    def readline(self, most: int) -> bytes:
        """The next line; of a line with more than `most` bytes, at least that many."""
        while not self.lines and sum(map(len, self.parts)) <= most and self._read():
            pass
        if self.lines:
            return self.lines.popleft()
        line, self.parts = b"".join(self.parts), []
        return line

    def has_ended(self) -> bool:
        """Whether no line will follow, as far as that is known without waiting."""
        return not self.has_line() and self.is_at_end

    def has_line(self) -> bool:
        """Whether `readline` returns a line without waiting."""
        while not self.lines and self._is_ready() and self._read():
            pass
        return bool(self.lines or (self.is_at_end and self.parts))

    def _is_ready(self) -> bool:
        try:
            return bool(select.select([self.stream], [], [], 0)[0])
        except io.UnsupportedOperation:  # a stream in memory
            return True

    def _read(self) -> bool:
        """Take what has arrived, or wait for something; return False at the end of the stream."""
        if not self.is_at_end:
            data = self.stream.read1(1 << 16)
            self.is_at_end = not data
            *whole, rest = data.split(b"\n")
            if whole:
                first, self.parts = b"".join([*self.parts, whole[0]]), []
                self.lines.extend(line + b"\n" for line in (first, *whole[1:]))
            self.parts += [rest] if rest else []
        return not self.is_at_end
