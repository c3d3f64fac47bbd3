"""The durable lease queue: clients give, take and settle items over one ZeroMQ socket."""
