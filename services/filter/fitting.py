"""What becomes of prompts that are too long: dropped, shortened, or a reason not to start ([filter] on_long_prompt).

drop            left out
fail            the run does not start
truncate_left   the last user message loses its beginning, so that its end, mostly the question, is kept
truncate_right  it loses its end; the system prompt and the suffix of the run are kept in either case
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from common.config import RunConfig
from common.errors import UserError
from common.messages import ChatMessage
from services.filter.config import FilterConfig
from services.filter.lengths import Counter, ModelFiles
from services.filter.schema import Row

log = logging.getLogger(__name__)

Chat = tuple[ChatMessage, ...]
Count = Callable[[Chat], int]


@dataclass(kw_only=True)
class Fitted:
    """Rows that fit, as they will be issued, and the numbers of those that did not."""

    rows: list[Row] = field(default_factory=list)
    too_long: dict[int, int] = field(default_factory=dict)
    """Number -> tokens."""
    shortened: list[int] = field(default_factory=list)


def counter(run: RunConfig, config: FilterConfig) -> Count | None:
    """Counts the tokens of a prompt for a run; None if the rollouts must do it, which is said."""
    files, template = ModelFiles(run.model, download=config.on_long_prompt != "drop"), run.template_text
    try:
        counts = Counter.of_model(files, template=template)
    except UserError as error:
        if config.on_long_prompt != "drop":
            raise UserError(
                f'[filter] on_long_prompt = "{config.on_long_prompt}" counts tokens, but {error}'
            ) from error
        log.info(f"prompts that are too long are left to the rollouts: {error}")
        return None
    most = files.most_tokens
    if most is not None and run.max_prompt_tokens + run.max_response_tokens > most:
        raise UserError(
            f"[run] max_prompt_tokens + max_response_tokens = {run.max_prompt_tokens + run.max_response_tokens}, but "
            f"the model {run.model} was made for {most} tokens: lower one of them"
        )
    return counts.count


def fitted(rows: Sequence[Row], dress: Callable[[Row], Row], *, count: Count, limit: int, policy: str) -> Fitted:
    """The rows dressed for the run, none longer than `limit`. `fail` leaves it to the caller to refuse."""
    result = Fitted()
    for row in rows:
        ready = dress(row)
        tokens = count(ready.chat)
        if tokens > limit and policy.startswith("truncate"):
            shorter = _shortened(row, dress, lambda chat: count(chat) <= limit, keep_end=policy == "truncate_left")
            if shorter is not None:
                result.shortened.append(row.number)
                ready, tokens = shorter, limit
        if tokens > limit:
            result.too_long[row.number] = tokens
        else:
            result.rows.append(ready)
    return result


def last_user(chat: Sequence[ChatMessage]) -> int:
    """The place of the last user message."""
    return max(place for place, message in enumerate(chat) if message.role == "user")


def _shortened(row: Row, dress: Callable[[Row], Row], fits: Callable[[Chat], bool], *, keep_end: bool) -> Row | None:
    """The row with as much of its last user message as fits; None if not one character does."""
    place = last_user(row.chat)
    content = row.chat[place].content

    def cut(length: int) -> Row:
        text = content[len(content) - length :] if keep_end else content[:length]
        message = ChatMessage(role="user", content=text)
        return dress(replace(row, chat=(*row.chat[:place], message, *row.chat[place + 1 :])))

    low, high = 0, len(content)
    while low < high - 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(cut(middle).chat) else (low, middle)
    return cut(low) if low and fits(cut(low).chat) else None
