"""Answers of a provider, within limits: whatever it or somebody on the way sends, neither memory nor a key is lost."""

from __future__ import annotations

import io
import time
from typing import Any

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from requests.exceptions import ContentDecodingError, Timeout, TooManyRedirects
from requests.exceptions import RequestException as Failed
from urllib3 import HTTPResponse
from urllib3.exceptions import HTTPError

MOST = 1 << 20
"""The largest answer, in bytes. The keys and claims of large providers have some 20 KiB."""
_PIECE = 1 << 16


class BoundedAdapter(HTTPAdapter):
    """Reads answers of at most 1 MiB within ``seconds``; follows no redirect, and wants nothing compressed.

    ``send`` raises a RequestException for anything else.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        """Send a request, and read its answer."""
        request.headers["Accept-Encoding"] = "identity"
        until = time.monotonic() + self._seconds
        answer = super().send(request, *args, **kwargs)
        raw = answer.raw
        try:
            if answer.is_redirect:
                raise TooManyRedirects("it leads to another address, and redirects are not followed")
            if raw.headers.get("Content-Encoding", "identity") != "identity":
                raise ContentDecodingError("it is compressed, though it was asked for as it is")
            data = self._read(raw, until)
        except HTTPError as error:  # the connection broke
            raise Failed(str(error)) from error
        finally:
            raw.close()
        answer.raw = HTTPResponse(io.BytesIO(data), raw.headers, raw.status, preload_content=False)
        return answer

    def _read(self, raw: Any, until: float) -> bytes:
        piece_of = getattr(raw, "read1", raw.read)  # of urllib3 2.1; before, a piece is waited for as a whole
        data = bytearray()
        while piece := piece_of(_PIECE):
            data += piece
            if len(data) > MOST:
                raise Failed(f"it has more than {MOST >> 20} MiB")
            if time.monotonic() > until:
                raise Timeout(f"it is not complete within {self._seconds:g} s")
        return bytes(data)
