"""From recipes to plans, which are pure data and independent of backends."""
