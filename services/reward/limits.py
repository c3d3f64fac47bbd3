"""What one program may use."""

from msgspec import Struct


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of a program under test; a row's metadata may set the first two (`time_limit`, `memory_limit`)."""

    case_s: float = 6.0
    """Processor seconds of one test; by the wall clock it may take `WALL` times as long, and one second."""
    memory_mib: int = 1024
    """Address space of the program, its interpreter included."""
    total_s: float = 60.0
    """Wall-clock seconds of all tests together."""
    output_mib: int = 8
    """What it may print, or return, in one test."""
    files_mib: int = 16
    """What it may write to its folder in one test."""
    unconfined: bool = False
    """Run programs even where the kernel can confine them in no way; for a machine that is thrown away afterwards."""

    @property
    def wall_s(self) -> float:
        """Wall-clock seconds of one test."""
        return WALL * self.case_s + 1.0

    @property
    def longest_s(self) -> float:
        """Wall-clock seconds of all tests at most: the last may begin just before the end."""
        return self.total_s + max(self.wall_s, WALL * GREATEST_CASE_S) + SLACK_S


WALL = 2.0
SLACK_S = 10.0
"""For starting the sandbox, and for cleaning up."""
GREATEST_CASE_S = 60.0
GREATEST_MEMORY_MIB = 16_384
"""What a row may ask for at most."""
