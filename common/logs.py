"""One JSON object a line per service: time, level, run, service, event and its fields (`group`, `version` ...)."""

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

_STANDARD = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON; `extra` fields become keys."""

    def __init__(self, name: str, run: str = "") -> None:
        super().__init__()
        self._name = name
        self._run = run

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its line end."""
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "run": self._run,
            "service": self._name,
            "event": record.getMessage(),
        }
        line |= {key: value for key, value in record.__dict__.items() if key not in _STANDARD}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def start(name: str, folder: Path | None, *, console: bool = True) -> None:
    """Send the root logger to `folder`/`name`.jsonl (appended) and, if `console`, to stderr.

    `folder` is logs/ of a run folder, whose name is the run's.
    """
    handlers: list[logging.Handler] = []
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(folder / f"{name}.jsonl", encoding="utf-8"))
    if console:
        handlers.append(logging.StreamHandler(sys.stderr))
    for handler in handlers:
        handler.setFormatter(JsonLines(name, folder.absolute().parent.name if folder else ""))
    logging.basicConfig(level=logging.INFO, handlers=handlers, force=True)
