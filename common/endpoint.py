"""The HTTP port of a service: /healthz says whether its loops turn, every other path shows its metrics.

    python -m common.endpoint PORT        exit status 0 if the process that serves this port here is well

is the health check of containers, whose image need not hold another program for it.
"""

import logging
import socket
import sys
import threading
from collections.abc import Sequence
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, ClassVar
from urllib.request import urlopen

from prometheus_client import MetricsHandler

from common.health import Health

log = logging.getLogger(__name__)

HEALTH = "/healthz"
CHECK_S = 4.0


class Handler(MetricsHandler):
    """Answers one request."""

    health: ClassVar[Health]

    def do_GET(self) -> None:
        """Health or metrics."""
        if self.path != HEALTH:
            super().do_GET()
            return
        complaint = self.health.complaint()
        body = (complaint or "well").encode()
        self.send_response(503 if complaint else 200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingMixIn, TCPServer):
    """Not http.server's: that looks up the name of its own address, which takes seconds where nobody answers."""

    allow_reuse_address = True
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """One line for what went wrong; nothing for a caller who did not wait for the answer."""
        if not isinstance(sys.exception(), ConnectionError):
            log.exception("request failed", extra={"client": str(client_address)})


def serve(port: int, host: str, health: Health) -> Server:
    """Answer requests in threads of their own until the process ends; raises `OSError` if the port is taken."""
    handler = type("ServiceHandler", (Handler,), {"health": health})
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server = type("FamilyServer", (Server,), {"address_family": family})((host, port), handler)
    threading.Thread(target=server.serve_forever, name="endpoint", daemon=True).start()
    return server


def is_well(port: int) -> bool:
    """Whether the service on this port of this machine answers that it is."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{HEALTH}", timeout=CHECK_S) as answer:
            return bool(answer.status == 200)
    except OSError as error:
        print(error, file=sys.stderr)
        return False


def main(argv: Sequence[str] | None = None) -> int:
    """Check one port; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if len(words) != 1 or not words[0].isdecimal():
        print("usage: python -m common.endpoint PORT", file=sys.stderr)
        return 2
    return 0 if is_well(int(words[0])) else 1


if __name__ == "__main__":
    sys.exit(main())
