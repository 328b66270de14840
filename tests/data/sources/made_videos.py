"""Small video files, written by PyAV."""

import struct
from fractions import Fraction

import av
import numpy as np

CODECS = {
    ".mp4": "libx264",
    ".webm": "libvpx",
    ".mkv": "mjpeg",
    ".avi": "mpeg4",
    ".mov": "mpeg4",
    ".gif": "gif",
}
PIXELS = {"mjpeg": "yuvj420p", "gif": "rgb8"}


def grey_frames(values, size=(32, 48)):
    """Frames (T, H, W, 3), each of one grey level, with a square of the inverse above on the left."""
    frames = np.broadcast_to(np.array(values, "uint8")[:, None, None, None], (len(values), *size, 3)).copy()
    frames[:, :8, :8] = 255 - frames[:, :8, :8]
    return frames


def write_video(path, frames, rate=10, times=None, key_every=6, title=""):
    """Write frames (T, H, W, 3) to the `path`, whose suffix says how; `times` are hundredths of seconds."""
    codec = CODECS[path.suffix]
    with av.open(str(path), "w") as container:
        container.metadata["title"] = title
        stream = container.add_stream(codec, rate=rate)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = PIXELS.get(codec, "yuv420p")
        stream.codec_context.gop_size = key_every
        if times is not None:
            stream.codec_context.time_base = Fraction(1, 100)
        for number, pixels in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            if times is not None:
                frame.pts, frame.time_base = times[number], Fraction(1, 100)
            for packet in stream.encode(frame):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)


def write_sound(path):
    """Write a tenth of a second of silence."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=44100)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 4410), "float32"), format="flt", layout="mono")
        frame.sample_rate = 44100
        for packet in [*stream.encode(frame), *stream.encode()]:
            container.mux(packet)


def spoil(path, number):
    """Overwrite the packet of this number."""
    with av.open(str(path)) as container:
        packets = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    start, size = packets[number]
    data = bytearray(path.read_bytes())
    data[start + 10 : start + size] = b"\xff" * (size - 10)
    path.write_bytes(data)


def turn(path):
    """Say in an .mp4 that its frames are shown turned clockwise by a quarter, as phones do."""
    data = bytearray(path.read_bytes())
    at = data.find(b"tkhd") + 4 + 40
    data[at : at + 36] = struct.pack(">9i", 0, 1 << 16, 0, -1 << 16, 0, 0, 0, 0, 1 << 30)
    path.write_bytes(data)
