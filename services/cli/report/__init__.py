"""A run folder, or two, to one HTML page that needs nothing else; or to a trace of its stages."""
