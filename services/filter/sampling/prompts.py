"""What is known of every prompt: four small arrays, written whole from time to time and in between by what changed.

    file (all prompts, some transactions ago)  +  overlay (in the register)  =  the arrays, exactly

Writing the file costs 16 bytes a prompt, a change about 25 bytes in every transaction until the next file. With n
prompts and a file every m changes a change costs 16 n / m + 25 m / 2 bytes, least at m = sqrt(1.3 n).
"""

import hashlib
import math

import numpy as np

from common.errors import UserError
from services.filter.sampling.posterior import Evidence
from services.filter.sampling.state import Known, SamplerState

RECORD = np.dtype([("attempts", "<f4"), ("successes", "<f4"), ("seen", "<i4"), ("due", "<i4")])
LEAST_CHANGES = 64


class Prompts:
    """The arrays, by row."""

    def __init__(self, state: SamplerState, num_rows: int, file: bytes = b"") -> None:
        """`file` is what the state's `file` holds."""
        self._state = state
        self._table = np.frombuffer(bytearray(file), RECORD) if state.file else np.zeros(num_rows, RECORD)
        if state.file and (name_of(file) != state.file or len(self._table) != num_rows):
            raise UserError(f"sampling/{state.file} is damaged or missing in the run folder: restore it, or start anew")
        self.attempts, self.successes = self._table["attempts"], self._table["successes"]
        self.due = self._table["due"]
        for row, known in state.overlay.items():
            self._table[row] = tuple(known)

    def __len__(self) -> int:
        return len(self._table)

    def evidence(self, row: int) -> Evidence:
        """Attempts, successes, and the version when they were last counted."""
        attempts, successes, seen, _ = self._table[row].item()
        return Evidence(attempts, successes, seen)

    def learn(self, row: int, evidence: Evidence) -> None:
        """Replace the evidence."""
        self._write(row, (*evidence, int(self.due[row])))

    def postpone(self, row: int, epoch: int) -> None:
        """It need not be visited before this epoch."""
        self._write(row, (*self.evidence(row), max(epoch, int(self.due[row]))))

    def file(self) -> tuple[str, bytes] | None:
        """Name and content of the file to write now, if enough has changed; the state names it from here on."""
        if len(self._state.overlay) < max(LEAST_CHANGES, math.sqrt(1.3 * len(self))):
            return None
        content = self._table.tobytes()
        self._state.file = name_of(content)
        self._state.overlay.clear()
        return self._state.file, content

    def _write(self, row: int, values: tuple[float, float, int, int]) -> None:
        self._table[row] = values
        self._state.overlay[row] = Known(*self._table[row].item())


def name_of(content: bytes) -> str:
    """The content names its file, so two filters that contend for a transaction cannot mix theirs up."""
    return f"prompts-{hashlib.blake2b(content, digest_size=12).hexdigest()}.bin"
