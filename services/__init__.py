"""The processes of the pipeline, one folder each, and `cli`, the command that starts them."""
