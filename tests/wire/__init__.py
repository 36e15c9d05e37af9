"""accel.wire: recipes in bytes."""
