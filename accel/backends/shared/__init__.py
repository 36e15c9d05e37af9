"""Code that several backends use. No backend imports another, and the core imports nothing from here."""
