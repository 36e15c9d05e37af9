"""Lowering a plan's effects to items of the one kernel that runs them all (``effects.cu``).

``arguments`` has a line for each op.
"""

from accel.backends.cuda.effects.lowering import add_effect, add_look_up, on_device, sent_bytes

__all__ = ["add_effect", "add_look_up", "on_device", "sent_bytes"]
