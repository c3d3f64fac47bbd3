"""Errors that have a meaning for the user or for the caller.

DapoError
├── UserError        the user can mend it: one sentence, exit status 2, no traceback
├── WireError        bytes from a peer that are not a valid message: refused, counted, never fatal
└── RefusedError     the broker did not carry out a hand-over: the lease or the register has moved on
"""

USER_ERROR_EXIT_STATUS = 2


class DapoError(Exception):
    """Root of the errors that this project raises on purpose."""


class UserError(DapoError):
    """A mistake the user can mend. Its text says what is wrong, where (file, row, key) and what to do."""


class WireError(DapoError):
    """Bytes that came over a socket or from a file and do not decode to the expected message."""


class RefusedError(DapoError):
    """The broker refused a hand-over because a lease was lost or a register had another version."""
