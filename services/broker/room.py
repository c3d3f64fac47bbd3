"""Room on the broker's disk: measured before it runs out, so that what is accepted can also be stored."""

import logging
import shutil
from pathlib import Path

from prometheus_client import Gauge

log = logging.getLogger(__name__)

FREE = Gauge("dapo_disk_free_bytes", "Bytes left to this user on the disk of the run folder.")
SIZE = Gauge("dapo_disk_size_bytes", "Size of the disk of the run folder.")
IS_SHORT = Gauge("dapo_broker_disk_full", "1 while nothing new is accepted because the disk has no room.")


class Room:
    """Of the disk of a run folder."""

    def __init__(self, folder: Path, *, min_free_mb: int) -> None:
        self._folder = folder
        self._min_free = min_free_mb << 20
        self._was_short = False

    def is_short(self) -> bool:
        """Whether there is too little to accept more; says so when that changes."""
        disk = shutil.disk_usage(self._folder)
        FREE.set(disk.free)
        SIZE.set(disk.total)
        self.show(short=disk.free < self._min_free)
        return self._was_short

    def show(self, *, short: bool) -> None:
        """Tell the world, once per change."""
        IS_SHORT.set(short)
        if short != self._was_short:
            level, text = (
                (logging.ERROR, "disk full: nothing new is accepted") if short else (logging.INFO, "room again")
            )
            log.log(level, text, extra={"folder": str(self._folder), "min_free_mb": self._min_free >> 20})
        self._was_short = short
