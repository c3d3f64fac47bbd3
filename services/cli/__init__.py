"""The `dapo` command: starts, watches and inspects runs."""
