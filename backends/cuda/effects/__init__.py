"""Effects of a plan as items of the one kernel that runs them all (``effects.cu``); ``told`` has a line for each op."""

from .items import look_up, lower, on_device, sent_bytes

__all__ = ["look_up", "lower", "on_device", "sent_bytes"]
