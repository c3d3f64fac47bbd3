"""TensorBoard: event files in RUN/tensorboard, without TensorFlow or torch; `tensorboard --logdir runs` shows them."""

import json
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from services.cli.trackers.tracker import Tables

FOLDER = "tensorboard"


class TensorBoard:
    """One event file; a rewind tells the reader to forget the later steps."""

    def __init__(self, folder: Path, tables: Tables) -> None:
        """Begin a file, with the configuration as text."""
        self._writer = EventFileWriter(str(folder / FOLDER))
        text = f"```json\n{json.dumps(tables, indent=2, default=str)}\n```"
        tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode()])
        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        self._add(0, Summary(value=[Summary.Value(tag="configuration", tensor=tensor, metadata=metadata)]), 0.0)

    def log(self, step: int, values: Mapping[str, float], time: float) -> None:
        """As scalars."""
        summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
        self._add(step, summary, time)

    def rewind(self, step: int) -> None:
        """TensorBoard purges what comes before this mark and has this step or a later one."""
        self._writer.add_event(Event(step=step, session_log=SessionLog(status=SessionLog.START)))

    def close(self) -> None:
        """Write what is buffered."""
        self._writer.close()

    def _add(self, step: int, summary: Summary, time: float) -> None:
        self._writer.add_event(Event(wall_time=time, step=step, summary=summary))
        self._writer.flush()
