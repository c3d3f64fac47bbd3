"""The files that a remote verifier is configured with: its key and its template, read at start.

A key that everybody on the machine may read is refused, as is a template that does not show the judge what to judge.
"""

import os
import stat
from pathlib import Path

from common.errors import UserError

OUTPUT = "{output}"


def read_key(path: str, table: str) -> str:
    """The key of a file; empty if no file is named."""
    if not path:
        return ""
    try:
        with open(path, encoding="ascii") as file:
            everybody = os.fstat(file.fileno()).st_mode & (stat.S_IROTH | stat.S_IWOTH)
            key = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII"
        raise UserError(f"[{table}] key_file {path} cannot be read: {reason}") from None
    if everybody:
        raise UserError(f"[{table}] key_file {path} can be read by everybody on this machine: chmod 600 {path}")
    if not key or len(key.split()) != 1:
        raise UserError(f"[{table}] key_file {path} must hold the key and nothing else")
    return key


def read_template(path: str) -> str:
    """The template of the judge's question."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"[reward.judge] template {path} cannot be read: {error}") from error
    if OUTPUT not in text:
        raise UserError(f"[reward.judge] template {path} lacks {OUTPUT}: the judge would not see what it judges")
    return text
