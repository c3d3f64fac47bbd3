"""What is wrong with a request whatever the broker holds."""

from collections.abc import Hashable, Sequence

from common.protocol import Give


def flaw(give: Give, num_frames: int) -> str:
    """Why a request can never be carried out, or nothing. `num_frames` payload frames came with it."""
    names = (give.settles, [write.register for write in give.writes], [(note.queue, note.id) for note in give.letters])
    if any(_repeats(each) for each in names):
        return "named twice"
    if sum(offer.frames for offer in give.offers) != num_frames:
        return "frames do not fit the offers"
    return ""


def _repeats(names: Sequence[Hashable]) -> bool:
    return len(set(names)) != len(names)
