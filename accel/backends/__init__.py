"""The backends, one folder each, installed as ``accel.backends``. The core imports none of them by name."""
