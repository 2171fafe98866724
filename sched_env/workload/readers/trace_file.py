"""A trace file in memory: unpacked, and refused with a reason if it cannot be read."""

from __future__ import annotations

import gzip
import io
import zlib
from dataclasses import dataclass
from pathlib import Path

from sched_env.errors import TraceError

MAX_TRACE_BYTES = 4 * 2**30
"""A file larger than this, unpacked, is refused: cut a window out of it first."""

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 2**20


@dataclass(frozen=True)
class TraceFile:
    """The content of one trace file.

    Attributes:
        path: as the user gave it.
        name: file name, as error messages show it.
        data: bytes after unpacking, without a byte-order mark.
    """

    path: Path
    name: str
    data: bytes

    @classmethod
    def load(cls, path: Path) -> TraceFile:
        """Read and unpack ``path`` (gzip is recognised by content, not by name).

        Raises:
            TraceError: missing, a folder, unreadable, empty, a damaged archive, or too large.
        """
        if path.is_dir():
            raise TraceError(f"{path} is a folder; give one trace file of it")
        if path.exists() and not path.is_file():
            raise TraceError(f"{path} is no regular file; write what comes from it to one")
        try:
            with path.open("rb") as file:
                data = file.read(MAX_TRACE_BYTES + 1)
        except FileNotFoundError as error:
            raise TraceError(f"no file {str(path)!r}; check the path") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise TraceError(f"{path} cannot be read: {reason}; check the path") from error
        if data.startswith(_GZIP_MAGIC):
            data = _unpacked(path.name, data)
        if len(data) > MAX_TRACE_BYTES:
            raise TraceError(_too_large(path.name))
        data = data.removeprefix(b"\xef\xbb\xbf")
        if not data.strip():
            raise TraceError(f"{path.name} is empty; give a trace with at least one request")
        return cls(path, path.name, data)

    def text(self) -> str:
        """Return the content as text.

        Raises:
            TraceError: the bytes are not UTF-8.
        """
        try:
            return self.data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = self.data.count(b"\n", 0, error.start) + 1
            raise TraceError(
                f"{self.name}, line {line}: not UTF-8 text (byte {self.data[error.start]:#04x}); "
                "save the file as UTF-8, or give a parquet or gzip file"
            ) from error


def _unpacked(name: str, packed: bytes) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as archive:
            while part := archive.read(_CHUNK_BYTES):
                parts.append(part)
                size += len(part)
                if size > MAX_TRACE_BYTES:
                    raise TraceError(_too_large(name))
    except (EOFError, OSError, zlib.error) as error:
        message = f"{name}: damaged gzip archive ({error}); copy or download it again"
        raise TraceError(" ".join(message.split())) from error
    return b"".join(parts)


def _too_large(name: str) -> str:
    limit_gib = MAX_TRACE_BYTES // 2**30
    return f"{name} holds more than {limit_gib} GiB; cut out the window you need first"
