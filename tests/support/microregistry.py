"""A registry of one image on the loopback: the pulling half of the OCI distribution specification, which can hold back.

``hold`` stops a layer after its first quarter until it is let go, so that a pull can be looked at while it runs.
"""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import json
import tarfile
import threading

from tests.support.microimage import archive

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_PIECES = 4


class Registry:
    """Serves ``name`` in every version. ``release`` is set unless it holds."""

    def __init__(self, layer: bytes, name: str) -> None:
        self.release = threading.Event()
        self.release.set()
        self.asked: list[str] = []
        self._name = name
        self._blobs: dict[str, bytes] = {}
        self._manifest = self._made(layer)
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()

    def _made(self, layer: bytes) -> bytes:
        with tarfile.open(fileobj=io.BytesIO(archive(self._name, layer))) as tar:
            [entry] = json.loads(tar.extractfile("manifest.json").read())  # type: ignore[union-attr]
            config = tar.extractfile(entry["Config"]).read()  # type: ignore[union-attr]
        packed = gzip.compress(layer, 1)
        told = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **self._kept(config)},
            "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", **self._kept(packed)}],
        }
        self.layer = told["layers"][0]["digest"]  # type: ignore[index]
        return json.dumps(told).encode()

    def _kept(self, blob: bytes) -> dict[str, object]:
        digest = f"sha256:{hashlib.sha256(blob).hexdigest()}"
        self._blobs[digest] = blob
        return {"digest": digest, "size": len(blob)}

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self._reply(head=True)

            def do_GET(self) -> None:
                self._reply(head=False)

            def _reply(self, *, head: bool) -> None:
                registry.asked.append(self.path)
                _, _, rest = self.path.partition("/v2/")
                if not rest:
                    self._send(b"{}", "application/json", head)
                elif rest.startswith(f"{registry._name}/manifests/"):
                    self._send(registry._manifest, _MANIFEST, head)
                elif (digest := rest.rpartition("/")[2]) in registry._blobs:
                    self._send(registry._blobs[digest], "application/octet-stream", head, held=digest == registry.layer)
                else:
                    self.send_error(404)

            def _send(self, body: bytes, kind: str, head: bool, *, held: bool = False) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Docker-Content-Digest", f"sha256:{hashlib.sha256(body).hexdigest()}")
                self.end_headers()
                if head:
                    return
                size = len(body) // _PIECES + 1
                for at in range(0, len(body), size):
                    if at and held:
                        registry.release.wait()
                    try:
                        self.wfile.write(body[at : at + size])
                        self.wfile.flush()
                    except OSError:
                        return

            def log_message(self, *_: object) -> None:
                """Quiet."""

        return Handler
