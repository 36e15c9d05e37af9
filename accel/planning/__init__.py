"""From recipes to plans: pure data, which knows no backend."""
